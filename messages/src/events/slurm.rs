//! Events about Slurm allocations: what the cluster asks of Slurm, and what Slurm does.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::events::Basis;
use crate::ids::{JobId, QueueId};
use crate::time::Timestamp;

/// An allocation is wanted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlurmRequested {
    /// The queue.
    pub queue: QueueId,
    /// The allocation's number in its queue, from 1.
    pub number: u64,
    /// The slot in the queue, which names the nodes.
    pub slot: u32,
    /// Number of nodes.
    pub nodes: u32,
    /// The first of the jobs that wait for it.
    pub jobs: Vec<JobId>,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// Slurm took the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlurmSubmitted {
    /// The queue.
    pub queue: QueueId,
    /// The allocation's number.
    pub number: u64,
    /// The number of Slurm's job.
    pub slurm_job: u64,
}

/// Slurm did not take the request, which is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlurmRefused {
    /// The queue.
    pub queue: QueueId,
    /// The allocation's number.
    pub number: u64,
    /// Slurm's own words.
    pub reason: String,
}

/// Slurm says why the allocation waits, or when it starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlurmEstimated {
    /// The queue.
    pub queue: QueueId,
    /// The allocation's number.
    pub number: u64,
    /// Slurm's reason: `Priority`, `Resources`.
    pub reason: String,
    /// Expected start, by Slurm's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts_at: Option<Timestamp>,
}

/// The allocation runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlurmGranted {
    /// The queue.
    pub queue: QueueId,
    /// The allocation's number.
    pub number: u64,
    /// Slurm's nodes: `gpu[01-02]`.
    pub hosts: String,
    /// Its end by the time limit, by Slurm's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<Timestamp>,
}

/// The allocation is no longer wanted, and Slurm gets its nodes back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlurmReleased {
    /// The queue.
    pub queue: QueueId,
    /// The allocation's number.
    pub number: u64,
    /// Reason, for a person.
    pub reason: String,
    /// Jobs waited for it, and none started there: a failure of the queue.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub in_vain: bool,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// The allocation is over: no process of it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlurmEnded {
    /// The queue.
    pub queue: QueueId,
    /// The allocation's number.
    pub number: u64,
    /// Slurm's state: `COMPLETED`, `TIMEOUT`, `PREEMPTED`, `NODE_FAIL`.
    pub state: String,
    /// Slurm's reason, or what the allocation's program said last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}
