//! The node table: what each node offers, what stands on it, and why it is out of use.
//!
//! A container takes room from the request to start its partition until it has exited (or its
//! partition has stopped, its job has ended, its node is lost): the checkpointer asks only when
//! there is room, so the used room never exceeds the capacity. Containers that are placed and
//! not asked to start are counted apart, as reserved.

mod evolve;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{Gpu, GpuBeyond, GpuStranger};
use dormouse_messages::roles::Demands;
use dormouse_messages::{Amounts, By, Incarnation, JobId, NodeId, Rank, Sequence, Timestamp};
use serde::{Deserialize, Serialize};

use dormouse_state::{IdMap, NodeLabels};

/// Whether a node takes containers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// It takes containers.
    #[default]
    Up,
    /// The operator drained it.
    Drained,
    /// Starts have failed on it: it is out of use for a while.
    Quarantined,
    /// Its lease has ended.
    Lost,
}

/// What the operator says of a drain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// Why.
    pub reason: Option<String>,
    /// When what stays is stopped.
    pub leave_by: Option<Timestamp>,
    /// Which operator said so, where the broker vouches for one.
    #[serde(default)]
    pub by: Option<By>,
}

/// A node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// What it offers.
    pub capacity: Amounts,
    /// What its containers take.
    pub used: Amounts,
    /// Containers that take room.
    pub containers: u32,
    /// Of those, the ones seen to run.
    pub running: u32,
    /// Containers placed on it whose partition is not asked to start.
    pub reserved: u32,
    /// Since when it is drained by the operator.
    pub drained: Option<Timestamp>,
    /// Why, and when what stays is stopped.
    #[serde(default)]
    pub drain: Drain,
    /// Why nothing is started on it for a while, and until when.
    #[serde(default)]
    pub quarantined: Option<(String, Timestamp)>,
    /// Since when it is lost.
    pub lost: Option<Timestamp>,
    /// How it is known that its containers have ended, where it is lost because of that.
    #[serde(default)]
    pub fenced: Option<String>,
    /// When it was last seen before that.
    pub last_seen: Option<Timestamp>,
    /// When its agent last started.
    pub joined: Option<Timestamp>,
    /// The agent's life.
    pub incarnation: u64,
    /// `process` or `docker`.
    pub runtime: String,
    /// Where other nodes reach it.
    pub address: String,
    /// Its labels: its own, then the operator's.
    pub labels: BTreeMap<String, String>,
    /// What keeps containers away that do not tolerate it.
    #[serde(default)]
    pub taints: BTreeSet<String>,
    /// Its GPUs.
    pub gpus: Vec<Gpu>,
    /// Shared GPUs, by UUID, on which the driver sees what the agent does not share among.
    #[serde(default)]
    pub gpu_doubts: BTreeMap<String, GpuDoubt>,
}

/// What the driver sees on a shared GPU, and the agent does not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuDoubt {
    /// Processes that are under no part of it.
    pub strangers: Vec<GpuStranger>,
    /// Containers with more memory than their cap.
    pub beyond: Vec<GpuBeyond>,
    /// Since when it is so.
    pub since: Timestamp,
}

impl Node {
    /// Whether it takes containers: a lost node is lost, drained or not.
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

/// Where a container is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberState {
    /// Placed; its partition is not asked to start.
    Reserved,
    /// Asked to start: it takes room.
    Starting,
    /// Seen to run.
    Running,
}

/// A container of a gang.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its place in the gang.
    pub rank: Rank,
    /// Its node.
    pub node: NodeId,
    /// Where it is in its life.
    pub state: MemberState,
}

/// One life of a job's partition; members leave it as they exit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Gang {
    incarnation: Incarnation,
    placed: Sequence,
    members: Vec<Member>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct JobGangs {
    demands: Demands,
    /// Its containers come and go within one life.
    in_place: bool,
    gangs: Vec<Gang>,
}

/// Every node, and the containers of the jobs that live.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeTable {
    nodes: IdMap<NodeId, Node>,
    jobs: IdMap<JobId, JobGangs>,
    /// Labels and taints, as agents and the operator say them.
    labels: BTreeMap<NodeId, NodeLabels>,
    /// Drained before they joined.
    drained_early: BTreeMap<NodeId, (Timestamp, Drain)>,
}

/// A container on a node, as a query shows it.
#[derive(Debug, Clone, Copy)]
pub struct Standing<'a> {
    /// The job.
    pub job: &'a JobId,
    /// Its partition's life.
    pub incarnation: Incarnation,
    /// The container.
    pub member: &'a Member,
}

impl NodeTable {
    /// Every node by name.
    pub fn iter(&self) -> impl Iterator<Item = (&NodeId, &Node)> {
        self.nodes.iter()
    }

    /// One node.
    #[must_use]
    pub fn get(&self, node: &NodeId) -> Option<&Node> {
        self.nodes.get(node)
    }

    /// The containers on a node, by job. Walks all live containers.
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

    /// Every container, in the order of the jobs' ids.
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

    /// What containers take that are asked to start or run.
    #[must_use]
    pub fn used(&self) -> Amounts {
        let mut used = Amounts::new();
        for (_, node) in self.nodes.in_any_order() {
            used.add(&node.used, 1);
        }
        used
    }

    /// Capacity of the nodes that are not lost, and of those that are up.
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
