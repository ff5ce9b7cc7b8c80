//! Observations of node agents.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{ContainerId, Incarnation, JobId, NodeId, Rank};
use crate::quantity::{Amounts, Resource};
use crate::tasks::TaskRanges;

/// An agent started on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeJoined {
    /// The node.
    pub node: NodeId,
    /// The node's resources.
    pub capacity: Amounts,
    /// The operator's labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The node's GPUs.
    #[serde(default)]
    pub gpus: Vec<Gpu>,
    /// The agent's incarnation, which grows with each start.
    pub incarnation: u64,
    /// Running containers that the agent adopted.
    #[serde(default)]
    pub running: Vec<ContainerId>,
    /// Address for other nodes.
    #[serde(default)]
    pub address: String,
    /// `process` or `docker`.
    #[serde(default)]
    pub runtime: String,
    /// Taints that keep away containers without a toleration.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taints: BTreeSet<String>,
}

/// All containers of a node ended, and none starts in this incarnation of its agent: they are replaced at
/// once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeFenced {
    /// The node.
    pub node: NodeId,
    /// Incarnation of the agent.
    pub incarnation: u64,
    /// Evidence, for a person.
    #[serde(default)]
    pub reason: String,
}

/// A GPU of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gpu {
    /// UUID of the device.
    pub uuid: String,
    /// Model of the device.
    pub model: String,
    /// Memory of the device.
    pub memory_bytes: u64,
}

const STAND_IN: &str = "stand-in-";

impl Gpu {
    /// Names devices for a node with unnamed GPUs, so that containers can be divided among them.
    #[must_use]
    pub fn stand_ins(capacity: &Amounts) -> Vec<Self> {
        let gpu = |index: u64| Self {
            uuid: format!("{STAND_IN}{index}"),
            model: String::new(),
            memory_bytes: 0,
        };
        // A larger capacity exists only on paper.
        let count = capacity.get(&Resource::Gpu) / 1000;
        (0..count.min(MOST_STAND_INS)).map(gpu).collect()
    }

    /// True for a stand-in device.
    #[must_use]
    pub fn is_stand_in(uuid: &str) -> bool {
        uuid.starts_with(STAND_IN)
    }
}

const MOST_STAND_INS: u64 = 64;

/// A container runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerStarted {
    /// The container.
    pub container: ContainerId,
    /// The node.
    pub node: NodeId,
    /// Process id of the first process; 0 if its end came first.
    #[serde(default)]
    pub pid: u32,
}

/// The requester of a program in a container.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ExecBy {
    /// The operator.
    Operator,
    /// The tenant of the job, over its own subjects.
    Tenant,
}

/// A program starts in a running container (`job exec`). Written before the start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerExecStarted {
    /// The container.
    pub container: ContainerId,
    /// The node.
    pub node: NodeId,
    /// Number of the program, unique on the node.
    pub exec: u64,
    /// The requesting party.
    pub by: ExecBy,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// True if the program has a terminal.
    #[serde(default)]
    pub terminal: bool,
}

/// A program for a container (`job exec`) ended or could not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerExecEnded {
    /// The container.
    pub container: ContainerId,
    /// The node.
    pub node: NodeId,
    /// Number of the program, from its start.
    pub exec: u64,
    /// Exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Reason for an early end or a missing exit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A container can take part: a replica answers on its readiness path, a member reports ready, or rank 0
/// (MPI, MXNet) listens on its port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerReady {
    /// The container.
    pub container: ContainerId,
    /// The node.
    pub node: NodeId,
    /// Milliseconds since the start.
    pub after_ms: u64,
    /// For a notebook: BLAKE3 of its token, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_blake3: Option<String>,
}

/// The activity of a notebook.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum NotebookActivity {
    /// A kernel works.
    Busy,
    /// No kernel works.
    Idle,
    /// The server does not answer, or not as Jupyter does.
    Unknown,
}

/// A notebook's activity, reported on changes and from time to time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotebookObserved {
    /// The container.
    pub container: ContainerId,
    /// The node.
    pub node: NodeId,
    /// The activity.
    pub activity: NotebookActivity,
    /// Milliseconds since the last activity; 0 while busy.
    pub idle_ms: u64,
    /// Number of kernels.
    #[serde(default)]
    pub kernels: u32,
    /// Reason for an unknown activity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A container's use of shared GPUs since the last report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerGpuUsed {
    /// The container.
    pub container: ContainerId,
    /// The node.
    pub node: NodeId,
    /// Milliseconds since the last report or the start.
    pub window_ms: u64,
    /// The devices, in the container's order.
    pub devices: Vec<GpuUse>,
}

/// A container's use of one GPU in a window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GpuUse {
    /// UUID of the device.
    pub uuid: String,
    /// Busy time on the device, by the device's own events.
    pub busy_us: u64,
    /// Busy time plus short pauses; counts towards request and limit.
    pub charged_us: u64,
    /// Launches.
    pub launches: u64,
    /// Waits of threads for the device's token.
    pub waits: u64,
    /// Total waiting time of all threads.
    pub waited_us: u64,
    /// Memory in use now.
    pub memory_bytes: u64,
    /// Allocations refused by the memory cap.
    pub refused: u64,
    /// Memory by the driver's count (NVML), including its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_bytes: Option<u64>,
    /// Part of `driver_bytes` beyond cap and driver's allowance.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub beyond_bytes: u64,
}

