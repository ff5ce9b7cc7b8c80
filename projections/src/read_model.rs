//! The read model: every projection, folded together.

use dormouse_messages::{Fold, Recorded};
use serde::{Deserialize, Serialize};

use crate::cluster::Overview;
use crate::fairness::Fairness;
use crate::jobs::{JobTable, PhaseCounts};
use crate::nodes::NodeTable;
use crate::timelines::Timelines;
use dormouse_state::Queues;

/// Everything that the queries answer from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadModel {
    /// The cluster at a glance.
    pub cluster: Overview,
    /// The jobs.
    pub jobs: JobTable,
    /// The nodes.
    pub nodes: NodeTable,
    /// What was when.
    pub timelines: Timelines,
    /// The tenants' queues.
    pub queues: Queues,
    /// What was when, a tenant at a time.
    pub fairness: Fairness,
    counted: PhaseCounts,
}

impl Fold for ReadModel {
    const NAME: &'static str = "read-model";
    const VERSION: u32 = 5;

    /// Folds an event everywhere; one that must not count is only flagged.
    fn evolve(&mut self, recorded: &Recorded) {
        self.cluster.evolve(recorded);
        if !Overview::accepts(recorded) {
            return;
        }
        self.jobs.evolve(recorded);
        self.nodes.evolve(recorded);
        self.timelines.evolve(recorded);
        self.queues.evolve(recorded);
        self.fairness.evolve(recorded, &self.queues);
        if self.counted != *self.jobs.counts() {
            self.counted = *self.jobs.counts();
            self.timelines.count(recorded.stored_at, &self.counted);
        }
    }

    fn check_invariants(&self) -> Result<(), String> {
        self.jobs.check_invariants()?;
        self.queues.check_invariants()?;
        self.nodes.check_invariants()
    }
}

impl ReadModel {
    /// Counts a message of the log that is no event.
    pub fn flag(&mut self, sequence: dormouse_messages::Sequence, why: String) {
        self.cluster.flagged += 1;
        self.cluster.last_flagged = Some((sequence, why));
    }
}
