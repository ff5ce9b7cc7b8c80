//! The read model: every projection, folded together.

use dormouse_messages::{Amounts, Event, Fold, JobId, NodeId, Recorded, Timestamp};
use serde::{Deserialize, Serialize};

use crate::cluster::Overview;
use crate::fairness::Fairness;
use crate::forecasts::Forecasts;
use crate::jobs::{JobTable, PhaseCounts, Request};
use crate::keys::Keys;
use crate::nodes::{self, Load, Node, NodeTable};
use crate::notebooks::Notebooks;
use crate::services::Services;
use crate::timelines::Timelines;
use dormouse_state::{ClusterState, Queues, Total};

/// The state behind all queries.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadModel {
    pub cluster: Overview,
    pub jobs: JobTable,
    pub nodes: NodeTable,
    pub timelines: Timelines,
    pub queues: Queues,
    pub fairness: Fairness,
    pub notebooks: Notebooks,
    pub services: Services,
    pub keys: Keys,
    pub forecasts: Forecasts,
    counted: PhaseCounts,
    running: Total,
    /// On nodes not lost.
    capacity: Amounts,
}

impl Fold for ReadModel {
    const NAME: &'static str = "read-model";
    const VERSION: u32 = 32;

    /// Folds one event everywhere, or flags an invalid one. The queues' clock sets the time of all
    /// projections.
    fn evolve(&mut self, recorded: &Recorded) {
        let fact = &self.queues.cluster.clock.peek(recorded);
        let event = self.cluster.evolve(fact, &self.queues.cluster.authority);
        let Some(event) = event else {
            self.queues.fold(recorded);
            return;
        };
        let job = starts_or_stops(event);
        let before = job.and_then(|job| self.state().job(job)).cloned();
        let running = |model: &Self| {
            let now = model.jobs.get(job?)?.now;
            Some(Request::of(before.as_ref()?).amounts(now))
        };
        if let Some(stops) = running(self) {
            self.running.subtract(&stops);
        }
        self.queues.fold(recorded);
        self.jobs
            .evolve(fact, &self.queues.cluster, before.as_ref());
        if let Some(runs) = running(self) {
            self.running.add(&runs);
        }
        self.nodes.evolve(fact, &self.queues.cluster);
        self.notebooks.evolve(fact, &self.queues.cluster);
        self.services.evolve(fact, &self.queues.cluster);
        self.keys.evolve(fact);
        self.forecasts.evolve(fact, &self.queues.cluster);
        self.timelines.evolve(fact);
        let resized = changes_nodes(event);
        if resized {
            self.capacity = nodes::capacity(self.state());
        }
        if resized || job.is_some() {
            let running = that_runs(self.running.amounts(), &self.capacity, self.state());
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
        for (id, job) in self.jobs.live() {
            if let Some(request) = job.request(id, self.state()) {
                running.add(&request.amounts(job.now));
            }
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
        self.services.check_invariants()
    }
}

/// A shrinking partition counts whole until its end: if the sum exceeds the capacity, the containers' own
/// amounts count.
fn that_runs(running: Amounts, capacity: &Amounts, state: &ClusterState) -> Amounts {
    let mut capacity = capacity.iter();
    if capacity.any(|(resource, most)| running.get(resource) > most) {
        nodes::used(state)
    } else {
        running
    }
}

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
    /// Returns this state with empty timelines. Jobs are shared, which makes copies cheap.
    #[must_use]
    pub fn moment(&self) -> Self {
        Self {
            cluster: self.cluster.clone(),
            jobs: self.jobs.clone(),
            nodes: self.nodes.clone(),
            notebooks: self.notebooks.clone(),
            services: self.services.tails(),
            keys: self.keys.clone(),
            forecasts: self.forecasts.tails(),
            timelines: self.timelines.tails(),
            queues: self.queues.clone(),
            fairness: self.fairness.tails(),
            counted: self.counted,
            running: self.running.clone(),
            capacity: self.capacity.clone(),
        }
    }

    /// Returns the present state of nodes and live jobs.
    #[must_use]
    pub const fn state(&self) -> &ClusterState {
        &self.queues.cluster
    }

    /// Returns a node.
    #[must_use]
    pub fn node<'a>(&'a self, name: &'a NodeId) -> Option<Node<'a>> {
        let mut load = Load::default();
        let here = nodes::containers(self.state()).filter(|it| it.node == name);
        here.for_each(|container| load.add(&container));
        Some(Node {
            present: self.state().nodes.get(name)?,
            past: self.nodes.get(name)?,
            load,
        })
    }

    /// Returns the nodes by name.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeId, Node<'_>)> {
        let mut loads = nodes::loads(self.state());
        self.state()
            .nodes
            .iter()
            .filter_map(move |(name, present)| {
                let node = Node {
                    present,
                    past: self.nodes.get(name)?,
                    load: loads.remove(name).unwrap_or_default(),
                };
                Some((name, node))
            })
    }

    /// Returns the log's time when a host's clock shows `wall`.
    #[must_use]
    pub fn time_at(&self, wall: Timestamp) -> Timestamp {
        self.queues.cluster.clock.time_at(wall)
    }

    /// Returns the capacity of nodes not lost.
    #[must_use]
    pub const fn capacity(&self) -> &Amounts {
        &self.capacity
    }

    /// Counts a message that is not an event.
    pub fn flag(&mut self, sequence: dormouse_messages::Sequence, why: String) {
        self.cluster.flag(sequence, why);
    }
}
