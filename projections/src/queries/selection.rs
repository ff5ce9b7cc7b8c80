//! The jobs that a query selects by phase, and their order.

use std::cmp::Ordering;

use dormouse_messages::{JobId, Timestamp};
use serde::{Deserialize, Serialize};

use super::error::QueryError;
use crate::jobs::{Job, Phase};

/// The order of jobs; ties by id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SortBy {
    #[default]
    Admitted,
    Job,
    /// The order of phases.
    Phase,
    Containers,
    Share,
    /// Fair share minus share.
    Lacks,
    Waiting,
    Age,
    Resizes,
    /// Jobs with containers, then waiting, then ended.
    State,
}

pub(super) struct Phases {
    phases: Vec<Phase>,
    pub refused: bool,
}

impl Phases {
    pub(super) fn has(&self, phase: Phase) -> bool {
        self.phases.contains(&phase)
    }

    pub(super) fn read(filter: Option<&str>) -> Result<Self, QueryError> {
        let mut read = Self {
            phases: Vec::new(),
            refused: false,
        };
        let Some(filter) = filter else {
            read.phases.extend(Phase::ALL);
            return Ok(read);
        };
        for name in filter
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
        {
            match name {
                "refused" => read.refused = true,
                "live" => read
                    .phases
                    .extend(Phase::ALL.iter().filter(|p| !p.is_over())),
                name => read.phases.push(name.parse().map_err(|error| {
                    QueryError::bad_request(format!("{error}, and live, refused"))
                })?),
            }
        }
        Ok(read)
    }
}

pub(super) fn compare(
    by: SortBy,
    a: (&JobId, &Job),
    b: (&JobId, &Job),
    now: Timestamp,
) -> Ordering {
    let of = |figure: fn(&Job, Timestamp) -> f64| figure(a.1, now).total_cmp(&figure(b.1, now));
    match by {
        SortBy::Admitted => a.1.admitted_sequence.cmp(&b.1.admitted_sequence),
        SortBy::Job => a.0.cmp(b.0),
        SortBy::Phase => a.1.phase.cmp(&b.1.phase),
        SortBy::Containers => a.1.target.cmp(&b.1.target),
        SortBy::Share => of(|job, _| job.share),
        SortBy::Lacks => of(|job, _| job.fair_share - job.share),
        SortBy::Waiting => of(|job, now| job.waiting_s(now)),
        SortBy::Age => of(|job, now| now.seconds_since(job.times.submitted)),
        SortBy::Resizes => a.1.resizes.cmp(&b.1.resizes),
        SortBy::State => by_state(a.1, b.1),
    }
}

/// Jobs with containers, newest first; waiting jobs by admission; ended jobs, last first.
fn by_state(a: &Job, b: &Job) -> Ordering {
    let group = |job: &Job| match job.phase {
        Phase::Placed
        | Phase::Starting
        | Phase::Running
        | Phase::Checkpointing
        | Phase::Stopping => 0,
        Phase::Queued | Phase::Waiting => 1,
        Phase::Completed | Phase::Failed | Phase::Cancelled => 2,
    };
    let within = |a: &Job, b: &Job| match group(a) {
        0 => b.admitted_sequence.cmp(&a.admitted_sequence),
        1 => a.admitted_sequence.cmp(&b.admitted_sequence),
        _ => b.times.ended.cmp(&a.times.ended),
    };
    group(a).cmp(&group(b)).then_with(|| within(a, b))
}
