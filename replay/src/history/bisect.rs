//! The first event after which something is so: a job is in a phase, a metric is beyond a value, a
//! service's invariant is broken.
//!
//! The log is folded from its beginning, one event after the other, and the first place is the exact
//! one: metrics cross a value back and forth, so that halving would find some crossing only.

use std::str::FromStr;

use dormouse_admission::AdmissionState;
use dormouse_messages::{Event, Fold, JobId, Recorded, Sequence, TenantId, Timestamp};
use dormouse_projections::ReadModel;
use dormouse_projections::jobs::Phase;
use dormouse_state::ClusterState;
use serde::{Deserialize, Serialize};

use super::seen::{SeenError, seen_by};

/// What is looked for.
#[derive(Debug, Clone, PartialEq)]
pub enum Predicate {
    /// The job is in this phase.
    Job(JobId, Phase),
    /// The job's containers have changed to so many.
    Containers(JobId, u32),
    /// The metric is above the value, or below.
    Metric(Metric, Side, f64),
    /// An invariant of a service's fold is broken.
    Broken,
}

/// A figure of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Σ of the resources' parts in use, by the newest allocation.
    Utilization,
    /// Σ |s − ŝ| of the jobs with containers.
    FairnessLoss,
    /// Jobs that wait or are queued.
    Waiting,
    /// Jobs that run.
    Running,
}

/// On which side of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Above.
    Above,
    /// Below.
    Below,
}

/// A predicate that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is nothing that is looked for; write ads/lr=running, ads/lr.containers=4, utilization>0.9, fairness-loss<0.1, waiting>10, running<1 or broken"
)]
pub struct PredicateError(String);

impl FromStr for Predicate {
    type Err = PredicateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || PredicateError(text.to_owned());
        if text == "broken" {
            return Ok(Self::Broken);
        }
        for (sign, side) in [('>', Side::Above), ('<', Side::Below)] {
            if let Some((metric, value)) = text.split_once(sign) {
                let metric = match metric.trim() {
                    "utilization" => Metric::Utilization,
                    "fairness-loss" => Metric::FairnessLoss,
                    "waiting" => Metric::Waiting,
                    "running" => Metric::Running,
                    _ => return Err(wrong()),
                };
                let value = value.trim().parse().map_err(|_| wrong())?;
                return Ok(Self::Metric(metric, side, value));
            }
        }
        let (left, right) = text.split_once('=').ok_or_else(wrong)?;
        if let Some(job) = left.strip_suffix(".containers") {
            let count = right.parse().map_err(|_| wrong())?;
            return Ok(Self::Containers(job.parse().map_err(|_| wrong())?, count));
        }
        let phase = right.parse().map_err(|_| wrong())?;
        Ok(Self::Job(left.parse().map_err(|_| wrong())?, phase))
    }
}

impl Predicate {
    /// The job that it is about.
    #[must_use]
    pub const fn job(&self) -> Option<&JobId> {
        match self {
            Self::Job(job, _) | Self::Containers(job, _) => Some(job),
            Self::Metric(..) | Self::Broken => None,
        }
    }
}

/// The place that was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// The event with which it became so.
    pub sequence: Sequence,
    /// When.
    pub at: Timestamp,
    /// Its type, without prefix and version.
    pub event: String,
    /// What it is about.
    pub subject: String,
    /// How it was before.
    pub before: String,
    /// How it is since.
    pub after: String,
    /// `exact`: it is the first place.
    pub exact: bool,
    /// Events that were folded.
    pub folds: u64,
}

impl Found {
    /// What a tenant may see: its own names, others as amounts.
    ///
    /// # Errors
    /// When a name cannot be taken out.
    pub fn seen_by(self, viewer: &TenantId) -> Result<Self, SeenError> {
        seen_by(self, Some(viewer))
    }
}

/// Looks for the first place.
pub struct Bisect {
    predicate: Predicate,
    model: ReadModel,
    folds: Option<Box<(AdmissionState, ClusterState)>>,
    last: String,
    read: u64,
    found: Option<Found>,
}

