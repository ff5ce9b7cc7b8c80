//! The `service` and `resize` parts of a job.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lenient_int::whole;

/// The way in which a partition is resized.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ResizeMode {
    /// Checkpoint, stop, and start again under the next incarnation.
    #[default]
    Restart,
    /// Containers join and leave within one incarnation, by generation.
    InPlace,
}

/// The resize mode of a job, and the signal about changes of its members' file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "WrittenResize")]
pub struct Resize {
    /// The mode.
    pub mode: ResizeMode,
    /// Signal to members after a change of their file; absent if they poll the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
}

impl Resize {
    /// Returns the in-place mode.
    #[must_use]
    pub const fn in_place() -> Self {
        Self {
            mode: ResizeMode::InPlace,
            signal: None,
        }
    }
}

/// `resize: in_place`, or its long form `{mode: in_place, signal: SIGHUP}`.
#[derive(Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "resize is restart, in_place, or a map such as {mode: in_place, signal: SIGHUP}"
)]
enum WrittenResize {
    Short(ResizeMode),
    Long(LongResize),
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LongResize {
    mode: ResizeMode,
    #[serde(default)]
    signal: Option<String>,
}

impl From<WrittenResize> for Resize {
    fn from(written: WrittenResize) -> Self {
        match written {
            WrittenResize::Short(mode) => Self { mode, signal: None },
            WrittenResize::Long(LongResize { mode, signal }) => Self { mode, signal },
        }
    }
}

/// The protocol of replicas.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP/1.1, the default.
    #[default]
    Http,
}

/// The readiness check of a replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a map such as {path: /healthz, timeout_s: 60}"
)]
pub struct Ready {
    /// Path that answers GET with 2xx once the replica is ready.
    #[serde(default = "default_ready_path")]
    pub path: String,
    /// Seconds after which a replica that is not ready is replaced.
    #[serde(default = "default_ready_timeout_s", deserialize_with = "whole")]
    pub timeout_s: u32,
}

impl Default for Ready {
    fn default() -> Self {
        Self {
            path: default_ready_path(),
            timeout_s: default_ready_timeout_s(),
        }
    }
}

fn default_ready_path() -> String {
    "/".to_owned()
}

/// Models load in seconds from a local disk; Knative waits ten minutes.
const fn default_ready_timeout_s() -> u32 {
    60
}

/// A percentile in thousandths, so that 99.9 is exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "f64", into = "f64")]
pub struct Percentile(u32);

impl Percentile {
    /// Returns .99 for the 99th percentile.
    #[must_use]
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / 100_000.0
    }

    /// True between 1 and 99.999, as no objective covers every request.
    #[must_use]
    pub const fn is_meaningful(self) -> bool {
        1_000 <= self.0 && self.0 < 100_000
    }
}

impl Default for Percentile {
    fn default() -> Self {
        Self(99_000)
    }
}

impl From<f64> for Percentile {
    fn from(percentile: f64) -> Self {
        let thousandths = (percentile * 1000.0).round();
        let within = thousandths.is_finite() && (0.0..=1e9).contains(&thousandths);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole, and between 0 and 10^9"
        )]
        Self(if within { thousandths as u32 } else { 0 })
    }
}

impl From<Percentile> for f64 {
    fn from(percentile: Percentile) -> Self {
        Self::from(percentile.0) / 1000.0
    }
}

impl std::fmt::Display for Percentile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f64::from(*self).fmt(f)
    }
}

impl JsonSchema for Percentile {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Percentile".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "number",
            "description": "a percentile such as 99 or 99.9"
        })
    }
}

/// The latency objective of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a map such as {latency_ms: 128, percentile: 99}"
)]
pub struct LatencyObjective {
    /// Milliseconds from a request's arrival at the gateway to the end of its answer.
    #[serde(deserialize_with = "whole")]
    pub latency_ms: u32,
    /// Percentile of requests that meet the latency.
    #[serde(default)]
    pub percentile: Percentile,
}

/// The rule for the number of replicas.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Scaling {
    /// From arrivals and learnt service times, by the tail of the waiting time.
    #[default]
    Objective,
    /// Kubernetes' Horizontal Pod Autoscaler on concurrency.
    Hpa,
    /// Knative's autoscaler with its panic window.
    Kpa,
    /// Ray Serve's rule.
    Ray,
}

/// The callers allowed to use a service.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Everybody who reaches the gateway.
    Open,
    /// Callers with a key of the service's tenant.
    #[default]
    Tenant,
    /// Callers with the service's own token.
    Token,
}

/// A service's objectives, scaling and access.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a map such as {objective: {latency_ms: 128, percentile: 99}}"
)]
pub struct Service {
    /// The protocol of replicas.
    #[serde(default)]
    pub protocol: Protocol,
    /// The readiness check.
    #[serde(default)]
    pub ready: Ready,
    /// Latency objective; if absent the service keeps `containers.min` replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<LatencyObjective>,
    /// The rule for the number of replicas.
    #[serde(default)]
    pub scaling: Scaling,
    /// Simultaneous requests per replica; others wait at the gateway.
    #[serde(default = "default_concurrency", deserialize_with = "whole")]
    pub concurrency: u32,
    /// Seconds for a leaving replica to finish requests.
    #[serde(default = "default_drain_s", deserialize_with = "whole")]
    pub drain_s: u32,
    /// Seconds without a request (notebook: without work) before the last replica stops, if `containers.min`
    /// is 0.
    #[serde(default = "default_idle_s", deserialize_with = "whole")]
    pub idle_s: u32,
    /// The allowed callers.
    #[serde(default)]
    pub access: Access,
}

impl Default for Service {
    fn default() -> Self {
        Self {
            protocol: Protocol::default(),
            ready: Ready::default(),
            objective: None,
            scaling: Scaling::default(),
            concurrency: default_concurrency(),
            drain_s: default_drain_s(),
            idle_s: default_idle_s(),
            access: Access::default(),
        }
    }
}

/// Inference is deterministic one request at a time (Clockwork).
const fn default_concurrency() -> u32 {
    1
}

/// As Kubernetes' termination grace.
const fn default_drain_s() -> u32 {
    30
}

const fn default_idle_s() -> u32 {
    600
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resize_has_a_short_and_a_long_form() {
        let short: Resize = serde_json::from_str("\"in_place\"").expect("short");
        assert_eq!(short, Resize::in_place());
        let long = r#"{"mode": "in_place", "signal": "SIGHUP"}"#;
        let long: Resize = serde_json::from_str(long).expect("long");
        assert_eq!(long.signal.as_deref(), Some("SIGHUP"));
        let written = serde_json::to_string(&long).expect("written");
        assert_eq!(serde_json::from_str::<Resize>(&written).ok(), Some(long));
    }

    #[test]
    fn percentiles_are_exact() {
        let percentile: Percentile = serde_json::from_str("99.9").expect("a number");
        assert_eq!(
            serde_json::to_string(&percentile).ok().as_deref(),
            Some("99.9")
        );
        assert!((percentile.fraction() - 0.999).abs() < 1e-12);
        for meaningless in ["0", "100", "-1", "1e300"] {
            let percentile: Percentile = serde_json::from_str(meaningless).expect("a number");
            assert!(!percentile.is_meaningful(), "{meaningless}");
        }
    }
}
