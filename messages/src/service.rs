//! What a service promises and how its replicas are told apart: the `service` and `resize` parts of
//! a job.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::whole::whole;

/// How a partition changes while its job runs.
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

/// How a job is resized, and which signal tells its members that the members' file has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "WrittenResize")]
pub struct Resize {
    /// How.
    pub mode: ResizeMode,
    /// Sent to every member after the members' file has changed; none where they look at it
    /// themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
}

impl Resize {
    /// Containers that come and go within one incarnation.
    #[must_use]
    pub const fn in_place() -> Self {
        Self {
            mode: ResizeMode::InPlace,
            signal: None,
        }
    }

    /// Whether it is what a job without the field has.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
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

/// What replicas speak.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http,
}

/// When a replica is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a map such as {path: /healthz, timeout_s: 60}"
)]
pub struct Ready {
    /// A GET of it on the replica's port is answered with 2xx once the replica is ready.
    #[serde(default = "default_ready_path")]
    pub path: String,
    /// A replica that is not ready so long after its start is replaced.
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

/// As long as Knative gives a revision's first replica to become ready is ten minutes; loading a
/// model from a local disk takes seconds.
const fn default_ready_timeout_s() -> u32 {
    60
}

/// A percentile, in thousandths, so that 99.9 is exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "f64", into = "f64")]
pub struct Percentile(u32);

impl Percentile {
    /// The part of the requests that it speaks of: .99 for the 99th percentile.
    #[must_use]
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / 100_000.0
    }

    /// Whether it lies between 1 and 99.999: nothing promises every request.
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

/// What clients are promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a map such as {latency_ms: 128, percentile: 99}"
)]
pub struct LatencyObjective {
    /// Milliseconds from a request's arrival at the gateway to its answer's end.
    #[serde(deserialize_with = "whole")]
    pub latency_ms: u32,
    /// The percentile of the requests that are answered within it.
    #[serde(default)]
    pub percentile: Percentile,
}

/// How the number of replicas is decided.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Scaling {
    /// From the arrivals and the learnt service time, by the tail of the waiting time.
    #[default]
    Objective,
    /// Kubernetes' Horizontal Pod Autoscaler on concurrency.
    Hpa,
    /// Knative's autoscaler with its panic window.
    Kpa,
    /// Ray Serve's rule.
    Ray,
}

/// Who may call a service.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Everybody who reaches the gateway.
    Open,
    /// Who shows a key of its tenant.
    #[default]
    Tenant,
    /// Who shows the service's own token.
    Token,
}

/// What a service promises and how it ends its replicas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a map such as {objective: {latency_ms: 128, percentile: 99}}"
)]
pub struct Service {
    /// What replicas speak.
    #[serde(default)]
    pub protocol: Protocol,
    /// When a replica is used.
    #[serde(default)]
    pub ready: Ready,
    /// What clients are promised; without it the service keeps `containers.min` replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<LatencyObjective>,
    /// How the number of replicas is decided.
    #[serde(default)]
    pub scaling: Scaling,
    /// Requests that one replica works on at once; more wait at the gateway.
    #[serde(default = "default_concurrency", deserialize_with = "whole")]
    pub concurrency: u32,
    /// Seconds that a leaving replica has for the requests that it works on.
    #[serde(default = "default_drain_s", deserialize_with = "whole")]
    pub drain_s: u32,
    /// Seconds without a request (of a notebook: without work) until it has no replica, where
    /// `containers.min` is 0.
    #[serde(default = "default_idle_s", deserialize_with = "whole")]
    pub idle_s: u32,
    /// Who may call it.
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

/// Inference is deterministic one request at a time (Clockwork); who batches says how many.
const fn default_concurrency() -> u32 {
    1
}

/// As Kubernetes gives a pod to end.
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
