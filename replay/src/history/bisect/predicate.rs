//! Predicates of a search and their syntax.

use std::str::FromStr;

use dormouse_messages::JobId;
use dormouse_projections::ReadModel;
use dormouse_projections::jobs::Phase;

/// A condition to search for.
#[derive(Debug, Clone, PartialEq)]
pub enum Predicate {
    Seen(JobId),
    Job(JobId, Phase),
    /// The job's number of containers has changed to this one.
    Containers(JobId, u32),
    Metric(Metric, Side, f64),
    Broken,
}

/// A figure of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Σ of the used fractions of the resources, by the newest allocation.
    Utilization,
    /// Σ |s − ŝ| of the jobs with containers.
    FairnessLoss,
    /// Waiting and queued jobs.
    Waiting,
    Running,
}

/// A side of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Above,
    Below,
}

/// An unreadable predicate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is nothing that is looked for; write ads/lr=running, ads/lr=seen, ads/lr.containers=4, utilization>0.9, fairness-loss<0.1, waiting>10, running<1 or broken"
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
        if right == "seen" {
            return Ok(Self::Seen(left.parse().map_err(|_| wrong())?));
        }
        let phase = right.parse().map_err(|_| wrong())?;
        Ok(Self::Job(left.parse().map_err(|_| wrong())?, phase))
    }
}

impl Predicate {
    /// Returns the job of the predicate.
    #[must_use]
    pub const fn job(&self) -> Option<&JobId> {
        match self {
            Self::Seen(job) | Self::Job(job, _) | Self::Containers(job, _) => Some(job),
            Self::Metric(..) | Self::Broken => None,
        }
    }

    /// True if the predicate, once it holds, holds until another job takes the name.
    #[must_use]
    pub const fn stays(&self) -> bool {
        match self {
            Self::Seen(_) => true,
            Self::Job(_, phase) => phase.is_over(),
            Self::Containers(..) | Self::Metric(..) | Self::Broken => false,
        }
    }
}

impl Metric {
    pub(super) fn value(self, model: &ReadModel) -> Option<f64> {
        let counts = |wanted: &[Phase]| {
            let each = wanted.iter().map(|phase| model.jobs.counts().get(*phase));
            f64::from(u32::try_from(each.sum::<u64>()).unwrap_or(u32::MAX))
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
        let seen = Predicate::Seen("ads/lr".parse().expect("a job"));
        assert!(seen.stays());
        assert_eq!(read("ads/lr=seen"), Ok(seen));
        for (text, stays) in [("ads/lr=completed", true), ("ads/lr=running", false)] {
            assert_eq!(read(text).map(|it| it.stays()), Ok(stays), "{text}");
        }
        for wrong in ["ads/lr=flying", "speed>1", "ads/lr", "waiting>many"] {
            let error = read(wrong).expect_err("wrong").to_string();
            assert!(error.contains("write ads/lr=running"), "{error}");
        }
    }
}
