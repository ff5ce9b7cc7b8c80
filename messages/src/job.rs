//! A job as submitted ([`JobDocument`]) and as normalised on the log ([`JobSpec`]).

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::classes::{JobClass, WrittenClass};
use crate::container::{Network, RoleDocument, RoleSpec};
use crate::ids::JobId;
use crate::lenient_int::{maybe as maybe_whole, whole};
use crate::needs::{Constraints, Needs};
use crate::python::{Python, WrittenPython};
use crate::quantity::{Amounts, Written};
use crate::service::{Resize, ResizeMode, Service};
use crate::workdir::{Workdir, WrittenWorkdir};

pub use crate::container::{Command, EnvValue, Mount, SecretFrom, SecretSource};

/// The kind of work of a job.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A gang whose partition is resized while it runs.
    #[default]
    Training,
    /// Independent work in one container.
    Batch,
    /// A service: its containers are replicas that answer requests.
    Inference,
    /// One interactive server behind the gateway.
    Notebook,
}

/// The precedence among jobs.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Urgency {
    /// Training and batch: served after services and notebooks.
    #[default]
    Training,
    /// A person waits for the job.
    Notebook,
    /// The job has a latency objective.
    Service,
}

impl Kind {
    /// Returns the precedence.
    #[must_use]
    pub const fn urgency(self) -> Urgency {
        match self {
            Self::Training | Self::Batch => Urgency::Training,
            Self::Notebook => Urgency::Notebook,
            Self::Inference => Urgency::Service,
        }
    }

    /// True for replicas behind the gateway, which run until cancelled.
    #[must_use]
    pub fn is_served(self) -> bool {
        self.urgency() > Urgency::Training
    }
}

/// The way in which each process of a job learns its cluster.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Executor {
    /// `DORMOUSE_RANK` and `DORMOUSE_WORLD_SIZE` only.
    #[default]
    Plain,
    /// MPICH: `mpiexec` at rank 0, a proxy in every container.
    Mpi,
    /// MXNet's parameter server: a worker per container, at most two servers, the scheduler at rank 0.
    Mxnet,
    /// `TF_CONFIG` for TensorFlow.
    Tensorflow,
    /// `MASTER_ADDR`, `MASTER_PORT`, `RANK`, `WORLD_SIZE`, `LOCAL_RANK`.
    Torch,
}

/// The bounds on a job's containers.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(deny_unknown_fields, expecting = "a map such as {min: 1, max: 4}")]
pub struct Containers {
    /// The fewest containers, which start together; may be 0 for a service.
    #[serde(deserialize_with = "whole")]
    pub min: u32,
    /// Containers that start together, if resized in place; `min` if absent.
    #[serde(
        default,
        deserialize_with = "maybe_whole",
        skip_serializing_if = "Option::is_none"
    )]
    pub start: Option<u32>,
    /// The most containers that the job can use.
    #[serde(deserialize_with = "whole")]
    pub max: u32,
}

/// The bounds on a job's containers.
// A revision names both bounds, as an omitted one would change.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map such as {min: 1, max: 4}")]
#[schemars(rename = "Containers")]
struct WrittenContainers {
    /// The fewest containers, which start together; may be 0 for a service.
    #[serde(default = "one", deserialize_with = "whole")]
    min: u32,
    /// Containers that start together, if resized in place; `min` if absent.
    #[serde(default, deserialize_with = "maybe_whole")]
    start: Option<u32>,
    /// The most containers that the job can use.
    #[serde(deserialize_with = "whole")]
    max: u32,
}

const fn one() -> u32 {
    1
}

fn containers<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Containers, D::Error> {
    let WrittenContainers { min, start, max } = Deserialize::deserialize(deserializer)?;
    Ok(Containers { min, start, max })
}

impl Containers {
    /// Returns bounds.
    #[must_use]
    pub const fn between(min: u32, max: u32) -> Self {
        Self {
            min,
            start: None,
            max,
        }
    }

    /// Returns the containers that start together.
    #[must_use]
    pub fn start(&self) -> u32 {
        self.start.unwrap_or(self.min)
    }
}

