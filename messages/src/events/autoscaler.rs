//! Events of the autoscaler: replicas of services and idle notebooks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Basis;
use crate::ids::JobId;
use crate::service::Scaling;
use crate::time::Timestamp;

/// A service gets another number of replicas.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceScaled {
    /// The service.
    pub job: JobId,
    /// The new number of replicas.
    pub replicas: u32,
    /// The number of replicas before.
    pub previous: u32,
    /// The scaling rule.
    pub scaling: Scaling,
    /// The observed load.
    pub observed: Observed,
    /// Requests a second expected once the replicas are ready.
    pub forecast: f64,
    /// Requests a second per replica within the objective; 0 if unknown.
    pub capacity_per_replica: f64,
    /// Reason, for a person.
    pub reason: String,
    /// True if the most replicas miss the objective.
    #[serde(default)]
    pub saturated: bool,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// A service's load, as seen by the autoscaler.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Observed {
    /// Requests a second.
    pub rate: f64,
    /// Requests in the system.
    pub concurrency: f64,
    /// Mean milliseconds of work per request; 0 if unknown.
    pub service_ms: f64,
    /// Squared coefficient of variation of the arrivals (1: Poisson).
    pub burstiness: f64,
    /// Fraction of requests within the objective; 1 without requests.
    pub attainment: f64,
    /// Ready replicas.
    pub ready: u32,
}

/// A notebook that nobody uses will be ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NotebookWarned {
    /// The notebook.
    pub job: JobId,
    /// Start of the idle time.
    pub idle_since: Timestamp,
    /// Time at which the notebook ends.
    pub ends_at: Timestamp,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}
