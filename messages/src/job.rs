//! A job as it is submitted ([`JobDocument`]) and as it stands on the log ([`JobSpec`]).

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::classes::{JobClass, WrittenClass};
use crate::grants::Network;
use crate::ids::JobId;
use crate::needs::{Constraints, Needs};
use crate::python::{Python, WrittenPython};
use crate::quantity::{Amounts, Written};
use crate::roles::{RoleDocument, RoleSpec};
use crate::service::{Resize, ResizeMode, Service};
use crate::whole::{maybe as maybe_whole, whole};
use crate::workdir::{Workdir, WrittenWorkdir};

/// What kind of work a job is.
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
    /// A service whose containers are replicas that answer requests.
    Inference,
    /// One interactive server, behind the gateway.
    Notebook,
}

/// Whose need is met first.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Urgency {
    /// Training and batch: what services and notebooks leave.
    #[default]
    Training,
    /// A person waits for it.
    Notebook,
    /// It has promised its latency.
    Service,
}

impl Kind {
    /// Whose need is met first.
    #[must_use]
    pub const fn urgency(self) -> Urgency {
        match self {
            Self::Training | Self::Batch => Urgency::Training,
            Self::Notebook => Urgency::Notebook,
            Self::Inference => Urgency::Service,
        }
    }

    /// Whether its containers are replicas behind the gateway, which run until it is cancelled.
    #[must_use]
    pub fn is_served(self) -> bool {
        self.urgency() > Urgency::Training
    }
}

/// How each process of a job is told its cluster.
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
    /// MXNet's parameter server: a worker a container, at most two servers, the scheduler at rank 0.
    Mxnet,
    /// `TF_CONFIG`.
    Tensorflow,
    /// `MASTER_ADDR`, `MASTER_PORT`, `RANK`, `WORLD_SIZE`, `LOCAL_RANK`.
    Torch,
}

/// The command lines of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a map such as {start: [python3, train.py]}"
)]
pub struct Command {
    /// Starts the job from nothing.
    pub start: Vec<String>,
    /// Resumes it from a checkpoint; `start` where it is absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resume: Vec<String>,
}

/// An environment value: plain, or a reference to a secret on the node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, from = "WrittenValue")]
pub enum EnvValue {
    /// A literal value.
    Plain(String),
    /// Read by the agent when the container starts; never on the log.
    Secret(SecretFrom),
}

/// An environment value as people write it: `BATCH: 512` needs no quotes.
#[derive(Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "an environment value is text, a number, true or false, or a secret such as {from: {file: /run/token}}"
)]
enum WrittenValue {
    Text(String),
    Flag(bool),
    Whole(i64),
    /// Such as a seed of 64 bits.
    #[schemars(skip)]
    Large(u64),
    Number(f64),
    Secret(SecretFrom),
}

impl From<WrittenValue> for EnvValue {
    fn from(written: WrittenValue) -> Self {
        match written {
            WrittenValue::Text(text) => Self::Plain(text),
            WrittenValue::Flag(flag) => Self::Plain(flag.to_string()),
            WrittenValue::Whole(number) => Self::Plain(number.to_string()),
            WrittenValue::Large(number) => Self::Plain(number.to_string()),
            WrittenValue::Number(number) => Self::Plain(number.to_string()),
            WrittenValue::Secret(secret) => Self::Secret(secret),
        }
    }
}

/// Where on the node a secret is read from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a map such as {from: {file: /run/token}}"
)]
pub struct SecretFrom {
    /// The source.
    pub from: SecretSource,
}

/// A secret's source on the node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SecretSource {
    /// The contents of a file on the node.
    File(String),
    /// A variable of the agent's own environment.
    Env(String),
}

/// How many containers a job may have.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(deny_unknown_fields, expecting = "a map such as {min: 1, max: 4}")]
pub struct Containers {
    /// The fewest it can run with (all of them start together). A service may have none.
    #[serde(deserialize_with = "whole")]
    pub min: u32,
    /// How many start together, where it is resized in place and may shrink below that; `min`
    /// where absent.
    #[serde(
        default,
        deserialize_with = "maybe_whole",
        skip_serializing_if = "Option::is_none"
    )]
    pub start: Option<u32>,
    /// The most it can use.
    #[serde(deserialize_with = "whole")]
    pub max: u32,
}

