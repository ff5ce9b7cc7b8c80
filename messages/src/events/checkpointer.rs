//! What the checkpointer decides: the life of each released job.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Basis;
use crate::ids::{Epoch, Incarnation, JobId, Rank};
use crate::tasks::TaskRanges;
use crate::who::By;

/// Why a partition is stopped, or has stopped.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The allocation gives it other containers.
    Adjusted,
    /// Its tenant cancelled it.
    Cancelled,
    /// A member of the gang died or could not start; it is started again.
    Failed,
    /// It failed and has no retries left.
    GaveUp,
    /// A node of the gang was lost.
    NodeLost,
    /// The chief has succeeded; the others are stopped.
    Completed,
    /// It has run for as long as it may.
    TimeLimit,
}

/// The partition's time is nearly over: every process that handles the signal is sent it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartitionWarned {
    /// The job.
    pub job: JobId,
    /// The life.
    pub incarnation: Incarnation,
    /// The signal.
    pub signal: String,
    /// Seconds that are left.
    pub left_s: u32,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// Every process of the partition is asked to save.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointRequested {
    /// The job.
    pub job: JobId,
    /// The allocation that adjusts it.
    pub epoch: Epoch,
    /// The life that is asked.
    pub incarnation: Incarnation,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// The partition's containers are to be started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartitionStartRequested {
    /// The job.
    pub job: JobId,
    /// The allocation.
    pub epoch: Epoch,
    /// The life that starts.
    pub incarnation: Incarnation,
    /// How many containers.
    pub containers: u32,
    /// The checkpoint to resume from; absent on a first start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<String>,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// Containers of a task set are to run these tasks next, in this order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TasksAssigned {
    /// The job.
    pub job: JobId,
    /// The life whose containers run them.
    pub incarnation: Incarnation,
    /// What each container gets, after what it has.
    pub assigned: Vec<Assigned>,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// What one container of a task set gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Assigned {
    /// The container's place in its partition.
    pub rank: Rank,
    /// The tasks: at most [`Assigned::RANGES`] ranges.
    pub tasks: TaskRanges,
}

impl Assigned {
    /// The most ranges of one assignment: an agent passes it on in one line of less than 4 KiB.
    pub const RANGES: usize = 64;
}

/// The partition's containers are to be stopped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartitionStopRequested {
    /// The job.
    pub job: JobId,
    /// The allocation.
    pub epoch: Epoch,
    /// The life that ends.
    pub incarnation: Incarnation,
    /// How many containers.
    pub containers: u32,
    /// Why.
    pub reason: StopReason,
    /// Seconds until what still runs is killed, where it is not the job's own grace: a gang that can
    /// save no more has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_s: Option<u32>,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// Every container of the partition runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartitionStarted {
    /// The job.
    pub job: JobId,
    /// The allocation.
    pub epoch: Epoch,
    /// The life that has started.
    pub incarnation: Incarnation,
    /// How many containers.
    pub containers: u32,
    /// The checkpoint it resumed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<String>,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// No container of the partition runs any more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartitionStopped {
    /// The job.
    pub job: JobId,
    /// The allocation.
    pub epoch: Epoch,
    /// The life that has ended.
    pub incarnation: Incarnation,
    /// How many containers.
    pub containers: u32,
    /// Why.
    pub reason: StopReason,
    /// Lives so far that ended in a failure of the job's own.
    #[serde(default)]
    pub attempts: u32,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// Why the membership of a partition changes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ResizeCause {
    /// The allocation gives it other containers.
    Adjusted,
    /// Members died, or their node was lost.
    Lost,
    /// Replicas were not ready in time, or no longer.
    Unready,
}

/// A partition changes within its incarnation: containers are to start and join, or to leave. One
/// generation is under way a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartitionResizeRequested {
    /// The job.
    pub job: JobId,
    /// The allocation.
    pub epoch: Epoch,
    /// The life that goes on.
    pub incarnation: Incarnation,
    /// The number of the change, counted from 1 in each life.
    pub generation: u32,
    /// Containers that start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub join: Vec<Rank>,
    /// Containers that go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leave: Vec<Rank>,
    /// Those that stay.
    pub stay: Vec<Rank>,
    /// Seconds that leaving ones have before they are asked to stop.
    pub grace_s: u32,
    /// Why.
    pub cause: ResizeCause,
    /// The service that room is made for.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub made_for: Option<JobId>,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// Leaving containers are to be stopped now: no gateway uses them, or their grace is over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartitionLeaveRequested {
    /// The job.
    pub job: JobId,
    /// The life that goes on.
    pub incarnation: Incarnation,
    /// The change.
    pub generation: u32,
    /// The containers.
    pub ranks: Vec<Rank>,
    /// Seconds until what still runs is killed.
    pub grace_s: u32,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// The membership of a partition has changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartitionResized {
    /// The job.
    pub job: JobId,
    /// The allocation.
    pub epoch: Epoch,
    /// The life that goes on.
    pub incarnation: Incarnation,
    /// The change.
    pub generation: u32,
    /// How many containers.
    pub containers: u32,
    /// The members, in the order of their ranks.
    pub members: Vec<Rank>,
    /// Why.
    pub cause: ResizeCause,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// An adjustment is given up (its checkpoint failed, mode `continue`): the partition stays as
/// it was, and the allocation is to be revised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartitionKept {
    /// The job.
    pub job: JobId,
    /// The allocation that is not carried out.
    pub epoch: Epoch,
    /// The life that goes on.
    pub incarnation: Incarnation,
    /// Why.
    pub reason: String,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// The job has succeeded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobCompleted {
    /// The job.
    pub job: JobId,
    /// In words.
    pub reason: String,
    /// Lives that ended in a failure of the job's own.
    pub attempts: u32,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// The job has failed for good.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobFailed {
    /// The job.
    pub job: JobId,
    /// What happened and what to do.
    pub reason: String,
    /// Lives that ended in a failure of the job's own.
    pub attempts: u32,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// The job has been cancelled. Written by admission while it is queued.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobCancelled {
    /// The job.
    pub job: JobId,
    /// In words.
    pub reason: String,
    /// Lives that ended in a failure of the job's own.
    pub attempts: u32,
    /// Machine-readable cause, where nobody asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The request, where admission carried it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress_sequence: Option<u64>,
    /// Who asked for it, where admission carried it out, where the broker vouches for a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}
