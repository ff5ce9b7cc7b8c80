//! What clients of a service saw over time, and its replicas.

use dormouse_messages::Timestamp;
use dormouse_messages::service::LatencyObjective;
use serde::{Deserialize, Serialize};

use super::sums::{Sums, ladder, number};
use crate::steps::Steps;

/// Points of a series: more than an hour of ten seconds each, then fewer of more.
const POINTS: usize = 512;

/// A service's step functions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Lines {
    /// Milliseconds at the objective's percentile; 0 where nothing was answered.
    pub latency: Steps,
    /// The objective's latency.
    pub objective: Steps,
    /// Requests a second.
    pub requests: Steps,
    /// Errors a second.
    pub errors: Steps,
    /// Requests a second that were turned away.
    pub shed: Steps,
    /// The part of them within the objective; 1 where there was none.
    pub attainment: Steps,
    /// The part that was promised.
    pub promised: Steps,
    /// Replicas that are ready.
    pub ready: Steps,
    /// Replicas that it is to have.
    pub target: Steps,
    /// The last point's time: clocks of brokers step.
    at: Timestamp,
}

impl Lines {
    /// What was told within so many seconds from `at` on.
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

    /// From `at` on it has so many replicas.
    pub fn replicas(&mut self, at: Timestamp, ready: u32, target: u32) {
        self.ready.push(at, f64::from(ready), POINTS);
        self.target.push(at, f64::from(target), POINTS);
    }

    /// The same without the past.
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
