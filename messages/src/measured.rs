//! What a measurement of a service may say, and the document in which a tenant's own proxy says it.
//!
//! Gateways append what they measure; a tenant's proxy publishes it, and admission appends it. Both
//! are believed only as far as they can be true: the same checks are admission's, before it appends
//! one, and the autoscaler's, before it takes one in.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::events::{Histogram, ServiceMeasured};
use crate::fact::Fact;
use crate::ids::{GatewayId, JobId};
use crate::time::Timestamp;
use crate::whole::{list, whole};

/// The longest window that says anything about now.
pub const MOST_WINDOW_S: u32 = 60;

/// A gateway's clock may be so far ahead of the broker's.
pub const MOST_AHEAD_S: i64 = 5;

/// A window that ended so long before it was published says nothing about now.
pub const MOST_LATE_S: i64 = 60;

/// Nothing passes on so many requests a second.
const MOST_PER_SECOND: u64 = 10_000_000;

/// Nothing holds so many requests at once.
const MOST_AT_ONCE: u32 = 1_000_000_000;

/// What a proxy is called that does not say how.
pub const DEFAULT_PROXY: &str = "proxy";

impl ServiceMeasured {
    /// What of it cannot be true, whenever it was said.
    ///
    /// # Errors
    /// The field, and what it may be.
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

    /// The second behind its window, by the log's time, where it can be true. `fact`: the event that
    /// says it.
    ///
    /// # Errors
    /// What cannot be true of it.
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
    /// How many lie at or below each bound and above the one before; last, those above all of them.
    #[serde(deserialize_with = "list")]
    pub counts: Vec<u64>,
}

impl From<MeasuredHistogram> for Histogram {
    fn from(MeasuredHistogram { bounds, counts }: MeasuredHistogram) -> Self {
        Self { bounds, counts }
    }
}

/// What clients of a service saw in one window, as a tenant's own proxy publishes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeasuredDocument {
    /// The service: its name, with or without the tenant before it.
    pub job: String,
    /// What the proxy is called, of those before this service; `proxy` where it has no name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Seconds of the window, 1 to 60. The windows of one proxy follow one another.
    #[serde(deserialize_with = "whole")]
    pub window_s: u32,
    /// Requests that arrived.
    #[serde(deserialize_with = "whole")]
    pub requests: u64,
    /// Those that arrived in each second of the window, the oldest first.
    #[serde(
        default,
        deserialize_with = "list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub arrivals: Vec<u32>,
    /// Requests in the system, waiting ones too: the mean of the window.
    pub concurrency: f64,
    /// Requests that wait at the proxy at the window's end.
    #[serde(default, deserialize_with = "whole")]
    pub queued: u32,
    /// From a request's arrival at the proxy to its answer's end.
    pub latency_ms: MeasuredHistogram,
    /// From its passing to a replica to its answer's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_ms: Option<MeasuredHistogram>,
    /// Answers with 5xx, and connections that broke.
    #[serde(default, deserialize_with = "whole")]
    pub errors: u64,
    /// Requests that were turned away because no replica was free in time.
    #[serde(default, deserialize_with = "whole")]
    pub shed: u64,
    /// Replicas that the proxy uses, at the window's end.
    #[serde(default, deserialize_with = "whole")]
    pub ready: u32,
    /// When the window ended; when it was published, where it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl MeasuredDocument {
    /// What it says of `job`, measured at `gateway`.
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
