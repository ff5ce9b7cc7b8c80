//! The query `cluster`.

use std::collections::BTreeMap;

use dormouse_messages::policy::Policy;
use dormouse_messages::{Amounts, Epoch, Sequence, Timestamp};
use serde::{Deserialize, Serialize};

use crate::ReadModel;
use crate::cluster::LastAllocation;
use crate::nodes::NodeState;

/// The cluster at a glance.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClusterAnswer {
    /// The policy in force.
    pub policy: Policy,
    /// The event that set it; 0 while the default holds.
    pub policy_sequence: Sequence,
    /// The log.
    pub log: LogHead,
    /// Nodes by state.
    pub nodes: NodeCounts,
    /// By resource, on the nodes that are not lost.
    pub resources: BTreeMap<String, ResourceUse>,
    /// Jobs by phase, all that ever ended among them.
    pub jobs: BTreeMap<String, u64>,
    /// Refused submissions, cancellations and revisions.
    pub refused: u64,
    /// Containers that take room.
    pub containers: u64,
    /// The last epoch.
    pub epoch: Epoch,
    /// Allocations decided.
    pub allocations_decided: u64,
    /// Allocations kept.
    pub allocations_kept: u64,
    /// Placements refused.
    pub placements_refused: u64,
    /// Running jobs adjusted by choice since the beginning.
    pub adjusted: f64,
    /// Besides, those forced by a lost node or revised bounds.
    pub forced: f64,
    /// The last allocation.
    pub allocation: Option<LastAllocation>,
    /// Events by type.
    #[serde(default)]
    pub events: BTreeMap<String, u64>,
}

/// Where the log stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LogHead {
    /// The last sequence folded.
    pub head: Sequence,
    /// The broker's time of it.
    pub at: Timestamp,
    /// Seconds since then.
    pub quiet_s: f64,
    /// Events folded.
    pub events: u64,
    /// Events that were not used.
    pub flagged: u64,
    /// The last of them.
    pub last_flagged: Option<FlaggedEvent>,
}

/// An event that was not used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlaggedEvent {
    /// Its sequence.
    pub sequence: Sequence,
    /// What is wrong with it.
    pub reason: String,
}

/// Nodes by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCounts {
    /// They take containers.
    pub up: u32,
    /// The operator drained them.
    pub drained: u32,
    /// Starts have failed on them.
    #[serde(default)]
    pub quarantined: u32,
    /// Their leases have ended.
    pub lost: u32,
}

/// One resource of the cluster, in its unit on the log (thousandths; bytes).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceUse {
    /// Taken by containers that are asked to start or run.
    pub used: u64,
    /// Offered by the nodes that are not lost.
    pub capacity: u64,
    /// Given to jobs by the last allocation, whether their containers run yet or not.
    #[serde(default)]
    pub allocated: u64,
    /// Of partitions that run; one that ends counts until its last container has ended, but never more
    /// than what is used.
    #[serde(default)]
    pub running: u64,
}

pub(super) fn cluster(model: &ReadModel, now: Timestamp) -> ClusterAnswer {
    let overview = &model.cluster;
    let mut nodes = NodeCounts::default();
    let mut containers = 0;
    for (_, node) in model.nodes.iter() {
        match node.state() {
            NodeState::Up => nodes.up += 1,
            NodeState::Drained => nodes.drained += 1,
            NodeState::Quarantined => nodes.quarantined += 1,
            NodeState::Lost => nodes.lost += 1,
        }
        containers += u64::from(node.containers);
    }
    let (capacity, _) = model.nodes.capacity();
    let used = model.nodes.used();
    let (mut allocated, mut running) = (Amounts::new(), Amounts::new());
    for (_, job) in model.jobs.live() {
        let beside = &job.beside;
        beside.add_to(&mut allocated, &job.demand, u64::from(job.target));
        beside.add_to(&mut running, &job.demand, u64::from(job.now));
    }
    let resources = capacity.iter().map(|(resource, capacity)| {
        let usage = ResourceUse {
            used: used.get(resource),
            capacity,
            allocated: allocated.get(resource),
            running: running.get(resource).min(used.get(resource)),
        };
        (resource.name().to_owned(), usage)
    });
    let counts = model.jobs.counts().iter();
    let (adjusted, forced) = model.timelines.adjustments();
    let flagged = overview.last_flagged.as_ref();
    ClusterAnswer {
        policy: overview.policy.clone(),
        policy_sequence: overview.policy_sequence,
        log: LogHead {
            head: overview.head,
            at: overview.now,
            quiet_s: now.seconds_since(overview.now).max(0.0),
            events: overview.events,
            flagged: overview.flagged,
            last_flagged: flagged.map(|(sequence, reason)| FlaggedEvent {
                sequence: *sequence,
                reason: reason.clone(),
            }),
        },
        nodes,
        resources: resources.collect(),
        jobs: counts
            .map(|(phase, count)| (phase.as_str().to_owned(), count))
            .collect(),
        refused: model.jobs.refused_total(),
        containers,
        epoch: overview.epoch,
        allocations_decided: overview.decided,
        allocations_kept: overview.kept,
        placements_refused: overview.placements_refused,
        adjusted,
        forced,
        allocation: overview.allocation.as_deref().cloned(),
        events: overview
            .by_type()
            .into_iter()
            .map(|(name, count)| (name.to_owned(), count))
            .collect(),
    }
}
