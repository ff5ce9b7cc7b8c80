//! What a node agent saw happen.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{ContainerId, Incarnation, JobId, NodeId, Rank};
use crate::quantity::{Amounts, Resource};
use crate::tasks::TaskRanges;

/// An agent has started on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeJoined {
    /// The node.
    pub node: NodeId,
    /// What it offers.
    pub capacity: Amounts,
    /// The operator's labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Its GPUs.
    #[serde(default)]
    pub gpus: Vec<Gpu>,
    /// The agent's life: larger at each start.
    pub incarnation: u64,
    /// Containers that run on it and were adopted.
    #[serde(default)]
    pub running: Vec<ContainerId>,
    /// Where other nodes reach it.
    #[serde(default)]
    pub address: String,
    /// `process` or `docker`.
    #[serde(default)]
    pub runtime: String,
    /// What keeps containers away that do not tolerate it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taints: BTreeSet<String>,
}

/// All containers of a node have ended, and none will start in this life of its agent: its agent says
/// so, or an operator who knows it (the machine is off). They are replaced at once, whatever the lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeFenced {
    /// The node.
    pub node: NodeId,
    /// The agent's life whose containers have ended.
    pub incarnation: u64,
    /// How that is known, for a person.
    #[serde(default)]
    pub reason: String,
}

/// A GPU of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gpu {
    /// Its UUID.
    pub uuid: String,
    /// Its model.
    pub model: String,
    /// Its memory.
    pub memory_bytes: u64,
}

/// What the UUIDs of stand-in devices begin with.
const STAND_IN: &str = "stand-in-";

impl Gpu {
    /// Named devices of a node that offers GPUs and names none: containers are divided among them all
    /// the same.
    #[must_use]
    pub fn stand_ins(capacity: &Amounts) -> Vec<Self> {
        let gpu = |index: u64| Self {
            uuid: format!("{STAND_IN}{index}"),
            model: String::new(),
            memory_bytes: 0,
        };
        // A node of more devices than any machine has is a number for the accounts.
        let count = capacity.get(&Resource::Gpu) / 1000;
        (0..count.min(MOST_STAND_INS)).map(gpu).collect()
    }

    /// Whether this is the name of no real device.
    #[must_use]
    pub fn is_stand_in(uuid: &str) -> bool {
        uuid.starts_with(STAND_IN)
    }
}

/// The most stand-in devices of a node.
const MOST_STAND_INS: u64 = 64;

/// A container runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerStarted {
    /// The container.
    pub container: ContainerId,
    /// The job.
    pub job: JobId,
    /// Its partition's life.
    pub incarnation: Incarnation,
    /// The place in the gang.
    pub rank: Rank,
    /// The node.
    pub node: NodeId,
    /// The first process, in the node's own numbering; 0 if it was over before it could be seen.
    #[serde(default)]
    pub pid: u32,
}

/// On whose behalf a program was started in a container.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ExecBy {
    /// The operator's.
    Operator,
    /// That of the tenant whose job it is, over its own subjects.
    Tenant,
}

/// A program is started in a container that runs (`job exec`). Written before it starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerExecStarted {
    /// The container.
    pub container: ContainerId,
    /// The job.
    pub job: JobId,
    /// Its partition's life.
    pub incarnation: Incarnation,
    /// The place in the gang.
    pub rank: Rank,
    /// The node.
    pub node: NodeId,
    /// Its number: no other program on the node has it.
    pub exec: u64,
    /// On whose behalf.
    pub by: ExecBy,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Whether it has a terminal. What is typed there is not recorded.
    #[serde(default)]
    pub terminal: bool,
}

/// A program that was to run in a container (`job exec`) has ended, or could not be run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerExecEnded {
    /// The container.
    pub container: ContainerId,
    /// The job.
    pub job: JobId,
    /// Its partition's life.
    pub incarnation: Incarnation,
    /// The place in the gang.
    pub rank: Rank,
    /// The node.
    pub node: NodeId,
    /// Its number, as it was started.
    pub exec: u64,
    /// Its exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Why it has neither, or was ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A container that was started can take part: a replica answers on its path of readiness, a
