//! Queues of Slurm allocations: what the operator lets the cluster ask of Slurm.
//!
//! An allocation has a slot of its queue, the lowest free one. Its nodes are called by queue, slot and rank, so
//! that a secured cluster can make their keys before.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, QueueId};
use crate::quantity::Amounts;

/// The longest name of a queue: its nodes' names have room for slot and rank.
pub const QUEUE_NAME_MOST: usize = 40;

/// The label of a queue's nodes with the queue's name.
pub const QUEUE_LABEL: &str = "slurm-queue";

/// The label of a queue's nodes with the name that Slurm gives the node.
pub const HOST_LABEL: &str = "slurm-node";

/// The settings of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlurmQueue {
    /// Slurm's partition; absent for Slurm's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// The account that Slurm charges; absent for the user's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Further options of sbatch, one a string: --constraint=a100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Capacity asked of each node.
    pub node: Amounts,
    /// Labels of the nodes, next to the queue's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Nodes of an allocation.
    pub nodes: u32,
    /// Time limit of an allocation, in seconds.
    pub time_limit_s: u32,
    /// Seconds before the allocation's end at which its nodes are drained.
    pub drain_s: u32,
    /// Most allocations at a time.
    pub most: u32,
    /// Most allocations that wait in Slurm at a time.
    pub backlog: u32,
    /// Seconds without containers after which an allocation is given back.
    pub idle_s: u32,
    /// Failures in a row after which the queue pauses.
    pub pause_after: u32,
    /// Ask for as much as jobs can use.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub grow: bool,
    /// Asks for no allocation. Allocations that run stay.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub paused: bool,
}

impl SlurmQueue {
    /// Returns the nodes' labels, without those that only a node knows.
    #[must_use]
    pub fn node_labels(&self, queue: &QueueId) -> BTreeMap<String, String> {
        let mut labels = self.labels.clone();
        labels.insert(QUEUE_LABEL.to_owned(), queue.to_string());
        labels
    }
}

/// Returns the name of an allocation's node; `None` if the queue's name is too long.
#[must_use]
pub fn node_name(queue: &QueueId, slot: u32, rank: u32) -> Option<NodeId> {
    NodeId::new(format!("{queue}-{slot}-{rank}")).ok()
}
