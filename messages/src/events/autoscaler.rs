//! What the autoscaler decides: how many replicas a service has, and when a notebook is idle.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Basis;
use crate::ids::JobId;
use crate::service::Scaling;
use crate::time::Timestamp;

/// A service is to have another number of replicas.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceScaled {
    /// The service.
    pub job: JobId,
    /// How many it is to have.
    pub replicas: u32,
    /// How many it was to have before.
    pub previous: u32,
    /// By which rule.
    pub scaling: Scaling,
    /// What was seen.
    pub observed: Observed,
    /// Requests a second that are expected once the replicas are there.
    pub forecast: f64,
    /// Requests a second that one replica answers within the objective; 0 while it is not known.
    pub capacity_per_replica: f64,
    /// Why, for a person.
    pub reason: String,
    /// Whether the objective cannot be kept with the most replicas that the service may have.
    #[serde(default)]
    pub saturated: bool,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// What the autoscaler saw of a service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Observed {
    /// Requests a second.
    pub rate: f64,
    /// Requests in the system.
    pub concurrency: f64,
    /// Mean milliseconds that a replica works on a request; 0 while it is not known.
    pub service_ms: f64,
    /// Squared coefficient of variation of the arrivals (1: Poisson).
    pub burstiness: f64,
    /// The part of the requests answered within the objective; 1 where there was none.
    pub attainment: f64,
    /// Replicas that were ready.
    pub ready: u32,
}

/// A notebook that nobody uses will be ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NotebookWarned {
    /// The notebook.
    pub job: JobId,
    /// Since when it is idle.
    pub idle_since: Timestamp,
    /// When it is ended.
    pub ends_at: Timestamp,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}