/// Independent tasks of one job: the command line runs once per task.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(
    deny_unknown_fields,
    expecting = "a map such as {count: 100, concurrency: 8}"
)]
pub struct Tasks {
    /// Number of tasks; each finds its index, from 0, in `DORMOUSE_TASK`.
    #[serde(deserialize_with = "whole")]
    pub count: u32,
    /// Limit on simultaneous tasks, and so on the job's containers.
    #[serde(deserialize_with = "whole")]
    pub concurrency: u32,
}

impl Tasks {
    /// Returns the job's bounds.
    #[must_use]
    pub fn containers(&self) -> Containers {
        Containers::between(1, self.concurrency.min(self.count))
    }
}

/// The bounds on the global batch of a training job, in samples: its program divides a batch within them among
/// the containers.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(deny_unknown_fields, expecting = "a map such as {min: 64, max: 1024}")]
pub struct Batch {
    /// The smallest batch; progress is counted in its steps.
    #[serde(deserialize_with = "whole")]
    pub min: u32,
    /// The largest batch.
    #[serde(deserialize_with = "whole")]
    pub max: u32,
}

/// The way in which a running job saves its state before a resize.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum CheckpointMode {
    /// The job saves and ends.
    Exit,
    /// The job saves and continues until it is stopped.
    Continue,
    /// The job has no checkpoint and is never adjusted while it runs.
    #[default]
    None,
}

/// The checkpoint contract of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a map such as {mode: exit, grace_s: 60}"
)]
pub struct Checkpoint {
    /// Effect of saving on the job; `exit` if absent.
    #[serde(default = "default_mode")]
    pub mode: CheckpointMode,
    /// The signal that asks every process to save.
    #[serde(default = "default_signal")]
    pub signal: String,
    /// Command next to rank 0, instead of the signal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Seconds to save, and again to stop, before the gang is killed.
    #[serde(default = "default_grace_s", deserialize_with = "whole")]
    pub grace_s: u32,
}

impl Default for Checkpoint {
    fn default() -> Self {
        Self {
            mode: CheckpointMode::None,
            signal: default_signal(),
            command: Vec::new(),
            grace_s: default_grace_s(),
        }
    }
}

const fn default_mode() -> CheckpointMode {
    CheckpointMode::Exit
}

fn default_signal() -> String {
    "SIGTERM".to_owned()
}

/// Slurm's `KillWait` is 30 s; a checkpoint on a slow disk takes longer.
const fn default_grace_s() -> u32 {
    60
}

/// The condition under which a training job's incarnation may be resized.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Ready {
    /// The first progress report, however late; after a day at most.
    Progress,
}

/// A signal that a job receives before its time limit.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(
    deny_unknown_fields,
    expecting = "a map such as {signal: SIGUSR1, before_s: 60}"
)]
pub struct Warning {
    /// Signal for every process that handles it.
    #[serde(default = "warning_signal")]
    pub signal: String,
    /// Seconds before the limit.
    #[serde(deserialize_with = "whole")]
    pub before_s: u32,
}

fn warning_signal() -> String {
    "SIGUSR1".to_owned()
}

/// The condition under which a job succeeds.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Success {
    /// Every container exited with 0.
    #[default]
    All,
    /// Rank 0 exited with 0; the others are stopped.
    Coordinator,
}