/// member says so itself, rank 0 of an MPI or MXNet gang listens on its port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerReady {
    /// The container.
    pub container: ContainerId,
    /// The job.
    pub job: JobId,
    /// Its partition's life.
    pub incarnation: Incarnation,
    /// Its number in the partition.
    pub rank: Rank,
    /// The node.
    pub node: NodeId,
    /// From its start.
    pub after_ms: u64,
    /// Of a notebook: BLAKE3 of the token that it asks for, in hexadecimal digits. A gateway tells
    /// by it whether a token is the right one; nobody learns the token from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_blake3: Option<String>,
}

/// What a notebook does.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum NotebookActivity {
    /// A kernel works.
    Busy,
    /// No kernel works.
    Idle,
    /// It does not say: it does not answer, or not as Jupyter does.
    Unknown,
}

/// What a notebook's server says that it does: when that changes, and now and then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotebookObserved {
    /// The container.
    pub container: ContainerId,
    /// The job.
    pub job: JobId,
    /// Its partition's life.
    pub incarnation: Incarnation,
    /// Its number in the partition.
    pub rank: Rank,
    /// The node.
    pub node: NodeId,
    /// What it does.
    pub activity: NotebookActivity,
    /// Milliseconds since the last activity of its kernels and terminals; 0 while it is busy.
    pub idle_ms: u64,
    /// How many kernels it has.
    #[serde(default)]
    pub kernels: u32,
    /// What it does not say, where that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What a container used of the GPUs that it has a part of, since the last time that this was said.
/// Said at most every ten seconds, and not of a container that did nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerGpuUsed {
    /// The container.
    pub container: ContainerId,
    /// The job.
    pub job: JobId,
    /// Its partition's life.
    pub incarnation: Incarnation,
    /// Its number in the partition.
    pub rank: Rank,
    /// The node.
    pub node: NodeId,
    /// The time since the last time, or since the start.
    pub window_ms: u64,
    /// Its devices, in their order.
    pub devices: Vec<GpuUse>,
}

/// What a container used of one GPU in a window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GpuUse {
    /// The device.
    pub uuid: String,
    /// Time that its work took on the device, by the device's own events.
    pub busy_us: u64,
    /// The same with pauses too short for another container: what its request and limit are held
    /// against.
    pub charged_us: u64,
    /// Launches.
    pub launches: u64,
    /// How often a thread waited for the device's token.
    pub waits: u64,
    /// How long all its threads waited.
    pub waited_us: u64,
    /// Memory that it has now.
    pub memory_bytes: u64,
    /// Allocations that its cap on memory refused.
    pub refused: u64,
    /// Memory that its processes have by the word of the driver (NVML), what the driver takes for
    /// itself included; absent where NVML says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_bytes: Option<u64>,
    /// Of these, what goes beyond its cap and what the driver may take for itself.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub beyond_bytes: u64,
}

const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What the driver (NVML) says of the processes on a GPU that containers have parts of is not what
/// the agent shares among them; or is again, and then nothing is listed. Said when it changes, at
/// most every ten seconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeGpuReconciled {
    /// The node.
    pub node: NodeId,
    /// The device.
    pub uuid: String,
    /// Processes that compute there and that nobody shares the device with: no library holds them.
    pub strangers: Vec<GpuStranger>,
    /// Containers that have more memory than their cap.
    pub beyond: Vec<GpuBeyond>,
}

/// A process on a shared GPU that is under no part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GpuStranger {
    /// Its number on the node.
    pub pid: u32,
    /// Its program, as the kernel names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Memory that it has, where the driver says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

/// A container that has more memory of a GPU than its cap and what the driver may take for itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GpuBeyond {
    /// The container.
    pub container: ContainerId,
    /// Its cap.
    pub cap_bytes: u64,
    /// What its library has counted.
    pub counted_bytes: u64,
    /// What the driver says that its processes have.
    pub driver_bytes: u64,
}

/// A replica was not ready in time, or does not answer any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerUnready {
    /// The container.
    pub container: ContainerId,
    /// The job.
    pub job: JobId,
    /// Its partition's life.
    pub incarnation: Incarnation,
    /// Its number in the partition.
    pub rank: Rank,
    /// The node.
    pub node: NodeId,
    /// What its path of readiness said.
    pub reason: String,
}

/// What a member says of a change of its partition.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Acknowledged {
    /// A newcomer can take part.
    Ready,
    /// It goes on with the new members.
    Joined,
    /// It takes part no more, and ends.
    Left,
    /// It cannot change its members now.
    Refused,
}

