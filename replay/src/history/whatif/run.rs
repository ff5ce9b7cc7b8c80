//! Runs a fork over a virtual clock until every job with a knowable end has ended.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::{Epoch, Event, Fact, JobId, KeptFact, Sequence, Timestamp};

use super::fork::Forked;
use super::script::script;
use super::work_estimate::Course;
use crate::engine::{Engine, EngineError};
use crate::history::changes::{ChangeError, Changes};
use crate::simulate::Outcome;

/// The most time after the end of the log, in lengths of the log.
const LENGTHS: u64 = 3;

const LEAST_MS: u64 = 3_600_000;

/// An error instead of an answer.
#[derive(Debug, thiserror::Error)]
pub enum WhatifError {
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error("on the fork: {0}")]
    Engine(#[from] EngineError),
    #[error("nothing follows event {0}: choose an earlier --at")]
    NothingFollows(Sequence),
}

/// An allocation on a course.
#[derive(Debug, Clone, PartialEq)]
pub struct Allocated {
    pub sequence: Sequence,
    pub at: Timestamp,
    pub jobs: BTreeMap<JobId, u32>,
}

/// The result of a run, or of the log itself.
#[derive(Debug, Clone)]
pub struct Ran {
    /// Times are seconds from the log's beginning.
    pub outcome: Outcome,
    pub decisions: BTreeMap<Epoch, Allocated>,
    pub adjusted: BTreeMap<JobId, u32>,
    pub started: BTreeMap<JobId, Timestamp>,
    pub refused: BTreeSet<JobId>,
}

/// Time after a removed job's end in which its containers are given away.
pub(crate) const GIVEN_MS: u64 = 1_000;

pub(crate) fn ended(event: &Event) -> Option<&JobId> {
    match event {
        Event::JobCompleted(event) => Some(&event.job),
        Event::JobFailed(event) => Some(&event.job),
        Event::JobCancelled(event) => Some(&event.job),
        _ => None,
    }
}

#[derive(Debug, Default)]
struct Notes {
    decisions: BTreeMap<Epoch, Allocated>,
    adjusted: BTreeMap<JobId, u32>,
    started: BTreeMap<JobId, Timestamp>,
    refused: BTreeSet<JobId>,
}

impl Notes {
    fn read(&mut self, fact: &Fact<'_>) {
        match fact.event() {
            Some(Event::AllocationDecided(event)) => {
                let jobs = event.jobs.iter();
                for job in jobs.clone().filter(|it| !it.new && it.previous > 0) {
                    if job.containers != job.previous {
                        *self.adjusted.entry(job.job.clone()).or_default() += 1;
                    }
                }
                let allocated = Allocated {
                    sequence: fact.sequence,
                    at: fact.at,
                    jobs: jobs.map(|it| (it.job.clone(), it.containers)).collect(),
                };
                self.decisions.insert(event.epoch, allocated);
            }
            Some(Event::PartitionStarted(event)) => {
                self.started.entry(event.job.clone()).or_insert(fact.at);
            }
            Some(Event::JobRefused(event)) => self.refused.extend(event.job.clone()),
            _ => {}
        }
    }

    fn ran(self, outcome: Outcome) -> Ran {
        Ran {
            outcome,
            decisions: self.decisions,
            adjusted: self.adjusted,
            started: self.started,
            refused: self.refused,
        }
    }
}

/// Returns the log's own result after the fork.
#[must_use]
pub fn recorded(forked: &Forked<'_>) -> Ran {
    let mut measures = forked.measures.clone();
    let mut notes = Notes::default();
    for kept in forked.after {
        measures.read(&kept.fact());
        notes.read(&kept.fact());
    }
    notes.ran(measures.outcome())
}

/// Runs a fork under changes; `each` sees every event and returns true to stop.
///
/// # Errors
/// A change does not fit, or the services break a rule.
pub fn run(
    forked: &Forked<'_>,
    course: &Course<'_>,
    changes: &Changes,
    mut each: impl FnMut(&KeptFact) -> bool,
) -> Result<Ran, WhatifError> {
    let script = script(forked, changes)?;
    let mut engine = Engine::resume(forked.ground(course));
    for id in forked.live() {
        if forked.cluster().job(id).is_none() {
            engine.model(id.clone(), course.model(id));
        }
    }
    let mut open: BTreeSet<JobId> = forked
        .live()
        .into_iter()
        .filter(|id| !changes.drop_jobs.contains(*id))
        .filter(|id| course.model(id).work_container_s.is_finite())
        .cloned()
        .collect();
    for (id, model) in script.models {
        open.insert(id.clone());
        engine.model(id, model);
    }
    let last = script.actions.iter().map(|(at, _)| *at).max();
    let mut last = last.unwrap_or(forked.now);
    let mut leaving: BTreeSet<&JobId> = forked.live();
    leaving.retain(|id| changes.drop_jobs.contains(*id) && forked.cluster().job(id).is_some());
    for (at, action) in script.actions {
        engine.at(at, action);
    }
    let (start, end) = forked.span;
    let more_ms = end.ms_since(start).saturating_mul(LENGTHS).max(LEAST_MS);
    let horizon = end.max(last).plus_ms(more_ms);
    let mut measures = forked.measures.clone();
    let mut notes = Notes::default();
    let mut clock = forked.cluster().clock.forked();
    let mut enough = false;
    while !enough && engine.next_due().is_some_and(|next| next <= horizon) {
        engine.step()?;
        for recorded in engine.take_events() {
            let kept = clock.keep(&recorded);
            let fact = kept.fact();
            measures.read(&fact);
            notes.read(&fact);
            enough |= each(&kept);
            let over = match fact.event() {
                Some(Event::JobRefused(event)) => event.job.as_ref(),
                Some(event) => ended(event),
                None => None,
            };
            let Some(over) = over else {
                continue;
            };
            open.remove(over);
            if leaving.remove(over) {
                last = last.max(fact.at.plus_ms(GIVEN_MS));
            }
        }
        if open.is_empty() && leaving.is_empty() && engine.now() >= last {
            break;
        }
    }
    Ok(notes.ran(measures.outcome()))
}
