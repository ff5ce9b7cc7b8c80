//! Time limits of runs and first starts.

use dormouse_messages::events::{JobCancelled, JobFailed, PartitionWarned, StopReason};
use dormouse_messages::{JobId, Proposal, Sequence, Timestamp};
use dormouse_state::{Job, PartitionPhase, queue_limit_over};

use crate::incarnation::{Act, Step};

/// After a silence of the log, agents get this time to report exits that came in time.
const HEARING_MS: u64 = 3_000;

/// Cancels a job that waited too long.
pub fn waited(id: &JobId, job: &Job, until: Timestamp, now: Timestamp) -> Option<Step> {
    if now < until {
        return None;
    }
    let event = JobCancelled {
        job: id.clone(),
        reason: queue_limit_over(job.limits.queue_limit_s.unwrap_or_default()),
        attempts: 0,
        code: Some("queue_limit".to_owned()),
        ingress_sequence: None,
        by: None,
        basis: None,
    };
    let cause = job.released.unwrap_or(job.admitted);
    Some(Proposal::new(event, cause).into())
}

/// Fails a job past its time limit.
pub fn over(id: &JobId, job: &Job) -> Step {
    let limit_s = job.limits.time_limit_s;
    let limit = limit_s.map_or_else(String::new, |limit_s| format!(" of {limit_s} s"));
    let event = JobFailed {
        job: id.clone(),
        reason: format!("it has run for its time_limit_s{limit}"),
        attempts: job.attempts,
        basis: None,
    };
    let stop = job.last_stop.as_ref().map(|stop| stop.sequence);
    Proposal::new(event, stop.unwrap_or(Sequence(0))).into()
}

impl Act<'_> {
    /// Returns the start of a run or save that nothing else ends.
    fn counts(&self) -> Option<Timestamp> {
        let runs = matches!(
            self.partition.phase,
            PartitionPhase::Running | PartitionPhase::Saving { .. }
        );
        let counts = runs && self.job.cancel_requested.is_none() && self.is_alive();
        self.partition.running_since.filter(|_| counts)
    }

    /// Stops or warns the incarnation.
    pub fn limited(&self, now: Timestamp) -> Option<Step> {
        let (since, limits) = (self.counts()?, &self.job.limits);
        let stops_at = limits.stops_at(since)?;
        if now >= self.when_heard(stops_at) {
            return Some(self.stop(StopReason::TimeLimit, self.partition.last_event));
        }
        let (_, warning) = limits
            .warns_at(self.partition.incarnation, since)
            .filter(|(at, _)| now >= *at)?;
        let left_s = stops_at.ms_since(now).div_ceil(1000);
        let event = PartitionWarned {
            job: self.id.clone(),
            incarnation: self.partition.incarnation,
            signal: warning.signal.clone(),
            left_s: u32::try_from(left_s).unwrap_or(u32::MAX),
            basis: None,
        };
        Some(Proposal::new(event, self.partition.last_event).into())
    }

    /// Returns the next due limit.
    pub fn next_limit(&self) -> Option<Timestamp> {
        let (since, limits) = (self.counts()?, &self.job.limits);
        let warns = limits.warns_at(self.partition.incarnation, since);
        let warns = warns.map(|(at, _)| at);
        warns.or_else(|| Some(self.when_heard(limits.stops_at(since)?)))
    }

    /// Defers times within a silence.
    fn when_heard(&self, at: Timestamp) -> Timestamp {
        let again = self.state.clock.heard_again();
        if again >= at {
            again.plus_ms(HEARING_MS)
        } else {
            at
        }
    }
}
