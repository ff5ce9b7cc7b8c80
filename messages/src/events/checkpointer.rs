//! Events of the checkpointer: the course of each released job.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Basis;
use crate::ids::{Epoch, Incarnation, JobId, Rank};
use crate::tasks::TaskRanges;
use crate::who::By;

/// The reason for stopping a partition.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The allocation changes the partition's containers.
    Adjusted,
    /// The tenant cancelled the job.
    Cancelled,
    /// A member of the gang failed; the gang restarts.
    Failed,
    /// A member failed and no retries are left.
    GaveUp,
    /// A node of the gang was lost.
    NodeLost,
    /// The coordinator succeeded; the other members stop.
    Completed,
    /// The job reached its time limit.
    TimeLimit,
}

/// The time limit is near: every process that handles the signal receives it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartitionWarned {
    /// The job.
    pub job: JobId,
    /// Incarnation of the partition.
    pub incarnation: Incarnation,
    /// The signal.
    pub signal: String,
    /// Remaining seconds.
    pub left_s: u32,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// Every process of the partition is asked to save.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointRequested {
    /// The job.
    pub job: JobId,
    /// The allocation that adjusts the partition.
    pub epoch: Epoch,
    /// Incarnation of the partition.
    pub incarnation: Incarnation,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// The partition's containers are to start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartitionStartRequested {
    /// The job.
    pub job: JobId,
    /// Epoch of the allocation.
    pub epoch: Epoch,
    /// Incarnation of the partition.
    pub incarnation: Incarnation,
    /// Number of containers.
    pub containers: u32,
    /// The checkpoint to resume from; absent on a first start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<String>,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// Containers of a task set are to run these tasks next, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TasksAssigned {
    /// The job.
    pub job: JobId,
    /// Incarnation of the partition.
    pub incarnation: Incarnation,
    /// The tasks of each container, after earlier ones.
    pub assigned: Vec<Assigned>,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// The tasks of one container of a task set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Assigned {
    /// Rank in the gang.
    pub rank: Rank,
    /// The tasks: at most [`Assigned::RANGES`] ranges.
    pub tasks: TaskRanges,
}

impl Assigned {
    /// An agent passes an assignment on in one line of less than 4 KiB.
    pub const RANGES: usize = 64;
}

/// The partition's containers are to stop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartitionStopRequested {
    /// The job.
    pub job: JobId,
    /// Epoch of the allocation.
    pub epoch: Epoch,
    /// Incarnation of the partition.
    pub incarnation: Incarnation,
    /// Number of containers.
    pub containers: u32,
    /// The reason for the stop.
    pub reason: StopReason,
    /// Seconds before a kill, if other than the job's grace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_s: Option<u32>,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// Every container of the partition runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartitionStarted {
    /// The job.
    pub job: JobId,
    /// Epoch of the allocation.
    pub epoch: Epoch,
    /// Incarnation of the partition.
    pub incarnation: Incarnation,
    /// Number of containers.
    pub containers: u32,
    /// The checkpoint resumed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<String>,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// No container of the partition runs any more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartitionStopped {
    /// The job.
    pub job: JobId,
    /// Epoch of the allocation.
    pub epoch: Epoch,
    /// Incarnation of the partition.
    pub incarnation: Incarnation,
    /// Number of containers.
    pub containers: u32,
    /// The reason for the stop.
    pub reason: StopReason,
    /// Incarnations ended by the job's own failure.
    #[serde(default)]
    pub attempts: u32,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// The reason for a change of members.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ResizeCause {
    /// The allocation changes the partition's containers.
    Adjusted,
    /// Members died, or their node was lost.
    Lost,
    /// Replicas missed their deadline or became unready.
    Unready,
}

/// Containers join or leave a partition in place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartitionResizeRequested {
    /// The job.
    pub job: JobId,
    /// Epoch of the allocation.
    pub epoch: Epoch,
    /// Incarnation of the partition.
    pub incarnation: Incarnation,
    /// Number of the resize, from 1 in each incarnation.
    pub generation: u32,
    /// Ranks that start; they add to those of a change under way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub join: Vec<Rank>,
    /// Ranks that leave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leave: Vec<Rank>,
    /// Ranks that stay.
    pub stay: Vec<Rank>,
    /// Seconds before the leaving containers are asked to stop.
    pub grace_s: u32,
    /// The reason for the resize.
    pub cause: ResizeCause,
    /// The service that gets the freed capacity.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub made_for: Option<JobId>,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// Leaving containers are to stop now: no gateway uses them, or their grace is over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartitionLeaveRequested {
    /// The job.
    pub job: JobId,
    /// Incarnation of the partition.
    pub incarnation: Incarnation,
    /// Generation of the resize.
    pub generation: u32,
    /// Ranks that stop.
    pub ranks: Vec<Rank>,
    /// Seconds before a kill.
    pub grace_s: u32,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// The members of a partition have changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartitionResized {
    /// The job.
    pub job: JobId,
    /// Epoch of the allocation.
    pub epoch: Epoch,
    /// Incarnation of the partition.
    pub incarnation: Incarnation,
    /// Generation of the resize.
    pub generation: u32,
    /// Number of containers.
    pub containers: u32,
    /// The members, ordered by rank.
    pub members: Vec<Rank>,
    /// The reason for the resize.
    pub cause: ResizeCause,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// An adjustment is abandoned after a failed checkpoint (mode `continue`): the allocation is to be revised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResizeAbandoned {
    /// The job.
    pub job: JobId,
    /// The abandoned allocation.
    pub epoch: Epoch,
    /// Incarnation of the partition.
    pub incarnation: Incarnation,
    /// Reason, for a person.
    pub reason: String,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// The job succeeded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobCompleted {
    /// The job.
    pub job: JobId,
    /// Reason, for a person.
    pub reason: String,
    /// Incarnations ended by the job's own failure.
    pub attempts: u32,
    /// The cluster's format, in the format of the tests of upgrades.
    #[cfg(feature = "test-format")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<crate::Format>,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// The job failed for good.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobFailed {
    /// The job.
    pub job: JobId,
    /// Cause and remedy, for a person.
    pub reason: String,
    /// Incarnations ended by the job's own failure.
    pub attempts: u32,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// The job is cancelled. Admission writes this event for a queued job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobCancelled {
    /// The job.
    pub job: JobId,
    /// Reason, for a person.
    pub reason: String,
    /// Incarnations ended by the job's own failure.
    pub attempts: u32,
    /// Machine-readable cause, if nobody asked for the cancellation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The request, if admission carried it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress_sequence: Option<u64>,
    /// The requesting user, if known and carried out by admission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}