/// How many containers a job may have.
// In a document `min` may be left out. A revision has to say both: what it left out would change.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map such as {min: 1, max: 4}")]
#[schemars(rename = "Containers")]
struct WrittenContainers {
    /// The fewest it can run with (all of them start together). A service may have none.
    #[serde(default = "one", deserialize_with = "whole")]
    min: u32,
    /// How many start together, where it is resized in place and may shrink below that; `min`
    /// where absent.
    #[serde(default, deserialize_with = "maybe_whole")]
    start: Option<u32>,
    /// The most it can use.
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
    /// So many at least and at most.
    #[must_use]
    pub const fn between(min: u32, max: u32) -> Self {
        Self {
            min,
            start: None,
            max,
        }
    }

    /// How many start together.
    #[must_use]
    pub fn start(&self) -> u32 {
        self.start.unwrap_or(self.min)
    }
}

/// Independent tasks of one job: its command line runs once for each of them.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(
    deny_unknown_fields,
    expecting = "a map such as {count: 100, concurrency: 8}"
)]
pub struct Tasks {
    /// How many; each finds its number, from 0, in `DORMOUSE_TASK`.
    #[serde(deserialize_with = "whole")]
    pub count: u32,
    /// The most that run at once: the most containers of the job.
    #[serde(deserialize_with = "whole")]
    pub concurrency: u32,
}

impl Tasks {
    /// The containers that the job may have.
    #[must_use]
    pub fn containers(&self) -> Containers {
        Containers::between(1, self.concurrency.min(self.count))
    }
}

/// How a running job saves its state when its partition is resized.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum CheckpointMode {
    /// Saving ends the job.
    Exit,
    /// The job saves and runs on until it is stopped.
    Continue,
    /// It has no checkpoint: it is never adjusted while it runs.
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
    /// What saving does to the job. A contract that does not say it is one of a job that saves
    /// and ends.
    #[serde(default = "default_mode")]
    pub mode: CheckpointMode,
    /// The signal that asks every process to save.
    #[serde(default = "default_signal")]
    pub signal: String,
    /// Instead of the signal: a command run beside rank 0.
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

/// Slurm's `KillWait` is 30 s; a checkpoint on a slow disk deserves twice that.
const fn default_grace_s() -> u32 {
    60
}

/// When a life of a training job counts as ready to be resized.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Ready {
    /// When it first reports progress, however long that takes; a day at most.
    Progress,
}

/// A signal that a job is sent before its time is over.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(
    deny_unknown_fields,
    expecting = "a map such as {signal: SIGUSR1, before_s: 60}"
)]
pub struct Warning {
    /// Sent to every process that handles it.
    #[serde(default = "warning_signal")]
    pub signal: String,
    /// So many seconds before.
    #[serde(deserialize_with = "whole")]
    pub before_s: u32,
}

fn warning_signal() -> String {
    "SIGUSR1".to_owned()
}

/// When a job has succeeded.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Success {
    /// Every container exited with 0.
    #[default]
    All,
    /// Rank 0 exited with 0; the others are stopped.
    Chief,
}

/// A folder of the node, given to each container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a map such as {source: /data, target: /data}"
)]
pub struct Mount {
    /// Absolute path on the node.
    pub source: String,
    /// Absolute path in the container.
    pub target: String,
    /// Whether the container may not write to it.
    #[serde(default)]
    pub read_only: bool,
}

