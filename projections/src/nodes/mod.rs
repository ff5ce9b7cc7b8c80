//! Nodes: the present comes from [`ClusterState`], the past from [`NodeTable`].
//!
//! A container takes capacity from its start request to its exit, or the end of its partition, job or node.
//! The checkpointer waits for free capacity, so use never exceeds it. Placed containers count apart, as
//! reserved.

mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use dormouse_messages::{Amounts, Incarnation, JobId, NodeId, Rank};
use serde::{Deserialize, Serialize};

use dormouse_state::{ClusterState, ContainerPhase, Job, NodePhase};

pub use table::{Drain, GpuDoubt, NodeHistory, NodeTable};

/// The state of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    #[default]
    Up,
    Drained,
    /// Out of use after failed starts.
    Quarantined,
    Lost,
}

/// The containers of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Load {
    pub used: Amounts,
    /// Taking capacity.
    pub containers: u32,
    /// Seen to run.
    pub running: u32,
    /// Placed, without a start request.
    pub reserved: u32,
}

/// A node with its past and its containers.
#[derive(Debug, Clone)]
pub struct Node<'a> {
    pub present: &'a dormouse_state::Node,
    pub past: &'a NodeHistory,
    pub load: Load,
}

impl Node<'_> {
    /// Returns the state; a loss precedes a drain.
    #[must_use]
    pub fn state(&self) -> NodeState {
        let node = self.present;
        match (&node.phase, node.drained, &node.health.quarantine) {
            (NodePhase::Lost { .. } | NodePhase::Returning { .. }, _, _) => NodeState::Lost,
            (NodePhase::Up, true, _) => NodeState::Drained,
            (NodePhase::Up, false, Some(_)) => NodeState::Quarantined,
            (NodePhase::Up, false, None) => NodeState::Up,
        }
    }

    /// Returns the present drain.
    #[must_use]
    pub fn drain(&self) -> Option<&Drain> {
        self.past.drain.as_ref().filter(|_| self.present.drained)
    }

    /// Returns the loss that still holds.
    #[must_use]
    pub fn lost(&self) -> Option<&table::Loss> {
        let is_lost = self.state() == NodeState::Lost;
        self.past.loss.as_ref().filter(|_| is_lost)
    }
}

/// The state of a container on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContainerState {
    /// Placed, not started.
    Reserved,
    /// Takes capacity.
    Starting,
    Running,
}

/// A container on a node.
#[derive(Debug, Clone, Copy)]
pub struct Container<'a> {
    pub job: &'a JobId,
    pub incarnation: Incarnation,
    pub rank: Rank,
    pub node: &'a NodeId,
    pub state: ContainerState,
    pub demand: &'a Amounts,
}

/// Returns the containers by job id: those that take capacity, then the reserved ones.
pub fn containers(state: &ClusterState) -> impl Iterator<Item = Container<'_>> {
    let all = state.jobs.iter().flat_map(|(id, job)| of_job(id, job));
    all.filter(|container| {
        container.state != ContainerState::Reserved || !state.nodes.is_lost(container.node)
    })
}

pub(crate) fn of_job<'a>(id: &'a JobId, job: &'a Job) -> impl Iterator<Item = Container<'a>> {
    let container = |incarnation, rank: &Rank, node, state| Container {
        job: id,
        incarnation,
        rank: *rank,
        node,
        state,
        demand: job.demand_at(*rank),
    };
    let present = job.partition.iter().flat_map(move |partition| {
        partition
            .containers
            .iter()
            .filter_map(move |(rank, known)| {
                let state = match known.phase {
                    ContainerPhase::Requested => ContainerState::Starting,
                    ContainerPhase::Started => ContainerState::Running,
                    ContainerPhase::Exited { .. } | ContainerPhase::Lost { .. } => return None,
                };
                Some(container(
                    partition.incarnation,
                    rank,
                    &known.place.node,
                    state,
                ))
            })
    });
    let reserved = job.reserved().map(move |(incarnation, rank, place)| {
        container(incarnation, rank, &place.node, ContainerState::Reserved)
    });
    present.chain(reserved)
}

/// Returns the load of each node with containers.
#[must_use]
pub fn loads(state: &ClusterState) -> BTreeMap<&NodeId, Load> {
    let mut loads: BTreeMap<&NodeId, Load> = BTreeMap::new();
    for container in containers(state) {
        loads.entry(container.node).or_default().add(&container);
    }
    loads
}

impl Load {
    pub(crate) fn add(&mut self, container: &Container<'_>) {
        if container.state == ContainerState::Reserved {
            self.reserved += 1;
            return;
        }
        self.containers += 1;
        self.running += u32::from(container.state == ContainerState::Running);
        self.used.add(container.demand, 1);
    }
}

/// Returns the capacity of the nodes not lost.
#[must_use]
pub fn capacity(state: &ClusterState) -> Amounts {
    let mut capacity = Amounts::new();
    let present = state.nodes.iter();
    for (_, node) in present.filter(|(_, node)| node.phase == NodePhase::Up) {
        capacity.add(&node.capacity, 1);
    }
    capacity
}

/// Returns the amounts that containers take on known nodes.
#[must_use]
pub fn used(state: &ClusterState) -> Amounts {
    let mut used = Amounts::new();
    let held = state.jobs.values().flat_map(Job::held);
    for (_, demand) in held.filter(|(node, _)| state.nodes.get(node).is_some()) {
        used.add(demand, 1);
    }
    used
}
