//! The state of a service in figures and words.
//!
//! A latency is its bucket's upper bound, at most a quarter above the true one. The fraction within the
//! objective is exact for gateways' reports.

use dormouse_messages::service::LatencyObjective;
use dormouse_messages::{GatewayId, Timestamp};
use serde::{Deserialize, Serialize};

use super::service::{Recent, Service};
use super::sums::{Latency, Sums, ladder};

const MINUTE_S: u32 = 60;
const MINUTES_S: u32 = 300;

/// The state of a service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Health {
    pub words: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<LatencyObjective>,
    /// The objective's, else 99.
    pub percentile: f64,
    pub ready: u32,
    pub target: u32,
    pub max: u32,
    /// By the autoscaler.
    pub saturated: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<GatewayId>,
    pub measured_at: Option<Timestamp>,
    /// Absent half a minute after the last report.
    pub last_minute: Option<Measured>,
    pub last_five_minutes: Option<Measured>,
    pub total: Measured,
}

/// Measurements of a service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Absent for the whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_s: Option<f64>,
    pub requests: u64,
    pub answered: u64,
    pub errors: u64,
    pub shed: u64,
    /// Absent without requests.
    pub attainment: Option<f64>,
    /// Absent without answers.
    pub latency_ms: Option<f64>,
    /// Beyond the last bound.
    #[serde(default, skip_serializing_if = "dormouse_messages::is_default")]
    pub latency_is_more: bool,
}

impl Service {
    /// Returns the state.
    #[must_use]
    pub fn health(&self, now: Timestamp) -> Health {
        let of = |recent: Recent| Measured {
            seconds: Some(recent.seconds),
            requests_per_s: Some(rounded(recent.rate())),
            ..self.measured_of(&recent.sums)
        };
        Health {
            words: self.words(now),
            trouble: self.trouble(now),
            objective: self.objective,
            percentile: self.percentile().into(),
            ready: self.replicas.count(),
            target: self.target,
            max: self.max,
            saturated: self.saturated,
            gateways: self.telling(now).cloned().collect(),
            measured_at: self.told,
            last_minute: self.recent(MINUTE_S, now).map(of),
            last_five_minutes: self.recent(MINUTES_S, now).map(of),
            total: self.measured_of(&self.total),
        }
    }

    /// Returns the last minute's measurements.
    #[must_use]
    pub fn last_minute(&self, now: Timestamp) -> Option<Recent> {
        self.recent(MINUTE_S, now)
    }

    /// Returns the latency at the percentile.
    #[must_use]
    pub fn latency(&self, sums: &Sums) -> Option<Latency> {
        sums.latency(self.percentile(), &ladder(self.objective))
    }

    fn measured_of(&self, sums: &Sums) -> Measured {
        let latency = self.latency(sums);
        Measured {
            seconds: None,
            requests_per_s: None,
            requests: sums.requests,
            answered: sums.answered(),
            errors: sums.errors,
            shed: sums.shed,
            attainment: self.objective.and_then(|_| sums.attainment()),
            latency_ms: latency.map(|it| it.ms),
            latency_is_more: latency.is_some_and(|it| it.is_more),
        }
    }

    /// Returns the trouble for a list: `p99 310 ms of 128`.
    #[must_use]
    pub fn trouble(&self, now: Timestamp) -> Option<String> {
        let recent = self.recent(MINUTE_S, now);
        let missed = recent.and_then(|it| self.missed(&it.sums));
        let most = self.most_are_too_few();
        match (missed, most) {
            (Some(missed), Some(most)) => Some(format!("{missed}; {most}")),
            (missed, most) => missed.or(most),
        }
    }

    fn most_are_too_few(&self) -> Option<String> {
        let most = self.max;
        let replicas = if most == 1 { "replica" } else { "replicas" };
        self.saturated
            .then(|| format!("{most} {replicas}, its most, cannot keep its objective"))
    }

    fn missed(&self, sums: &Sums) -> Option<String> {
        let objective = self.objective?;
        let attained = sums.attainment()?;
        if attained >= objective.percentile.fraction() {
            return None;
        }
        let promised = f64::from(objective.latency_ms);
        let slow = self.latency(sums).filter(|it| it.ms > promised);
        Some(match slow {
            Some(latency) => format!(
                "p{} {} ms of {promised}",
                objective.percentile,
                milliseconds(latency)
            ),
            // Requests turned away have no latency.
            None => format!(
                "{} within {promised} ms instead of {} %",
                percent(attained),
                objective.percentile
            ),
        })
    }

    fn words(&self, now: Timestamp) -> String {
        if self.ended {
            return self.totals();
        }
        let replicas = format!(
            "{} of {} replicas ready",
            self.replicas.count(),
            self.target
        );
        let seen = match (self.recent(MINUTE_S, now), self.told) {
            (Some(recent), _) => self.seen(&recent),
            (None, _) if self.target == 0 => {
                return "no replica; one starts when a request comes".to_owned();
            }
            (None, Some(told)) => format!("no gateway has told anything since {}", told.to_words()),
            (None, None) => "nothing was measured yet".to_owned(),
        };
        let most = self.most_are_too_few().map(|it| format!("; {it}"));
        format!("{seen}; {replicas}{}", most.unwrap_or_default())
    }

    /// Writes `41.3 requests/s, p99 at most 153 ms, 98.71 % within 128 ms (99 % promised), 2 shed`.
    fn seen(&self, recent: &Recent) -> String {
        let sums = &recent.sums;
        let mut text = format!("{:.1} requests/s", recent.rate());
        text.push_str(&self.answers(sums));
        text
    }

    fn totals(&self) -> String {
        let requests = self.total.requests;
        let what = if requests == 1 { "request" } else { "requests" };
        format!("{requests} {what} in all{}", self.answers(&self.total))
    }

    fn answers(&self, sums: &Sums) -> String {
        let mut text = String::new();
        if let Some(latency) = self.latency(sums) {
            let bound = if latency.is_more { "" } else { "at most " };
            text.push_str(&format!(
                ", p{} {bound}{} ms",
                self.percentile(),
                milliseconds(latency)
            ));
        }
        if let (Some(objective), Some(attained)) = (self.objective, sums.attainment()) {
            text.push_str(&format!(
                ", {} within {} ms ({} % promised)",
                percent(attained),
                objective.latency_ms,
                objective.percentile
            ));
        }
        let counted = [(sums.errors, "errors"), (sums.shed, "shed")];
        for (count, what) in counted.into_iter().filter(|(count, _)| *count > 0) {
            let what = if count == 1 && what == "errors" {
                "error"
            } else {
                what
            };
            text.push_str(&format!(", {count} {what}"));
        }
        text
    }
}

/// `152.588` becomes `153`; small values keep a decimal.
fn milliseconds(latency: Latency) -> String {
    let more = if latency.is_more { "more than " } else { "" };
    match latency.ms {
        ms if ms < 10.0 => format!("{more}{ms:.1}"),
        ms => format!("{more}{ms:.0}"),
    }
}

/// Rounds down: 99.999 % is not all.
fn percent(part: f64) -> String {
    format!("{:.2} %", (part * 1e4 + 1e-6).floor() / 100.0)
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