/// A job as people submit it. An unknown field is an error that names it.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a map with name, command, demand and so on"
)]
pub struct JobDocument {
    /// `[a-z0-9-]`, unique within the tenant; generated if absent.
    #[serde(default)]
    pub name: Option<String>,
    /// Must be the ingress subject's tenant, where it is given.
    #[serde(default)]
    pub tenant: Option<String>,
    /// Training or batch.
    #[serde(default)]
    pub kind: Kind,
    /// How each process is told its cluster.
    #[serde(default)]
    pub executor: Executor,
    /// Image for the Docker runtime.
    #[serde(default)]
    pub image: Option<String>,
    /// Command lines.
    pub command: Command,
    /// Environment.
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
    /// Containers under the policy `static`; the most where it is absent.
    #[serde(default, deserialize_with = "maybe_whole")]
    pub static_containers: Option<u32>,
    /// Checkpoint contract.
    #[serde(default)]
    pub checkpoint: Checkpoint,
    /// The fewest seconds between its start and its next resize; by default the policy's.
    #[serde(default)]
    pub min_run_s: Option<u32>,
    /// When a life counts as ready: before that it is not resized because others come and go.
    #[serde(default)]
    pub ready: Option<Ready>,
    /// The most seconds that it may run, over all of its lives; then it is stopped and has failed.
    #[serde(default, deserialize_with = "maybe_whole")]
    pub time_limit_s: Option<u32>,
    /// A signal before that.
    #[serde(default)]
    pub warning: Option<Warning>,
    /// The most seconds from its admission to its first start; then it is cancelled.
    #[serde(default, deserialize_with = "maybe_whole")]
    pub queue_limit_s: Option<u32>,
    /// When it has succeeded.
    #[serde(default)]
    pub success: Success,
    /// Folders of the node.
    #[serde(default)]
    pub mounts: Vec<Mount>,
    /// How its containers reach the network: none, published or host; the most that its tenant
    /// is granted where it is absent.
    #[serde(default)]
    pub network: Option<Network>,
    /// How often a failed gang, or a failed task of a task set, is started again.
    #[serde(default, deserialize_with = "whole")]
    pub retries: u32,
    /// Its place in the tenant's own queue: the highest goes first; the tenant's default where
    /// absent.
    #[serde(default, deserialize_with = "maybe_whole")]
    pub priority: Option<i32>,
    /// Its priority class: the operator defines it and grants it to tenants.
    #[serde(default)]
    pub priority_class: Option<WrittenClass>,
    /// Jobs of the same tenant that must complete before it may have containers.
    #[serde(default)]
    pub depends_on: Vec<String>,
    /// A batch job of many tasks: one submission, tracked and cancelled as one.
    #[serde(default)]
    pub tasks: Option<Tasks>,
    /// How its partition changes while it runs: `restart` or `in_place`.
    #[serde(default)]
    pub resize: Option<Resize>,
    /// What a service promises; of `kind: inference` and `kind: notebook` only.
    #[serde(default)]
    pub service: Option<Service>,
    /// The token of a plan: the job is refused where it would not be decided on as planned any more.
    #[serde(default)]
    pub if_plan: Option<String>,
    /// Which nodes its containers may be on.
    #[serde(default)]
    pub constraints: Constraints,
    /// Taints of nodes that do not keep its containers away.
    #[serde(default)]
    pub tolerations: BTreeSet<String>,
    /// Of a fraction of a GPU: the most that it may use while others leave it; the request by default.
    #[serde(default)]
    pub gpu_limit: Option<Written>,
    /// The same in thousandths.
    #[serde(default)]
    pub gpu_limit_milli: Option<u64>,
    /// Memory of each GPU that a container has.
    #[serde(default)]
    pub gpu_memory: Option<Written>,
    /// The same in bytes.
    #[serde(default)]
    pub gpu_memory_bytes: Option<u64>,
    /// Containers beside the workers, by name: `ps` (parameter servers) and `evaluator`.
    #[serde(default)]
    pub roles: BTreeMap<String, RoleDocument>,
    /// The folder in which its command starts, on whatever node: a path beside the document, which
    /// the command line packs.
    #[serde(default)]
    pub workdir: Option<WrittenWorkdir>,
    /// Python packages, in an environment that each node makes of them.
    #[serde(default)]
    pub python: Option<WrittenPython>,
}

const fn default_weight() -> u32 {
    1
}

const fn default_containers() -> Containers {
    Containers::between(1, 1)
}

