//! The value of each job's containers under `objective.value: speed` ([`crate::useful`]), from the curves on
//! the log.
//!
//! A curve counts up to twice the largest measured count, so that a job explores at most by doubling; beyond,
//! a container has no value, but a fair share may still bring it. Before the first curve a job counts as
//! linear up to a few containers, and without limit once it has run for a while without progress reports.

use dormouse_messages::events::JobSpeedFitted;
use dormouse_messages::job::Urgency;
use dormouse_messages::policy::{Objective, Value};
use dormouse_messages::speed::CurveSource;
use dormouse_messages::{JobId, Timestamp};
use dormouse_state::{ClusterState, Job};

use crate::useful::Useful;

/// Containers of a job of unknown speed.
const UNKNOWN: u32 = 4;

/// A job without a progress report after this time reports none.
const SILENT_MS: u64 = 600_000;

/// Work left counts up to this many times, and from this part of, the mean.
const LONGEST: f64 = 100.0;

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
    mean_served_s: f64,
    /// Mean work left of the live jobs that say it, in container seconds.
    mean_left_s: f64,
}

impl<'a> Values<'a> {
    pub fn new(state: &'a ClusterState, now: Timestamp) -> Self {
        let counts = state.policy.objective.value == Value::Speed;
        let jobs = || state.jobs.keys().filter(|_| counts);
        Self {
            state,
            now,
            mean_served_s: mean(jobs().map(|id| served_s(state, id, now))),
            mean_left_s: mean(jobs().filter_map(|id| left_s(state, id, now))),
        }
    }

    /// `None`: the number of containers.
    pub fn of(&self, id: &JobId, job: &Job, max: u32) -> Option<Useful> {
        let objective = &self.state.policy.objective;
        if objective.value == Value::Linear || job.urgency > Urgency::Training {
            return None;
        }
        let factor = self.precedence(id, objective);
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

    /// Returns the part of its speed that a job loses on several nodes.
    pub fn crossing(&self, id: &JobId) -> f64 {
        let objective = &self.state.policy.objective;
        let fitted = self.state.speeds.job(id).and_then(|it| it.fitted.as_ref());
        let measured = fitted.filter(|_| objective.value == Value::Speed);
        let measured = measured.and_then(|it| it.crossing);
        measured.unwrap_or(objective.crossing)
    }

    /// Returns the seconds until a running job ends with its present containers, if it says its work.
    pub fn ends_in_s(&self, id: &JobId, job: &Job) -> Option<f64> {
        let left_s = left_s(self.state, id, self.now)?;
        let fitted = self.state.speeds.job(id)?.fitted.as_ref()?;
        let useful = fitted.useful(job.workers());
        (useful > 0.0).then(|| left_s / useful)
    }

    /// Returns a, by the job's service and the work that it says is left.
    fn precedence(&self, id: &JobId, objective: &Objective) -> f64 {
        let mut factor = 1.0;
        if self.mean_served_s > 0.0 {
            let served = served_s(self.state, id, self.now) / self.mean_served_s;
            factor *= libm::pow(1.0 + served, -objective.attained);
        }
        let left_s = left_s(self.state, id, self.now).filter(|_| self.mean_left_s > 0.0);
        if let Some(left_s) = left_s {
            let left = (left_s / self.mean_left_s).clamp(1.0 / LONGEST, LONGEST);
            factor *= libm::pow(left, -objective.remaining);
        }
        factor
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

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}

/// `None` also if the objective does not count the work left.
fn left_s(state: &ClusterState, id: &JobId, now: Timestamp) -> Option<f64> {
    let counts = state.policy.objective.remaining > 0.0;
    state.speeds.job(id).filter(|_| counts)?.left_s(now)
}

fn served_s(state: &ClusterState, id: &JobId, now: Timestamp) -> f64 {
    state.speeds.job(id).map_or(0.0, |job| job.served_s(now))
}
