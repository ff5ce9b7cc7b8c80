//! Events of gateways: measurements of services, and replicas no longer in use.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Basis;
use crate::ids::{ContainerId, GatewayId, JobId, Sequence};
use crate::time::Timestamp;

/// A gateway started and drains replicas from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayJoined {
    /// The gateway.
    pub gateway: GatewayId,
    /// Address for clients.
    pub address: String,
}

/// A gateway stopped in order; nobody waits for it any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayLeft {
    /// The gateway.
    pub gateway: GatewayId,
}

/// A gateway stopped using a leaving replica, without open requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayUnrouted {
    /// The gateway.
    pub gateway: GatewayId,
    /// The replica.
    pub container: ContainerId,
    /// The `partition.resize_requested` that is answered.
    pub answers: Sequence,
    /// Connections closed because they outlasted `drain_s`.
    #[serde(default)]
    pub closed: u32,
}

/// Counts by upper bound; the last count is above all bounds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Histogram {
    /// Upper bounds, ascending, in the unit of the field's name.
    pub bounds: Vec<f64>,
    /// Values up to each bound and above the previous.
    pub counts: Vec<u64>,
}

impl Histogram {
    /// Limit on bounds.
    pub const MOST_BOUNDS: usize = 64;

    /// True if the bounds are finite and ascend, with one more count.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.counts.len() == self.bounds.len() + 1
            && self.bounds.len() <= Self::MOST_BOUNDS
            && self
                .bounds
                .iter()
                .all(|bound| bound.is_finite() && *bound >= 0.0)
            && self.bounds.windows(2).all(|pair| pair[0] < pair[1])
    }

    /// Returns the sum of the counts.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the count at or below `value`, interpolated within its bucket.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of one window are far below 2^53"
    )]
    pub fn at_most(&self, value: f64) -> f64 {
        let mut below = 0.0;
        let mut lower = 0.0;
        for (bound, count) in self.bounds.iter().zip(&self.counts) {
            let count = *count as f64;
            if value >= *bound {
                below += count;
            } else if value > lower {
                below += count * (value - lower) / (bound - lower);
            }
            lower = *bound;
        }
        below
    }
}

/// Requests to a service in a window, measured by a gateway or a tenant's proxy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceMeasured {
    /// The service.
    pub job: JobId,
    /// The gateway, or `tenant/name` for a tenant's proxy.
    pub gateway: GatewayId,
    /// Length of the window.
    pub window_s: u32,
    /// Requests that arrived.
    pub requests: u64,
    /// Arrivals in each second of the window, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arrivals: Vec<u32>,
    /// Mean requests in the system, including waiting ones.
    pub concurrency: f64,
    /// Requests waiting at the gateway at the window's end.
    #[serde(default)]
    pub queued: u32,
    /// From a request's arrival at the gateway to the end of its answer.
    pub latency_ms: Histogram,
    /// From a request's handover to a replica to the end of its answer.
    #[serde(default)]
    pub service_ms: Histogram,
    /// Answers with 5xx, and broken connections.
    pub errors: u64,
    /// Requests refused with 503 for lack of a free replica.
    pub shed: u64,
    /// Replicas in use by the gateway at the window's end.
    pub ready: u32,
    /// For a notebook: requests of a person, without an open page's repetitions.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub touched: u64,
    /// The window's end, for a tenant's proxy; for a gateway the event's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Ingress sequence of the measurement, for a tenant's proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress_sequence: Option<u64>,
    /// Time of the measurement's storage at the broker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_at: Option<Timestamp>,
    /// Basis of the decision, if the log also holds `submission.received`. Most measurements are recorded
    /// only here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}