/// A job's normalised specification on the log: complete, valid, in log units. It can be
/// submitted again as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobSpec {
    /// The name within the tenant.
    pub name: String,
    /// The tenant.
    pub tenant: String,
    /// Training or batch.
    #[serde(default)]
    pub kind: Kind,
    /// How each process is told its cluster.
    #[serde(default)]
    pub executor: Executor,
    /// Image for the Docker runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Command lines.
    pub command: Command,
    /// Environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, EnvValue>,
    /// Demand of one container.
    pub demand: Amounts,
    /// Weight of the job's fair share.
    pub weight: u32,
    /// Fewest and most containers.
    pub containers: Containers,
    /// Containers under the policy `static`; the most where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub static_containers: Option<u32>,
    /// Checkpoint contract.
    pub checkpoint: Checkpoint,
    /// The fewest seconds between its start and its next resize; the policy's where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_run_s: Option<u32>,
    /// When a life counts as ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<Ready>,
    /// The most seconds that it may run, over all of its lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_s: Option<u32>,
    /// A signal before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<Warning>,
    /// The most seconds from its admission to its first start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_limit_s: Option<u32>,
    /// When it has succeeded.
    #[serde(default)]
    pub success: Success,
    /// Folders of the node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// How its containers reach the network; the most that its tenant is granted where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// How often a failed gang is started again.
    #[serde(default)]
    pub retries: u32,
    /// Its place in the tenant's own queue: the highest goes first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// Its priority class, as it was when the job was admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class: Option<JobClass>,
    /// Jobs that must complete before it may have containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<JobId>,
    /// A batch job of many tasks, each of which is retried by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<Tasks>,
    /// How its partition changes while it runs.
    #[serde(default, skip_serializing_if = "Resize::is_default")]
    pub resize: Resize,
    /// What a service promises.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Which nodes its containers may be on.
    #[serde(default, skip_serializing_if = "Constraints::is_empty")]
    pub constraints: Constraints,
    /// Taints of nodes that do not keep its containers away.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tolerations: BTreeSet<String>,
    /// Of a fraction of a GPU: the most that it may use while others leave it, in thousandths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_limit_milli: Option<u64>,
    /// Memory of each GPU that a container has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_memory_bytes: Option<u64>,
    /// Containers beside the workers, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<String, RoleSpec>,
    /// The packed folder in which its command starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<Workdir>,
    /// Python packages, in an environment that each node makes of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<Python>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
const fn is_zero(number: &i32) -> bool {
    *number == 0
}

impl JobSpec {
    /// Whether its partition may be resized while it runs.
    #[must_use]
    pub fn adjustable(&self) -> bool {
        self.checkpoint.mode != CheckpointMode::None || self.is_in_place()
    }

    /// What its containers ask of their nodes besides room.
    #[must_use]
    pub fn needs(&self) -> Needs {
        Needs {
            constraints: self.constraints.clone(),
            tolerations: self.tolerations.clone(),
            gpu_memory_bytes: self.gpu_memory_bytes.unwrap_or(0),
        }
    }

    /// Whether its containers come and go within one incarnation.
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

    #[test]
    fn environment_values_need_no_quotes() {
        let written = r#"{"a": "text", "b": 512, "c": 0.5, "d": true, "e": {"from": {"env": "TOKEN"}}, "f": 12345678901234567891}"#;
        let env: BTreeMap<String, EnvValue> = serde_json::from_str(written).expect("read");
        let plain = |text: &str| EnvValue::Plain(text.to_owned());
        assert_eq!(env["a"], plain("text"));
        assert_eq!(env["b"], plain("512"));
        assert_eq!(env["c"], plain("0.5"));
        assert_eq!(env["d"], plain("true"));
        assert!(matches!(&env["e"], EnvValue::Secret(_)));
        // A seed of 64 bits is not rounded.
        assert_eq!(env["f"], plain("12345678901234567891"));
        let wrong = serde_json::from_str::<EnvValue>("[1]").expect_err("a list");
        assert!(wrong.to_string().contains("environment value"), "{wrong}");
    }
}