/// The driver (NVML) sees other processes or memory on a shared GPU than the agent; empty lists end the
/// deviation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeGpuReconciled {
    /// The node.
    pub node: NodeId,
    /// UUID of the device.
    pub uuid: String,
    /// Processes without a share of the device.
    pub strangers: Vec<GpuStranger>,
    /// Containers with more memory than their cap.
    pub beyond: Vec<GpuBeyond>,
}

/// A process on a shared GPU without a share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GpuStranger {
    /// Process id on the node.
    pub pid: u32,
    /// Program name, from the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Memory of the process, if the driver reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

/// A container whose GPU memory exceeds cap and driver's allowance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GpuBeyond {
    /// The container.
    pub container: ContainerId,
    /// The memory cap.
    pub cap_bytes: u64,
    /// Memory counted by the container's library.
    pub counted_bytes: u64,
    /// Memory reported by the driver.
    pub driver_bytes: u64,
}

/// A replica missed its readiness deadline or stopped answering.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerUnready {
    /// The container.
    pub container: ContainerId,
    /// The node.
    pub node: NodeId,
    /// Result of the readiness check.
    pub reason: String,
}

/// A member's answer to a resize.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Acknowledged {
    /// A new member can take part.
    Ready,
    /// The member continues with the new members.
    Joined,
    /// The member leaves and ends.
    Left,
    /// The member cannot change its members now.
    Refused,
}

/// A member answered a resize.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberAcknowledged {
    /// The container.
    pub container: ContainerId,
    /// The node.
    pub node: NodeId,
    /// Generation of the resize.
    pub generation: u32,
    /// The member's answer.
    pub state: Acknowledged,
    /// The job's step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
}

/// A container ended or could not start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerExited {
    /// The container.
    pub container: ContainerId,
    /// The node.
    pub node: NodeId,
    /// Exit code; absent after a signal or a failed start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// True if the container ran out of memory.
    #[serde(default)]
    pub out_of_memory: bool,
    /// Details, such as the reason of a failed start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// True if the platform ended the container, not the job.
    #[serde(default)]
    pub evicted: bool,
}

/// A checkpoint is complete and can be resumed from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointSaved {
    /// The job.
    pub job: JobId,
    /// Incarnation of the partition.
    pub incarnation: Incarnation,
    /// The node of rank 0.
    pub node: NodeId,
    /// Location of the checkpoint.
    pub uri: String,
    /// The job's step.
    pub step: u64,
    /// Size of the checkpoint.
    pub bytes: u64,
    /// Milliseconds since the request; 0 without a request.
    pub duration_ms: u64,
}

/// A requested checkpoint was not saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointFailed {
    /// The job.
    pub job: JobId,
    /// Incarnation of the partition.
    pub incarnation: Incarnation,
    /// The node of rank 0.
    pub node: NodeId,
    /// Reason, for a person.
    pub reason: String,
}

/// Checkpoints per job in the folds, as fallbacks for an unreadable one. Agents keep at least as many on
/// disk.
pub const CHECKPOINTS_RESUMABLE: usize = 2;

/// A checkpoint is gone, torn or changed. The job resumes from the previous one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointRejected {
    /// The job.
    pub job: JobId,
    /// Incarnation of the partition.
    pub incarnation: Incarnation,
    /// The node of rank 0.
    pub node: NodeId,
    /// Location of the checkpoint.
    pub uri: String,
    /// Reason, for a person.
    pub reason: String,
}

/// A fault of a node that prevents a container's start.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum NodeFault {
    /// The disk is full, broken or not writable.
    Disk,
    /// The image is missing.
    Image,
    /// The container engine does not answer.
    Engine,
    /// The node cannot create another process.
    Processes,
    /// The checkpoints' file system is missing or does not answer.
    Checkpoints,
}

impl NodeFault {
    /// True if the job may cause the fault, as with a wrong image.
    #[must_use]
    pub const fn may_be_the_jobs(self) -> bool {
        matches!(self, Self::Image)
    }
}

/// A container could not start because of its node. `container.exited` follows as an eviction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeFaulted {
    /// The node.
    pub node: NodeId,
    /// The job.
    pub job: JobId,
    /// Incarnation of the partition.
    pub incarnation: Incarnation,
    /// Rank in the gang.
    pub rank: Rank,
    /// The node's fault.
    pub fault: NodeFault,
    /// Reason, for a person.
    pub reason: String,
}

/// A job's progress; at most one report per job in 10 s.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// The job.
    pub job: JobId,
    /// Incarnation of the partition.
    pub incarnation: Incarnation,
    /// The node of rank 0.
    pub node: NodeId,
    /// Steps done.
    pub step: u64,
    /// Total steps; 0 if unknown.
    pub steps_total: u64,
    /// Containers of this incarnation.
    pub containers: u32,
    /// Other values reported by the job.
    #[serde(default)]
    pub metrics: BTreeMap<String, f64>,
}

/// Tasks of a task set ended in one container since its last report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TasksEnded {
    /// The job.
    pub job: JobId,
    /// Incarnation of the partition.
    pub incarnation: Incarnation,
    /// Rank in the gang.
    pub rank: Rank,
    /// The node.
    pub node: NodeId,
    /// Tasks that exited with 0.
    pub completed: TaskRanges,
    /// Other tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<FailedTask>,
}

/// A task that did not exit with 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FailedTask {
    /// Number of the task.
    pub task: u32,
    /// Exit code as in a shell: 128 + n after signal n, 127 if not found.
    pub exit_code: i32,
}
