//! Limits on plausible measurements, checked by admission before appending and by the autoscaler before use,
//! and the document of a tenant's own proxy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::events::{Histogram, ServiceMeasured};
use crate::fact::Fact;
use crate::ids::{GatewayId, JobId};
use crate::lenient_int::{list, whole};
use crate::time::Timestamp;

/// A longer window does not describe the present.
pub const MOST_WINDOW_S: u32 = 60;

/// Limit on a gateway's clock ahead of the broker's.
pub const MOST_AHEAD_S: i64 = 5;

/// Older windows do not describe the present.
pub const MOST_LATE_S: i64 = 60;

const MOST_PER_SECOND: u64 = 10_000_000;

const MOST_AT_ONCE: u32 = 1_000_000_000;

/// The name of a proxy without one.
pub const DEFAULT_PROXY: &str = "proxy";

impl ServiceMeasured {
    /// Checks plausibility at any time.
    ///
    /// # Errors
    /// The field and its range.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=MOST_WINDOW_S).contains(&self.window_s) {
            return Err(format!(
                "window_s {} must lie between 1 and {MOST_WINDOW_S}",
                self.window_s
            ));
        }
        let at_once = 0.0..=f64::from(MOST_AT_ONCE);
        if !at_once.contains(&self.concurrency) {
            return Err(format!(
                "concurrency {} must be a number between 0 and {MOST_AT_ONCE}",
                self.concurrency
            ));
        }
        for (name, count) in [("queued", self.queued), ("ready", self.ready)] {
            if count > MOST_AT_ONCE {
                return Err(format!("{name} {count} must be at most {MOST_AT_ONCE}"));
            }
        }
        let most = u64::from(self.window_s) * MOST_PER_SECOND;
        let counts = [
            ("requests", self.requests),
            ("errors", self.errors),
            ("shed", self.shed),
        ];
        if let Some((name, count)) = counts.into_iter().find(|(_, count)| *count > most) {
            return Err(format!(
                "{name} {count} must be at most {most} in {} s",
                self.window_s
            ));
        }
        if self.arrivals.len() > self.window_s as usize {
            return Err(format!(
                "arrivals has {} seconds, more than window_s {}",
                self.arrivals.len(),
                self.window_s
            ));
        }
        if self.arrivals.iter().any(|it| u64::from(*it) > most) {
            return Err(format!("arrivals: each must be at most {most}"));
        }
        check_histogram("latency_ms", &self.latency_ms, most)?;
        check_histogram("service_ms", &self.service_ms, most)
    }

    /// Returns the log's second after the window's end, from the event `fact`.
    ///
    /// # Errors
    /// The implausible part.
    pub fn ended_s(&self, fact: &Fact<'_>) -> Result<i64, String> {
        self.check()?;
        let said = self.until.unwrap_or(fact.envelope().time);
        let second = |at: Timestamp| at.as_micros().div_euclid(500_000).saturating_add(1) / 2;
        let said = second(fact.time_of(said));
        let stored = second(fact.at);
        if said > stored.saturating_add(MOST_AHEAD_S) {
            return Err(format!(
                "its window ends {} s after it was stored; set the clock of {}",
                said.saturating_sub(stored),
                self.gateway
            ));
        }
        Ok(said.min(stored))
    }
}

fn check_histogram(name: &str, histogram: &Histogram, most: u64) -> Result<(), String> {
    if *histogram == Histogram::default() {
        return Ok(());
    }
    if !histogram.is_sound() {
        return Err(format!(
            "{name} must have at most {} bounds, ascending numbers of 0 or more, and one count more than bounds: that of what lies above the last",
            Histogram::MOST_BOUNDS
        ));
    }
    match histogram.counts.iter().find(|count| **count > most) {
        Some(count) => Err(format!("{name}: a count of {count} must be at most {most}")),
        None => Ok(()),
    }
}

/// Counts by upper bound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a map such as {bounds: [50, 100], counts: [7, 2, 0]}"
)]
pub struct MeasuredHistogram {
    /// Upper bounds in milliseconds, ascending; at most 64.
    pub bounds: Vec<f64>,
    /// Values up to each bound and above the previous; the last above all.
    #[serde(deserialize_with = "list")]
    pub counts: Vec<u64>,
}

impl From<MeasuredHistogram> for Histogram {
    fn from(MeasuredHistogram { bounds, counts }: MeasuredHistogram) -> Self {
        Self { bounds, counts }
    }
}

/// Requests to a service in a window, measured by a tenant's proxy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeasuredDocument {
    /// Name of the service, with or without the tenant.
    pub job: String,
    /// Name of the proxy; `proxy` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Length of the window in seconds, 1 to 60; windows do not overlap.
    #[serde(deserialize_with = "whole")]
    pub window_s: u32,
    /// Requests that arrived.
    #[serde(deserialize_with = "whole")]
    pub requests: u64,
    /// Arrivals in each second of the window, oldest first.
    #[serde(
        default,
        deserialize_with = "list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub arrivals: Vec<u32>,
    /// Mean requests in the system, including waiting ones.
    pub concurrency: f64,
    /// Requests waiting at the proxy at the window's end.
    #[serde(default, deserialize_with = "whole")]
    pub queued: u32,
    /// From a request's arrival at the proxy to the end of its answer.
    pub latency_ms: MeasuredHistogram,
    /// From a request's handover to a replica to the end of its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_ms: Option<MeasuredHistogram>,
    /// Answers with 5xx, and broken connections.
    #[serde(default, deserialize_with = "whole")]
    pub errors: u64,
    /// Requests refused for lack of a free replica.
    #[serde(default, deserialize_with = "whole")]
    pub shed: u64,
    /// Replicas in use by the proxy at the window's end.
    #[serde(default, deserialize_with = "whole")]
    pub ready: u32,
    /// End of the window; by default the time of publication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl MeasuredDocument {
    /// Returns the measurement of `job` at `gateway`.
    #[must_use]
    pub fn of(self, job: JobId, gateway: GatewayId) -> ServiceMeasured {
        ServiceMeasured {
            job,
            gateway,
            window_s: self.window_s,
            requests: self.requests,
            arrivals: self.arrivals,
            concurrency: self.concurrency,
            queued: self.queued,
            latency_ms: self.latency_ms.into(),
            service_ms: self.service_ms.map(Histogram::from).unwrap_or_default(),
            errors: self.errors,
            shed: self.shed,
            ready: self.ready,
            touched: 0,
            until: self.until,
            ingress_sequence: None,
            published_at: None,
            basis: None,
        }
    }
}