impl Bisect {
    /// Looks for the first place at which this is so.
    #[must_use]
    pub fn new(predicate: Predicate) -> Self {
        let folds = (predicate == Predicate::Broken).then(Box::default);
        Self {
            predicate,
            model: ReadModel::default(),
            folds,
            last: "the beginning of the log".to_owned(),
            read: 0,
            found: None,
        }
    }

    /// The next event of the log; whether the place is found.
    pub fn read(&mut self, recorded: &Recorded) -> bool {
        if self.found.is_some() {
            return true;
        }
        self.read += 1;
        self.model.evolve(recorded);
        let (holds, shown) = self.look(recorded);
        if holds {
            self.found = Some(Found {
                sequence: recorded.sequence,
                at: recorded.stored_at,
                event: recorded.event().map_or("", Event::subject_name).to_owned(),
                subject: recorded.envelope.subject.to_string(),
                before: std::mem::take(&mut self.last),
                after: shown,
                exact: true,
                folds: self.read,
            });
            return true;
        }
        self.last = shown;
        false
    }

    /// What was found, and how many events were read.
    #[must_use]
    pub fn finish(self) -> (Option<Found>, u64) {
        (self.found, self.read)
    }

    /// Whether it is so, and how it is.
    fn look(&mut self, recorded: &Recorded) -> (bool, String) {
        match &self.predicate {
            Predicate::Job(id, phase) => match self.model.jobs.get(id) {
                Some(job) => (job.phase == *phase, job.phase.as_str().to_owned()),
                None => (false, "not there".to_owned()),
            },
            Predicate::Containers(id, count) => match self.model.jobs.get(id) {
                Some(job) => (job.now == *count, job.now.to_string()),
                None => (false, "not there".to_owned()),
            },
            Predicate::Metric(metric, side, bound) => {
                let Some(value) = metric.value(&self.model) else {
                    return (false, "not known yet".to_owned());
                };
                let holds = match side {
                    Side::Above => value > *bound,
                    Side::Below => value < *bound,
                };
                (holds, value.to_string())
            }
            Predicate::Broken => {
                let Some(folds) = &mut self.folds else {
                    return (false, String::new());
                };
                folds.0.evolve(recorded);
                folds.1.evolve(recorded);
                let checked = folds.0.check_invariants();
                let checked = checked.and_then(|()| folds.1.check_invariants());
                match checked.and_then(|()| self.model.check_invariants()) {
                    Ok(()) => (false, "every invariant holds".to_owned()),
                    Err(what) => (true, what),
                }
            }
        }
    }
}

impl Metric {
    fn value(self, model: &ReadModel) -> Option<f64> {
        let counts = |wanted: &[Phase]| {
            let jobs = model
                .jobs
                .live()
                .filter(|(_, job)| wanted.contains(&job.phase));
            f64::from(u32::try_from(jobs.count()).unwrap_or(u32::MAX))
        };
        let allocation = model.cluster.allocation.as_ref();
        match self {
            Self::Utilization => allocation.map(|it| it.utilization.total),
            Self::FairnessLoss => allocation.map(|it| it.fairness_loss),
            Self::Waiting => Some(counts(&[Phase::Queued, Phase::Waiting])),
            Self::Running => Some(counts(&[Phase::Running])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predicates_are_read() {
        let read = |text: &str| text.parse::<Predicate>();
        let job: JobId = "ads/lr".parse().expect("a job");
        assert_eq!(
            read("ads/lr=running"),
            Ok(Predicate::Job(job.clone(), Phase::Running))
        );
        assert_eq!(
            read("ads/lr.containers=4"),
            Ok(Predicate::Containers(job, 4))
        );
        assert_eq!(
            read("utilization>0.9"),
            Ok(Predicate::Metric(Metric::Utilization, Side::Above, 0.9))
        );
        assert_eq!(read("broken"), Ok(Predicate::Broken));
        for wrong in ["ads/lr=flying", "speed>1", "ads/lr", "waiting>many"] {
            let error = read(wrong).expect_err("wrong").to_string();
            assert!(error.contains("write ads/lr=running"), "{error}");
        }
    }
}
