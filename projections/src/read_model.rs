//! The read model: every projection, folded together.

use dormouse_messages::{Amounts, Event, Fold, JobId, Recorded, Timestamp};
use serde::{Deserialize, Serialize};

use crate::cluster::Overview;
use crate::fairness::Fairness;
use crate::jobs::{JobTable, PhaseCounts};
use crate::keys::Keys;
use crate::nodes::NodeTable;
use crate::notebooks::Notebooks;
use crate::services::Services;
use crate::timelines::Timelines;
use dormouse_state::{Queues, Total};

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
    /// The notebooks.
    pub notebooks: Notebooks,
    /// The services.
    #[serde(default)]
    pub services: Services,
    /// Who has keys.
    #[serde(default)]
    pub keys: Keys,
    counted: PhaseCounts,
    /// What the partitions that run take together.
    running: Total,
    /// What the nodes that are not lost offer.
    capacity: Amounts,
}

impl Fold for ReadModel {
    const NAME: &'static str = "read-model";
    const VERSION: u32 = 24;

    /// Folds an event everywhere; one that must not count is only flagged. The queues are the deciders'
    /// own fold: they see what a decider sees, and their clock gives every other projection its time.
    fn evolve(&mut self, recorded: &Recorded) {
        let fact = &self.queues.clock.peek(recorded);
        let event = self.cluster.evolve(fact, &self.queues.witness);
        self.queues.evolve(recorded);
        let Some(event) = event else {
            return;
        };
        let job = starts_or_stops(event);
        if let Some(job) = job.and_then(|job| self.jobs.get(job)) {
            let beside = &job.beside;
            self.running
                .subtract_job(beside, &job.demand, u64::from(job.now));
        }
        self.jobs.evolve(fact);
        if let Some(job) = job.and_then(|job| self.jobs.get(job)) {
            let beside = &job.beside;
            self.running
                .add_job(beside, &job.demand, u64::from(job.now));
        }
        self.nodes.evolve(fact);
        self.notebooks.evolve(fact);
        self.services.evolve(fact);
        self.keys.evolve(fact);
        self.timelines.evolve(fact);
        let resized = changes_nodes(event);
        if resized {
            self.capacity = self.nodes.capacity().0;
        }
        if resized || job.is_some() {
            let running = that_runs(self.running.amounts(), &self.capacity, &self.nodes);
            self.timelines.run(fact.at, &running, &self.capacity);
        }
        self.fairness.evolve(fact, &self.queues);
        if self.counted != *self.jobs.counts() {
            self.counted = *self.jobs.counts();
            self.timelines.count(fact.at, &self.counted);
        }
    }

    fn check_invariants(&self) -> Result<(), String> {
        let mut running = Total::default();
        for (_, job) in self.jobs.live() {
            running.add_job(&job.beside, &job.demand, u64::from(job.now));
        }
        if running != self.running {
            return Err(format!(
                "partitions that run take {}, but {} is counted",
                running.amounts(),
                self.running.amounts()
            ));
        }
        self.jobs.check_invariants()?;
        self.queues.check_invariants()?;
        self.services.check_invariants()?;
        self.nodes.check_invariants()
    }
}

/// What runs. A partition that gives containers to another counts whole until its last container has
/// ended: where partitions together would take more than the nodes offer, what their containers take
/// counts.
fn that_runs(running: Amounts, capacity: &Amounts, nodes: &NodeTable) -> Amounts {
    let mut capacity = capacity.iter();
    match capacity.any(|(resource, most)| running.get(resource) > most) {
        true => nodes.used(),
        false => running,
    }
}

/// The job whose containers the event starts or stops.
const fn starts_or_stops(event: &Event) -> Option<&JobId> {
    match event {
        Event::PartitionStarted(e) => Some(&e.job),
        Event::PartitionResized(e) => Some(&e.job),
        Event::PartitionStopped(e) => Some(&e.job),
        Event::JobAdmitted(e) => Some(&e.job),
        Event::JobCompleted(e) => Some(&e.job),
        Event::JobFailed(e) => Some(&e.job),
        Event::JobCancelled(e) => Some(&e.job),
        _ => None,
    }
}

const fn changes_nodes(event: &Event) -> bool {
    matches!(
        event,
        Event::NodeJoined(_)
            | Event::NodeLost(_)
            | Event::NodeFenced(_)
            | Event::NodeRecovered(_)
            | Event::NodeRemoved(_)
    )
}

impl ReadModel {
    /// The same without what was before: jobs, nodes, queues and every figure are as they are, and
    /// the timelines begin anew. Cheap enough to be kept for many places of a log: jobs are shared.
    #[must_use]
    pub fn moment(&self) -> Self {
        Self {
            cluster: self.cluster.clone(),
            jobs: self.jobs.clone(),
            nodes: self.nodes.clone(),
            notebooks: self.notebooks.clone(),
            services: self.services.tails(),
            keys: self.keys.clone(),
            timelines: self.timelines.tails(),
            queues: self.queues.clone(),
            fairness: self.fairness.tails(),
            counted: self.counted,
            running: self.running.clone(),
            capacity: self.capacity.clone(),
        }
    }

    /// The time of the log when a clock on the wall shows this.
    #[must_use]
    pub fn time_at(&self, wall: Timestamp) -> Timestamp {
        self.queues.clock.time_at(wall)
    }

    /// What the nodes that are not lost offer.
    #[must_use]
    pub const fn capacity(&self) -> &Amounts {
        &self.capacity
    }

    /// Counts a message of the log that is no event.
    pub fn flag(&mut self, sequence: dormouse_messages::Sequence, why: String) {
        self.cluster.flag(sequence, why);
    }
}
