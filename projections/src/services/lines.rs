//! Measurements and replicas of a service over time.

use dormouse_messages::Timestamp;
use dormouse_messages::service::LatencyObjective;
use serde::{Deserialize, Serialize};

use super::sums::{Sums, ladder, number};
use crate::steps::Steps;

/// More than an hour of ten seconds each.
const POINTS: usize = 512;

/// A service's step functions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Lines {
    /// Milliseconds; 0 without answers.
    pub latency: Steps,
    pub objective: Steps,
    pub requests: Steps,
    pub errors: Steps,
    pub shed: Steps,
    /// 1 without requests.
    pub attainment: Steps,
    pub promised: Steps,
    pub ready: Steps,
    pub target: Steps,
    /// Keeps points in order.
    at: Timestamp,
}

impl Lines {
    /// Adds measurements from `at` on.
    pub fn told(
        &mut self,
        at: Timestamp,
        seconds: u32,
        sums: &Sums,
        objective: Option<LatencyObjective>,
    ) {
        self.at = self.at.max(at);
        let at = self.at;
        let seconds = f64::from(seconds);
        let rate = |count: u64| number(count) / seconds;
        let push = |steps: &mut Steps, value: f64| steps.push(at, value, POINTS);
        push(&mut self.requests, rate(sums.requests));
        push(&mut self.errors, rate(sums.errors));
        push(&mut self.shed, rate(sums.shed));
        let percentile = objective.map(|it| it.percentile).unwrap_or_default();
        let latency = sums.latency(percentile, &ladder(objective));
        push(&mut self.latency, latency.map_or(0.0, |it| it.ms));
        let Some(objective) = objective else {
            return;
        };
        push(&mut self.objective, f64::from(objective.latency_ms));
        push(&mut self.promised, objective.percentile.fraction());
        push(&mut self.attainment, sums.attainment().unwrap_or(1.0));
    }

    /// Adds replicas from `at` on.
    pub fn replicas(&mut self, at: Timestamp, ready: u32, target: u32) {
        self.ready.push(at, f64::from(ready), POINTS);
        self.target.push(at, f64::from(target), POINTS);
    }

    /// Returns the last points only.
    pub fn tail(&self) -> Self {
        Self {
            latency: self.latency.tail(),
            objective: self.objective.tail(),
            requests: self.requests.tail(),
            errors: self.errors.tail(),
            shed: self.shed.tail(),
            attainment: self.attainment.tail(),
            promised: self.promised.tail(),
            ready: self.ready.tail(),
            target: self.target.tail(),
            at: self.at,
        }
    }
}