/// A job as submitted. An unknown field is an error that names it.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a map with name, command, demand and so on"
)]
pub struct JobDocument {
    /// `[a-z0-9-]`, unique within the tenant; generated if absent.
    #[serde(default)]
    pub name: Option<String>,
    /// The ingress subject's tenant, if given.
    #[serde(default)]
    pub tenant: Option<String>,
    /// The kind of work.
    #[serde(default)]
    pub kind: Kind,
    /// The way in which each process learns its cluster.
    #[serde(default)]
    pub executor: Executor,
    /// Image for the Docker runtime.
    #[serde(default)]
    pub image: Option<String>,
    /// Command lines of the job.
    pub command: Command,
    /// Environment variables.
    #[serde(default)]
    pub env: BTreeMap<String, EnvValue>,
    /// Demand of one container.
    pub demand: BTreeMap<String, Written>,
    /// Weight of the job's fair share.
    #[serde(default = "default_weight", deserialize_with = "whole")]
    pub weight: u32,
    /// Fewest and most containers.
    #[serde(default = "default_containers", deserialize_with = "containers")]
    #[schemars(with = "WrittenContainers")]
    pub containers: Containers,
    /// Containers under the policy `static`; the most if absent.
    #[serde(default, deserialize_with = "maybe_whole")]
    pub static_containers: Option<u32>,
    /// Checkpoint contract.
    #[serde(default)]
    pub checkpoint: Checkpoint,
    /// Seconds between a start and the next resize, at least; by default the policy's.
    #[serde(default)]
    pub min_run_s: Option<u32>,
    /// Condition for resizing an incarnation because other jobs come and go.
    #[serde(default)]
    pub ready: Option<Ready>,
    /// Seconds that the job may run, over all incarnations; then it fails.
    #[serde(default, deserialize_with = "maybe_whole")]
    pub time_limit_s: Option<u32>,
    /// A signal before the time limit.
    #[serde(default)]
    pub warning: Option<Warning>,
    /// Seconds from admission to first start; then the job is cancelled.
    #[serde(default, deserialize_with = "maybe_whole")]
    pub queue_limit_s: Option<u32>,
    /// Condition for success.
    #[serde(default)]
    pub success: Success,
    /// Folders of the node.
    #[serde(default)]
    pub mounts: Vec<Mount>,
    /// Network access: none, published or host; the most granted if absent.
    #[serde(default)]
    pub network: Option<Network>,
    /// Restarts of a failed gang, or of a failed task.
    #[serde(default, deserialize_with = "whole")]
    pub retries: u32,
    /// Priority in the tenant's queue, the highest first; the tenant's default if absent.
    #[serde(default, deserialize_with = "maybe_whole")]
    pub priority: Option<i32>,
    /// Priority class: the operator defines classes and grants them to tenants.
    #[serde(default)]
    pub priority_class: Option<WrittenClass>,
    /// Jobs of the tenant that must complete before this one gets containers.
    #[serde(default)]
    pub depends_on: Vec<String>,
    /// Tasks of a batch job: one submission, tracked and cancelled as one.
    #[serde(default)]
    pub tasks: Option<Tasks>,
    /// The way in which the partition is resized: `restart` or `in_place`.
    #[serde(default)]
    pub resize: Option<Resize>,
    /// Objectives of a service; only for `kind: inference` and `kind: notebook`.
    #[serde(default)]
    pub service: Option<Service>,
    /// Token of a plan; a job that would differ from the plan is refused.
    #[serde(default)]
    pub if_plan: Option<String>,
    /// Requirements on the nodes.
    #[serde(default)]
    pub constraints: Constraints,
    /// Taints of nodes that the containers tolerate.
    #[serde(default)]
    pub tolerations: BTreeSet<String>,
    /// For a fraction of a GPU: the limit while others leave capacity; by default the request.
    #[serde(default)]
    pub gpu_limit: Option<Written>,
    /// `gpu_limit` in thousandths.
    #[serde(default)]
    pub gpu_limit_milli: Option<u64>,
    /// Memory of each of a container's GPUs.
    #[serde(default)]
    pub gpu_memory: Option<Written>,
    /// `gpu_memory` in bytes.
    #[serde(default)]
    pub gpu_memory_bytes: Option<u64>,
    /// Containers next to the workers, by role: `ps` (parameter servers) and `evaluator`.
    #[serde(default)]
    pub roles: BTreeMap<String, RoleDocument>,
    /// Working folder of the command: a path next to the document, packed by the command line.
    #[serde(default)]
    pub workdir: Option<WrittenWorkdir>,
    /// Python packages, which each node installs into an environment.
    #[serde(default)]
    pub python: Option<WrittenPython>,
    /// Speed of 1, 2, … containers in speeds of one container, until it is measured.
    #[serde(default)]
    pub speed: Vec<f64>,
    /// Smallest and largest global batch, if the program can change it.
    #[serde(default)]
    pub batch: Option<Batch>,
}

