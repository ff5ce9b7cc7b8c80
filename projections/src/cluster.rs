//! The cluster at a glance: the policy in force, the head of the log, the last decision, and
//! what was flagged.

use std::collections::BTreeMap;

use dormouse_messages::events::{Outcome, Solver, Utilization};
use dormouse_messages::policy::Policy;
use dormouse_messages::{Body, Epoch, Event, Fold, Recorded, Sequence, Timestamp, Witness};
use serde::{Deserialize, Serialize};

/// The last allocation, decided or kept, in figures.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LastAllocation {
    /// The event.
    pub sequence: Sequence,
    /// When it was stored.
    pub at: Timestamp,
    /// Why nothing changed, where it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// Fractions of the cluster in use.
    pub utilization: Utilization,
    /// Σ |s − ŝ| over the jobs with containers.
    pub fairness_loss: f64,
    /// The same sum with the waiting jobs.
    pub fairness_loss_all: f64,
    /// The bound of the loss.
    pub fairness_loss_bound: f64,
    /// Running jobs adjusted.
    pub adjusted_jobs: u32,
    /// The bound of them.
    pub adjustment_bound: u32,
    /// Besides, those forced by a lost node or revised bounds.
    pub forced_jobs: u32,
    /// How it was found.
    pub solver: Solver,
}

/// The cluster at a glance.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Overview {
    /// The policy in force.
    pub policy: Policy,
    /// The event that set it; 0 while the default holds.
    pub policy_sequence: Sequence,
    /// The last sequence folded.
    pub head: Sequence,
    /// The first sequence folded.
    pub first: Sequence,
    /// The broker's time of the first event.
    pub begun: Timestamp,
    /// The broker's time of the last event.
    pub now: Timestamp,
    /// Events folded.
    pub events: u64,
    /// Events that were not used: of a type or version that this build does not know, or from
    /// the wrong writer.
    pub flagged: u64,
    /// The last of them.
    pub last_flagged: Option<(Sequence, String)>,
    /// The last epoch.
    pub epoch: Epoch,
    /// Allocations decided.
    pub decided: u64,
    /// Allocations kept.
    pub kept: u64,
    /// Placements refused.
    pub placements_refused: u64,
    /// The last allocation.
    pub allocation: Option<Box<LastAllocation>>,
    /// Which node may say what of a job.
    witness: Witness,
    /// Events by type.
    by_type: Vec<u64>,
}

impl Overview {
    /// Whether this event may count: its type is known, its writer may write it, and it is not a
    /// fact of a node where no placement put it.
    #[must_use]
    pub fn accepts(&self, recorded: &Recorded) -> bool {
        recorded.event().is_some_and(|event| {
            event.writers().contains(&recorded.writer) && self.witness.doubts(event).is_none()
        })
    }

    /// Events by type, those that occurred.
    #[must_use]
    pub fn by_type(&self) -> BTreeMap<&'static str, u64> {
        let counted = Event::TYPES.iter().zip(&self.by_type);
        counted
            .filter(|(_, count)| **count > 0)
            .map(|(name, count)| (*name, *count))
            .collect()
    }

    fn flag(&mut self, recorded: &Recorded) {
        self.flagged += 1;
        let what = match &recorded.envelope.body {
            Body::Event(event) => self
                .witness
                .doubts(event)
                .unwrap_or_else(|| format!("{} written by {}", event.type_name(), recorded.writer)),
            Body::Unknown { type_name } => format!("{type_name} is not known to this build"),
        };
        self.last_flagged = Some((recorded.sequence, what));
    }

    fn decided(&mut self, outcome: &Outcome, kept: Option<&str>, recorded: &Recorded) {
        let last = self.allocation.get_or_insert_default();
        last.sequence = recorded.sequence;
        last.at = recorded.stored_at;
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

/// Copies without memory of its own where the resources are the same, as they nearly always are.
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

/// Copies into the texts that are there.
fn copy_solver(to: &mut Solver, from: &Solver) {
    let Solver {
        name,
        version,
        status,
        objective,
        bound,
        gap,
        nodes,
        stopped_by,
        stage,
    } = from;
    to.name.clone_from(name);
    to.version.clone_from(version);
    to.status.clone_from(status);
    to.stage.clone_from(stage);
    (to.objective, to.bound, to.gap, to.nodes) = (*objective, *bound, *gap, *nodes);
    to.stopped_by = *stopped_by;
}

impl Fold for Overview {
    const NAME: &'static str = "overview";
    const VERSION: u32 = 1;

    fn evolve(&mut self, recorded: &Recorded) {
        if self.events == 0 {
            self.first = recorded.sequence;
            self.begun = recorded.stored_at;
        }
        self.head = recorded.sequence;
        self.now = recorded.stored_at;
        self.events += 1;
        let event = match recorded.event() {
            Some(event) if self.accepts(recorded) => event,
            _ => return self.flag(recorded),
        };
        self.witness.evolve(event);
        let index = event.event_type() as usize;
        if self.by_type.len() <= index {
            self.by_type.resize(Event::TYPES.len(), 0);
        }
        self.by_type[index] += 1;
        match event {
            Event::ClusterConfigured(e) => {
                self.policy.clone_from(&e.policy);
                self.policy_sequence = recorded.sequence;
            }
            Event::AllocationDecided(e) => {
                self.decided += 1;
                self.epoch = e.epoch;
                self.decided(&e.outcome, None, recorded);
            }
            Event::AllocationKept(e) => {
                self.kept += 1;
                self.decided(&e.outcome, Some(&e.reason), recorded);
            }
            Event::PlacementRefused(_) => self.placements_refused += 1,
            _ => {}
        }
    }
}
