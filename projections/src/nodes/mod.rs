//! The node table; `evolve.rs` applies the events.
//!
//! A container takes capacity from its start request to its exit, or the end of its partition, job or node.
//! The checkpointer waits for free capacity, so use never exceeds it. Placed containers count apart, as
//! reserved.

mod evolve;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{Gpu, GpuBeyond, GpuStranger};
use dormouse_messages::roles::Demands;
use dormouse_messages::{Amounts, By, Incarnation, JobId, NodeId, Rank, Sequence, Timestamp};
use serde::{Deserialize, Serialize};

use dormouse_state::{IdMap, NodeLabels};

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

/// An operator's drain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    pub reason: Option<String>,
    /// Remaining jobs are stopped then.
    pub leave_by: Option<Timestamp>,
    #[serde(default)]
    pub by: Option<By>,
}

/// A node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Node {
    pub capacity: Amounts,
    pub used: Amounts,
    /// Taking capacity.
    pub containers: u32,
    /// Seen to run.
    pub running: u32,
    /// Placed, without a start request.
    pub reserved: u32,
    pub drained: Option<Timestamp>,
    #[serde(default)]
    pub drain: Drain,
    /// Reason, and next attempt.
    #[serde(default)]
    pub quarantined: Option<(String, Timestamp)>,
    pub lost: Option<Timestamp>,
    /// Evidence, if fenced.
    #[serde(default)]
    pub fenced: Option<String>,
    /// Last renewal before a loss.
    pub last_seen: Option<Timestamp>,
    pub joined: Option<Timestamp>,
    pub incarnation: u64,
    pub runtime: String,
    pub address: String,
    /// The node's and the operator's.
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub taints: BTreeSet<String>,
    pub gpus: Vec<Gpu>,
    #[serde(default)]
    pub gpu_doubts: BTreeMap<String, GpuDoubt>,
}

/// Deviations of the driver's view of a shared GPU from the agent's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuDoubt {
    pub strangers: Vec<GpuStranger>,
    pub beyond: Vec<GpuBeyond>,
    pub since: Timestamp,
}

impl Node {
    /// Returns the state; a loss precedes a drain.
    #[must_use]
    pub const fn state(&self) -> NodeState {
        match (self.lost, self.drained, &self.quarantined) {
            (Some(_), _, _) => NodeState::Lost,
            (None, Some(_), _) => NodeState::Drained,
            (None, None, Some(_)) => NodeState::Quarantined,
            (None, None, None) => NodeState::Up,
        }
    }
}

/// The state of a container on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberState {
    /// Placed, not started.
    Reserved,
    /// Takes capacity.
    Starting,
    Running,
}

/// A container of a gang.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub rank: Rank,
    pub node: NodeId,
    pub state: MemberState,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Gang {
    incarnation: Incarnation,
    placed: Sequence,
    members: Vec<Member>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct JobGangs {
    demands: Demands,
    in_place: bool,
    gangs: Vec<Gang>,
}

/// All nodes, and the containers of live jobs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeTable {
    nodes: IdMap<NodeId, Node>,
    jobs: IdMap<JobId, JobGangs>,
    labels: BTreeMap<NodeId, NodeLabels>,
    drained_early: BTreeMap<NodeId, (Timestamp, Drain)>,
}

/// A container on a node.
#[derive(Debug, Clone, Copy)]
pub struct Standing<'a> {
    pub job: &'a JobId,
    pub incarnation: Incarnation,
    pub member: &'a Member,
}

impl NodeTable {
    /// Returns the nodes by name.
    pub fn iter(&self) -> impl Iterator<Item = (&NodeId, &Node)> {
        self.nodes.iter()
    }

    /// Returns a node.
    #[must_use]
    pub fn get(&self, node: &NodeId) -> Option<&Node> {
        self.nodes.get(node)
    }

    /// Returns the containers on a node, by a walk over all.
    pub fn standing<'a>(&'a self, node: &'a NodeId) -> impl Iterator<Item = Standing<'a>> {
        self.jobs.iter().flat_map(move |(job, entry)| {
            entry.gangs.iter().flat_map(move |gang| {
                let here = gang
                    .members
                    .iter()
                    .filter(move |member| member.node == *node);
                here.map(move |member| Standing {
                    job,
                    incarnation: gang.incarnation,
                    member,
                })
            })
        })
    }

    /// Returns all containers, by job id.
    pub fn members(&self) -> impl Iterator<Item = Standing<'_>> {
        self.jobs.iter().flat_map(|(job, entry)| {
            entry.gangs.iter().flat_map(move |gang| {
                gang.members.iter().map(move |member| Standing {
                    job,
                    incarnation: gang.incarnation,
                    member,
                })
            })
        })
    }

    /// Returns the used amounts.
    #[must_use]
    pub fn used(&self) -> Amounts {
        let mut used = Amounts::new();
        for (_, node) in self.nodes.in_any_order() {
            used.add(&node.used, 1);
        }
        used
    }

    /// Returns the capacities of nodes not lost, and of nodes up.
    #[must_use]
    pub fn capacity(&self) -> (Amounts, Amounts) {
        let (mut present, mut up) = (Amounts::new(), Amounts::new());
        for (_, node) in self.nodes.in_any_order() {
            match node.state() {
                NodeState::Up => up.add(&node.capacity, 1),
                NodeState::Drained | NodeState::Quarantined => {}
                NodeState::Lost => continue,
            }
            present.add(&node.capacity, 1);
        }
        (present, up)
    }
}
