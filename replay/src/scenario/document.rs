//! A scenario as people write it: every field, with its unit and its default.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::policy::Policy;
use dormouse_messages::quantity::Written;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The document.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioDocument {
    /// Its name.
    pub scenario: String,
    /// Seconds over which averages are taken.
    pub horizon_s: f64,
    /// The policy; what it leaves out takes its default.
    #[serde(default)]
    pub policy: Policy,
    /// What starting and resizing cost.
    #[serde(default)]
    pub costs: CostsDocument,
    /// The nodes.
    pub nodes: Vec<NodeDocument>,
    /// The jobs.
    pub jobs: Vec<JobDocument>,
}

/// What starting and resizing cost every job.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CostsDocument {
    /// An adjusted job makes no progress for so many seconds in all.
    pub adjustment_s: f64,
    /// So many of them pass before it is saved: its old containers hold their room meanwhile.
    pub save_s: f64,
    /// Seconds from the start request until the containers run.
    pub start_s: f64,
    /// Seconds without progress when members come or go in place.
    pub resize_s: f64,
    /// Seconds from a replica's start until it is ready.
    pub ready_s: f64,
}

/// A node.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeDocument {
    /// Its name.
    pub name: String,
    /// What it offers.
    pub capacity: BTreeMap<String, Written>,
    /// Its labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// What keeps containers away that do not tolerate it.
    #[serde(default)]
    pub taints: BTreeSet<String>,
}

/// A job, or many tasks of one kind.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobDocument {
    /// When it is submitted, in seconds from the beginning.
    pub at_s: f64,
    /// The job document that is submitted.
    pub spec: Map<String, Value>,
    /// Its containers under the policy `static`; `containers.max` where it is absent.
    #[serde(default)]
    pub static_containers: Option<u32>,
    /// How it behaves.
    pub model: ModelDocument,
}

/// How a job behaves: work and how it scales, tasks, or the clients of a service. A service or a
/// notebook without clients needs neither.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelDocument {
    /// Its work in seconds of one container.
    #[serde(default)]
    pub work_container_s: Option<f64>,
    /// How it scales; linear where it is absent.
    #[serde(default)]
    pub scaling: Option<ScalingDocument>,
    /// Batch: many submissions of one kind.
    #[serde(default)]
    pub tasks: Option<TasksDocument>,
    /// A service: who asks it.
    #[serde(default)]
    pub clients: Option<ClientsDocument>,
    /// Its speed on more than one node, as a part of that on one; 1 where it is absent.
    #[serde(default)]
    pub crossing: Option<f64>,
    /// What starting and resizing cost it, where that is not what the scenario says.
    #[serde(default)]
    pub costs: OwnCostsDocument,
}

/// What starting and resizing cost one job; what is absent is the scenario's.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OwnCostsDocument {
    /// Seconds from the start request until the containers run.
    pub start_s: Option<f64>,
    /// The same of a member that joins in place; `start_s` where it is absent.
    pub join_s: Option<f64>,
    /// Seconds without progress when members come or go in place.
    pub resize_s: Option<f64>,
    /// Seconds from a replica's start until it is ready.
    pub ready_s: Option<f64>,
}

/// The clients of a service: a closed loop, or a rate.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientsDocument {
    /// So many clients, each of which asks again as soon as it is answered.
    #[serde(default)]
    pub clients: Option<Vec<f64>>,
    /// So many requests a second.
    #[serde(default)]
    pub rate: Option<Vec<f64>>,
    /// Seconds that each number holds; the last one holds beyond.
    pub every_s: f64,
    /// Milliseconds that a replica works on a request, one at a time.
    pub work_ms: f64,
}

/// How the speed grows with the containers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum ScalingDocument {
    /// n.
    Linear,
    /// The speed of 1, 2, … containers; the last holds beyond.
    Table {
        /// The speeds.
        speed: Vec<f64>,
    },
    /// n · e^(log2 n).
    Efficiency {
        /// e.
        per_doubling: f64,
    },
}

/// Task k is submitted at `at_s + k · interval_s` and runs for `duration_s` in one container.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TasksDocument {
    /// How many.
    pub count: u32,
    /// Seconds between two of them.
    pub interval_s: f64,
    /// Seconds that each runs.
    pub duration_s: f64,
}
