//! The scenario document with units and defaults.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::policy::Policy;
use dormouse_messages::quantity::Written;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A scenario document.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioDocument {
    pub scenario: String,
    /// Sentences for readers, such as the assumptions of an import; the simulation ignores them.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Seconds over which averages are taken.
    pub horizon_s: f64,
    /// Omitted fields take their defaults.
    #[serde(default)]
    pub policy: Policy,
    #[serde(default)]
    pub costs: CostsDocument,
    pub nodes: Vec<NodeDocument>,
    pub jobs: Vec<JobDocument>,
}

/// Costs of starts and resizes, common to all jobs.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CostsDocument {
    /// Seconds without progress of an adjusted job in all.
    pub adjustment_s: f64,
    /// The part of `adjustment_s` before the save, in which the old containers hold their resources.
    pub save_s: f64,
    /// Seconds from the start request until the containers run.
    pub start_s: f64,
    /// Seconds without progress at a resize in place.
    pub resize_s: f64,
    /// Seconds from a replica's start until ready.
    pub ready_s: f64,
    /// Seconds of work between progress reports, with steps of one second of one container's work; absent: no
    /// reports.
    pub progress_s: Option<f64>,
}

/// A node document.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeDocument {
    pub name: String,
    pub capacity: BTreeMap<String, Written>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Keep away containers without a toleration.
    #[serde(default)]
    pub taints: BTreeSet<String>,
}

/// A job, or many equal tasks.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobDocument {
    /// Time of submission in seconds from the beginning.
    pub at_s: f64,
    pub spec: Map<String, Value>,
    /// Containers under the policy `static`; default `containers.max`.
    #[serde(default)]
    pub static_containers: Option<u32>,
    pub model: ModelDocument,
}

/// A job's behaviour: work and scaling, tasks, or a service's clients. A service or notebook without
/// clients needs neither.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelDocument {
    /// Work in seconds of one container.
    #[serde(default)]
    pub work_container_s: Option<f64>,
    /// Default: linear.
    #[serde(default)]
    pub scaling: Option<ScalingDocument>,
    /// For batch: many equal submissions.
    #[serde(default)]
    pub tasks: Option<TasksDocument>,
    /// For a service.
    #[serde(default)]
    pub clients: Option<ClientsDocument>,
    /// Speed on several nodes as a fraction of that on one; default 1.
    #[serde(default)]
    pub crossing: Option<f64>,
    #[serde(default)]
    pub costs: OwnCostsDocument,
}

/// Costs of one job; the scenario's by default.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OwnCostsDocument {
    pub start_s: Option<f64>,
    /// As `start_s`, for a member that joins in place; default `start_s`.
    pub join_s: Option<f64>,
    pub resize_s: Option<f64>,
    pub ready_s: Option<f64>,
}

/// The clients of a service: a closed loop, or a rate.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientsDocument {
    /// Numbers of clients that ask again when answered.
    #[serde(default)]
    pub clients: Option<Vec<f64>>,
    #[serde(default)]
    pub rate: Option<Vec<f64>>,
    /// Seconds per number; the last one holds from then on.
    pub every_s: f64,
    /// Milliseconds of a replica's work per request, one at a time.
    pub work_ms: f64,
}

/// The speed by the number of containers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum ScalingDocument {
    Linear,
    /// The speed of 1, 2, … containers; the last one holds for more.
    Table {
        speed: Vec<f64>,
        /// The speeds on more nodes than the containers need.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        spread: Option<SpreadDocument>,
    },
    /// n · e^(log2 n).
    Efficiency {
        /// e.
        per_doubling: f64,
    },
}

/// The speeds of a gang on more nodes than its containers need.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpreadDocument {
    pub speed: Vec<f64>,
    /// Containers that fit on a node.
    pub per_node: u32,
}

/// Task k is submitted at `at_s + k · interval_s` and runs for `duration_s` in one container.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TasksDocument {
    pub count: u32,
    pub interval_s: f64,
    pub duration_s: f64,
}