/// A member has answered a change of its partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberAcknowledged {
    /// The container.
    pub container: ContainerId,
    /// The job.
    pub job: JobId,
    /// Its partition's life.
    pub incarnation: Incarnation,
    /// Its number in the partition.
    pub rank: Rank,
    /// The node.
    pub node: NodeId,
    /// The change.
    pub generation: u32,
    /// What it says.
    pub state: Acknowledged,
    /// The job's step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
}

/// A container has ended, or could not start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerExited {
    /// The container.
    pub container: ContainerId,
    /// The job.
    pub job: JobId,
    /// Its partition's life.
    pub incarnation: Incarnation,
    /// The place in the gang.
    pub rank: Rank,
    /// The node.
    pub node: NodeId,
    /// Exit code; absent where a signal ended it or it never started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Whether it ran out of memory.
    #[serde(default)]
    pub out_of_memory: bool,
    /// What the agent knows beyond that: why it could not start, that it was fenced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether the platform ended it (fencing, an agent's return), not the job itself.
    #[serde(default)]
    pub evicted: bool,
}

/// A checkpoint is complete and can be resumed from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointSaved {
    /// The job.
    pub job: JobId,
    /// The life that saved it.
    pub incarnation: Incarnation,
    /// The node of rank 0.
    pub node: NodeId,
    /// Where it is.
    pub uri: String,
    /// The job's step.
    pub step: u64,
    /// Its size.
    pub bytes: u64,
    /// From the request (0 where there was none).
    pub duration_ms: u64,
}

/// A requested checkpoint was not saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointFailed {
    /// The job.
    pub job: JobId,
    /// The life that was asked.
    pub incarnation: Incarnation,
    /// The node of rank 0.
    pub node: NodeId,
    /// Why.
    pub reason: String,
}

/// How many of a job's checkpoints the folds keep, the newest first: it resumes from the next one
/// when one cannot be read. Agents keep at least as many on the disk.
pub const CHECKPOINTS_RESUMABLE: usize = 2;

/// A checkpoint cannot be resumed from: it is gone, torn, or was written to after it was complete.
/// The job resumes from the one before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointRejected {
    /// The job.
    pub job: JobId,
    /// The life that was to resume from it.
    pub incarnation: Incarnation,
    /// The node of rank 0.
    pub node: NodeId,
    /// Which checkpoint.
    pub uri: String,
    /// Why.
    pub reason: String,
}

/// What of a node keeps a container from starting.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum NodeFault {
    /// Its disk is full, broken or not writable.
    Disk,
    /// It has no such image.
    Image,
    /// Its container engine does not answer.
    Engine,
    /// It cannot make another process.
    Processes,
    /// The checkpoints' file system is not there, or does not answer.
    Checkpoints,
}

impl NodeFault {
    /// Whether another job may cause it: a wrong image does not make a wrong node.
    #[must_use]
    pub const fn may_be_the_jobs(self) -> bool {
        matches!(self, Self::Image)
    }
}

/// A container could not start for a reason of the node's. Its `container.exited`, which counts as
/// the platform's doing, comes behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeFaulted {
    /// The node.
    pub node: NodeId,
    /// The job.
    pub job: JobId,
    /// Its partition's life.
    pub incarnation: Incarnation,
    /// The place in the gang.
    pub rank: Rank,
    /// What is wrong with the node.
    pub fault: NodeFault,
    /// In words.
    pub reason: String,
}

/// How far a job is; at most one per job in 10 s.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// The job.
    pub job: JobId,
    /// The life that reports.
    pub incarnation: Incarnation,
    /// The node of rank 0.
    pub node: NodeId,
    /// Steps done.
    pub step: u64,
    /// Steps in all; 0 where it is not known.
    pub steps_total: u64,
    /// Containers of this life.
    pub containers: u32,
    /// Whatever else the job reports.
    #[serde(default)]
    pub metrics: BTreeMap<String, f64>,
}

/// Tasks of a task set have ended in one container: all that did since its last report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TasksEnded {
    /// The job.
    pub job: JobId,
    /// The life that they were assigned to.
    pub incarnation: Incarnation,
    /// The container's place in its partition.
    pub rank: Rank,
    /// The node.
    pub node: NodeId,
    /// Those that exited with 0.
    pub completed: TaskRanges,
    /// Those that did not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<FailedTask>,
}

/// A task that did not exit with 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FailedTask {
    /// Which one.
    pub task: u32,
    /// As a shell reports it: 128 + n where signal n ended it, 127 where it was not found.
    pub exit_code: i32,
}
