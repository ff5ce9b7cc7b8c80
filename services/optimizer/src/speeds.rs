//! The value of each job's containers under `objective.value: speed` ([`crate::useful`]), from the curves on
//! the log.
//!
//! A curve counts up to twice the largest measured count, so that a job explores at most by doubling; beyond,
//! a container has no value, but a fair share may still bring it. Before the first curve a job counts as
//! linear up to a few containers, and without limit once it has run for a while without progress reports.

use dormouse_messages::events::JobSpeedFitted;
use dormouse_messages::job::Urgency;
use dormouse_messages::policy::Value;
use dormouse_messages::speed::CurveSource;
use dormouse_messages::{JobId, Timestamp};
use dormouse_state::{ClusterState, Job};

use crate::useful::Useful;

/// Containers of a job of unknown speed.
const UNKNOWN: u32 = 4;

/// A job without a progress report after this time reports none.
const SILENT_MS: u64 = 600_000;

/// Curves of one decision; the next decision has the others.
const MOST_FITTED: usize = 256;

/// Returns the curves that the log lacks, before a decision uses them.
pub(crate) fn to_fit(state: &ClusterState) -> Vec<JobSpeedFitted> {
    if state.policy.objective.value == Value::Linear {
        return Vec::new();
    }
    let jobs = state.jobs.iter().filter(|(_, job)| is_valued(job));
    let fitted =
        jobs.filter_map(|(id, job)| state.speeds.to_fit(id, &job.demand, &job.speed_milli));
    fitted.take(MOST_FITTED).collect()
}

/// Returns the containers up to which a job of unknown speed counts as linear.
#[must_use]
pub fn unknown_speed(job: &Job) -> u32 {
    UNKNOWN.max(job.containers.min)
}

fn is_valued(job: &Job) -> bool {
    job.urgency == Urgency::Training && job.tasks.is_none()
}

/// The jobs' values.
pub(crate) struct Values<'a> {
    state: &'a ClusterState,
    now: Timestamp,
    /// Mean service of the live jobs in container seconds.
    mean_s: f64,
}

impl<'a> Values<'a> {
    pub fn new(state: &'a ClusterState, now: Timestamp) -> Self {
        let counts = state.policy.objective.value == Value::Speed;
        let jobs = state.jobs.keys().filter(|_| counts);
        let served = jobs.map(|id| served_s(state, id, now));
        let (mut sum, mut count) = (0.0, 0.0);
        for served in served {
            sum += served;
            count += 1.0;
        }
        Self {
            state,
            now,
            mean_s: if count > 0.0 { sum / count } else { 0.0 },
        }
    }

    /// `None`: the number of containers.
    pub fn of(&self, id: &JobId, job: &Job, max: u32) -> Option<Useful> {
        let objective = &self.state.policy.objective;
        if objective.value == Value::Linear || job.urgency > Urgency::Training {
            return None;
        }
        let served = served_s(self.state, id, self.now);
        let factor = if self.mean_s > 0.0 {
            libm::pow(1.0 + served / self.mean_s, -objective.attained)
        } else {
            1.0
        };
        let worth = |speed: f64| factor * libm::pow(speed, objective.concave);
        let speed = self.state.speeds.job(id);
        let fitted = speed
            .and_then(|it| it.fitted.as_ref())
            .filter(|_| is_valued(job));
        let Some(fitted) = fitted else {
            let limit = self.unknown(id, job).unwrap_or(max);
            let value = |count: u32| worth(f64::from(count.min(limit)));
            return Some(Useful::new(value, max, &[limit]));
        };
        let limit = match fitted.source {
            CurveSource::Document => max,
            CurveSource::Measured | CurveSource::Family => {
                fitted.most().saturating_mul(2).max(job.containers.min)
            }
        };
        // A stated table may be long.
        let points = fitted.points.iter().map(|point| point.containers);
        let measured = points.filter(|_| fitted.source != CurveSource::Document);
        let peak = fitted.peak(max);
        let also: Vec<u32> = measured.chain(peak).chain([limit]).collect();
        let value = |count: u32| worth(fitted.useful(count.min(limit)));
        let mut useful = Useful::new(value, max, &also);
        useful.peak = peak;
        Some(useful)
    }

    /// Returns the limit of a job of unknown speed; `None` for a job that reports no progress.
    fn unknown(&self, id: &JobId, job: &Job) -> Option<u32> {
        let speed = self.state.speeds.job(id);
        let reports = speed.is_some_and(dormouse_state::speed::JobSpeed::reports);
        let long_ago = |since: Timestamp| self.now.ms_since(since) > SILENT_MS;
        let is_silent = !reports && job.running_since().is_some_and(long_ago);
        (is_valued(job) && !is_silent).then(|| unknown_speed(job))
    }
}

fn served_s(state: &ClusterState, id: &JobId, now: Timestamp) -> f64 {
    state.speeds.job(id).map_or(0.0, |job| job.served_s(now))
}
