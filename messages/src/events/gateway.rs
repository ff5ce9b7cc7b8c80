//! What a gateway tells: what clients of a service saw, and which replicas it no longer uses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Basis;
use crate::ids::{ContainerId, GatewayId, JobId, Sequence};
use crate::time::Timestamp;

/// A gateway has started: from now on a leaving replica is drained by it too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayJoined {
    /// The gateway.
    pub gateway: GatewayId,
    /// Where clients reach it.
    pub address: String,
}

/// A gateway has stopped in order: nobody waits for it any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayLeft {
    /// The gateway.
    pub gateway: GatewayId,
}

/// A gateway sends nothing to a leaving replica any more, and none of its requests is under way
/// there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayUnrouted {
    /// The gateway.
    pub gateway: GatewayId,
    /// The replica.
    pub container: ContainerId,
    /// The job.
    pub job: JobId,
    /// The `partition.resize_requested` that it answers.
    pub answers: Sequence,
    /// Connections that lasted longer than `drain_s` and were closed.
    #[serde(default)]
    pub closed: u32,
}

/// Counts by upper bound. `counts` has one number more than `bounds`: those above the last.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Histogram {
    /// Upper bounds, ascending, in the unit of the field's name.
    pub bounds: Vec<f64>,
    /// How many lie at or below each bound and above the one before.
    pub counts: Vec<u64>,
}

impl Histogram {
    /// The most bounds of one histogram.
    pub const MOST_BOUNDS: usize = 64;

    /// Whether the bounds ascend, are finite, and the counts are one more.
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

    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How many lie at or below `value`, a bucket that it divides being divided evenly.
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

/// What clients of a service saw in one window, at one gateway, or at a proxy of its tenant's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceMeasured {
    /// The service.
    pub job: JobId,
    /// The gateway; `tenant/name` is a proxy of the tenant's own, which no gateway can be called.
    pub gateway: GatewayId,
    /// The window's length.
    pub window_s: u32,
    /// Requests that arrived.
    pub requests: u64,
    /// Those that arrived in each second of the window, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arrivals: Vec<u32>,
    /// Requests in the system, waiting ones too: the mean of the window.
    pub concurrency: f64,
    /// Requests that wait at the gateway at the window's end.
    #[serde(default)]
    pub queued: u32,
    /// From a request's arrival at the gateway to its answer's end.
    pub latency_ms: Histogram,
    /// From its passing to a replica to its answer's end.
    #[serde(default)]
    pub service_ms: Histogram,
    /// Answers with 5xx, and connections that broke.
    pub errors: u64,
    /// Requests answered with 503 because no replica was free in time.
    pub shed: u64,
    /// Replicas that the gateway uses, at the window's end.
    pub ready: u32,
    /// Of a notebook: requests of a person who works in it, and not of a page that asks again
    /// and again while it is open.
    #[serde(default, skip_serializing_if = "is_none")]
    pub touched: u64,
    /// When the window ended, of a tenant's proxy; a gateway's ended when it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The message that said it, of a tenant's proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress_sequence: Option<u64>,
    /// When the broker stored that in the ingress stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_at: Option<Timestamp>,
    /// What it was decided on: of a message that stands on the log by itself
    /// (`submission.received`). Most are recorded as what they say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_none(count: &u64) -> bool {
    *count == 0
}
