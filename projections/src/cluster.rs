//! The cluster at a glance.

use std::collections::BTreeMap;

use dormouse_messages::events::{LogArchived, LogFilled, Outcome, Solver, Utilization};
use dormouse_messages::policy::Policy;
use dormouse_messages::{Body, Epoch, Event, Fact, PlacementAuthority, Sequence, Timestamp};
use serde::{Deserialize, Serialize};

/// The figures of the last allocation, decided or kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LastAllocation {
    pub sequence: Sequence,
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    pub utilization: Utilization,
    /// Σ |s − ŝ| over the jobs with containers.
    pub fairness_loss: f64,
    pub fairness_loss_all: f64,
    pub fairness_loss_bound: f64,
    pub adjusted_jobs: u32,
    pub adjustment_bound: u32,
    /// Forced by a lost node or revised bounds.
    pub forced_jobs: u32,
    pub solver: Solver,
}

/// The cluster at a glance.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Overview {
    pub policy: Policy,
    /// 0 for the default policy.
    pub policy_sequence: Sequence,
    pub head: Sequence,
    pub first: Sequence,
    pub begun: Timestamp,
    pub now: Timestamp,
    pub events: u64,
    /// Unknown, unauthorised or rejected events.
    pub flagged: u64,
    pub last_flagged: Option<(Sequence, String)>,
    pub epoch: Epoch,
    pub decided: u64,
    pub kept: u64,
    pub placements_refused: u64,
    pub allocation: Option<Box<LastAllocation>>,
    /// The newest segment.
    pub archived: Option<Box<LogArchived>>,
    pub filled: Option<LogFilled>,
    by_type: Vec<u64>,
}

impl Overview {
    /// Returns the count of each type that occurred.
    #[must_use]
    pub fn by_type(&self) -> BTreeMap<&'static str, u64> {
        let counted = Event::TYPES.iter().zip(&self.by_type);
        counted
            .filter(|(_, count)| **count > 0)
            .map(|(name, count)| (*name, *count))
            .collect()
    }

    fn decided(&mut self, outcome: &Outcome, kept: Option<&str>, fact: &Fact<'_>) {
        let last = self.allocation.get_or_insert_default();
        last.sequence = fact.sequence;
        last.at = fact.at;
        last.kept = kept.map(str::to_owned);
        copy_utilization(&mut last.utilization, &outcome.utilization);
        last.fairness_loss = outcome.fairness_loss;
        last.fairness_loss_all = outcome.fairness_loss_all;
        last.fairness_loss_bound = outcome.fairness_loss_bound;
        last.adjusted_jobs = outcome.adjusted_jobs;
        last.adjustment_bound = outcome.adjustment_bound;
        last.forced_jobs = outcome.forced_jobs;
        copy_solver(&mut last.solver, &outcome.solver);
    }
}

/// Reuses the allocation.
fn copy_utilization(to: &mut Utilization, from: &Utilization) {
    to.total = from.total;
    if to.resources.keys().eq(from.resources.keys()) {
        for (to, from) in to.resources.values_mut().zip(from.resources.values()) {
            *to = *from;
        }
    } else {
        to.resources.clone_from(&from.resources);
    }
}

fn copy_solver(to: &mut Solver, from: &Solver) {
    let Solver {
        name,
        version,
        status,
        objective,
        bound,
        gap,
        work,
        stopped_by,
        stage,
    } = from;
    to.name.clone_from(name);
    to.version.clone_from(version);
    to.status.clone_from(status);
    to.stage.clone_from(stage);
    (to.objective, to.bound, to.gap, to.work) = (*objective, *bound, *gap, *work);
    to.stopped_by = *stopped_by;
}

impl Overview {
    /// Folds one event and returns it, if its type is known, its writer permitted and its report valid.
    pub fn evolve<'a>(
        &mut self,
        fact: &Fact<'a>,
        authority: &PlacementAuthority,
    ) -> Option<&'a Event> {
        if self.events == 0 {
            self.first = fact.sequence;
            self.begun = fact.at;
        }
        self.head = fact.sequence;
        self.now = fact.at;
        self.events += 1;
        let event = match accepted(fact, authority) {
            Ok(event) => event,
            Err(why) => {
                self.flag(fact.sequence, why);
                return None;
            }
        };
        let index = event.event_type() as usize;
        if self.by_type.len() <= index {
            self.by_type.resize(Event::TYPES.len(), 0);
        }
        self.by_type[index] += 1;
        match event {
            Event::ClusterConfigured(e) => {
                self.policy.clone_from(&e.policy);
                self.policy_sequence = fact.sequence;
            }
            Event::AllocationDecided(e) => {
                self.decided += 1;
                self.epoch = e.epoch;
                self.decided(&e.outcome, None, fact);
            }
            Event::AllocationUnchanged(e) => {
                self.kept += 1;
                self.decided(&e.outcome, Some(&e.reason), fact);
            }
            Event::PlacementRefused(_) => self.placements_refused += 1,
            Event::LogArchived(e) => self.archived = Some(e.clone()),
            Event::LogFilled(e) => self.filled = Some((**e).clone()),
            _ => {}
        }
        Some(event)
    }

    /// Counts an unused event.
    pub fn flag(&mut self, sequence: Sequence, why: String) {
        self.flagged += 1;
        self.last_flagged = Some((sequence, why));
    }
}

fn accepted<'a>(fact: &Fact<'a>, authority: &PlacementAuthority) -> Result<&'a Event, String> {
    match &fact.envelope().body {
        Body::Unknown { type_name } => Err(format!("{type_name} is not known to this build")),
        Body::Event(event) if !event.writers().contains(&fact.writer()) => Err(format!(
            "{} written by {}",
            event.type_name(),
            fact.writer()
        )),
        Body::Event(event) => authority.rejects(event).map_or(Ok(event), Err),
    }
}