const fn default_weight() -> u32 {
    1
}

const fn default_containers() -> Containers {
    Containers::between(1, 1)
}

/// A job's normalised spec on the log: complete, valid, in log units. It can be submitted again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobSpec {
    /// Name within the tenant.
    pub name: String,
    /// The tenant.
    pub tenant: String,
    /// The kind of work.
    #[serde(default)]
    pub kind: Kind,
    /// The way in which each process learns its cluster.
    #[serde(default)]
    pub executor: Executor,
    /// Image for the Docker runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Command lines of the job.
    pub command: Command,
    /// Environment variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, EnvValue>,
    /// Demand of one container.
    pub demand: Amounts,
    /// Weight of the job's fair share.
    pub weight: u32,
    /// Fewest and most containers.
    pub containers: Containers,
    /// Containers under the policy `static`; the most if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub static_containers: Option<u32>,
    /// Checkpoint contract.
    pub checkpoint: Checkpoint,
    /// Seconds between a start and the next resize, at least; the policy's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_run_s: Option<u32>,
    /// Condition for resizing an incarnation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<Ready>,
    /// Limit on the run time in seconds, over all incarnations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_s: Option<u32>,
    /// A signal before the time limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<Warning>,
    /// Limit on the seconds between admission and first start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_limit_s: Option<u32>,
    /// Condition for success.
    #[serde(default)]
    pub success: Success,
    /// Folders of the node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// Network access; the most granted if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Restarts of a failed gang.
    #[serde(default)]
    pub retries: u32,
    /// Priority in the tenant's queue, the highest first.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub priority: i32,
    /// Priority class as of the admission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class: Option<JobClass>,
    /// Jobs that must complete before this one gets containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<JobId>,
    /// Tasks of a batch job, each retried by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<Tasks>,
    /// The way in which the partition is resized.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub resize: Resize,
    /// Objectives of a service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Requirements on the nodes.
    #[serde(default, skip_serializing_if = "Constraints::is_empty")]
    pub constraints: Constraints,
    /// Taints of nodes that the containers tolerate.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tolerations: BTreeSet<String>,
    /// For a fraction of a GPU: the limit in thousandths while others leave capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_limit_milli: Option<u64>,
    /// Memory of each of a container's GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_memory_bytes: Option<u64>,
    /// Containers next to the workers, by role.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<String, RoleSpec>,
    /// The packed working folder of the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<Workdir>,
    /// Python packages, which each node installs into an environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<Python>,
    /// Stated speed of 1, 2, … containers, in thousandths of the speed of one container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub speed_milli: Vec<u32>,
    /// Bounds on the global batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<Batch>,
}

impl JobSpec {
    /// True if the partition may be resized while it runs.
    #[must_use]
    pub fn adjustable(&self) -> bool {
        self.checkpoint.mode != CheckpointMode::None || self.is_in_place()
    }

    /// Returns the requirements on nodes besides capacity.
    #[must_use]
    pub fn needs(&self) -> Needs {
        Needs {
            constraints: self.constraints.clone(),
            tolerations: self.tolerations.clone(),
            gpu_memory_bytes: self.gpu_memory_bytes.unwrap_or(0),
        }
    }

    /// True if containers come and go within one incarnation.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        self.resize.mode == ResizeMode::InPlace
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_may_name_the_most_alone_and_a_revision_both() {
        let document =
            r#"{"command": {"start": ["x"]}, "demand": {"cpu": 1}, "containers": {"max": 4}}"#;
        let read: JobDocument = serde_json::from_str(document).expect("a document");
        assert_eq!(read.containers, Containers::between(1, 4));
        for wrong in [r#"{"min": 1}"#, r#"{"max": 4, "most": 5}"#, "4"] {
            let document = document.replace(r#"{"max": 4}"#, wrong);
            assert!(serde_json::from_str::<JobDocument>(&document).is_err());
        }
        assert!(serde_json::from_str::<Containers>(r#"{"max": 4}"#).is_err());
    }
}
