//! Sums of measurements, with one histogram of latencies.
//!
//! Sources' buckets count at their upper bounds on one ladder, so latencies are never too low. Gateways use
//! this ladder and lose nothing.

use dormouse_messages::events::{Histogram, ServiceMeasured};
use dormouse_messages::service::{LatencyObjective, Percentile};
use serde::{Deserialize, Serialize};

const FIRST_MS: f64 = 1.0;
/// Latencies are exact to a quarter.
const STEP: f64 = 1.25;
/// Up to 56 s.
const BOUNDS: usize = 50;

/// Returns the buckets' upper bounds in milliseconds, with the objective's latency.
#[must_use]
pub fn ladder(objective: Option<LatencyObjective>) -> Vec<f64> {
    let mut bounds = Vec::with_capacity(BOUNDS + 1);
    let mut bound = FIRST_MS;
    for _ in 0..BOUNDS {
        bounds.push((bound * 1000.0).round() / 1000.0);
        bound *= STEP;
    }
    if let Some(objective) = objective.map(|it| f64::from(it.latency_ms))
        && !bounds.contains(&objective)
    {
        bounds.push(objective);
        bounds.sort_by(f64::total_cmp);
    }
    bounds
}

/// A latency at a percentile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Latency {
    pub ms: f64,
    /// Beyond the last bound, in `ms`.
    pub is_more: bool,
}

/// The sum of some windows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sums {
    pub requests: u64,
    pub errors: u64,
    pub shed: u64,
    in_time: f64,
    /// Without trailing zeros.
    buckets: Vec<u64>,
}

impl Sums {
    /// Adds a plausible window.
    pub fn add(&mut self, window: &ServiceMeasured, objective: Option<LatencyObjective>) {
        self.requests = self.requests.saturating_add(window.requests);
        self.errors = self.errors.saturating_add(window.errors);
        self.shed = self.shed.saturating_add(window.shed);
        if let Some(objective) = objective {
            let within = window.latency_ms.at_most(f64::from(objective.latency_ms));
            self.in_time += within;
        }
        self.count(&window.latency_ms, &ladder(objective));
    }

    fn count(&mut self, histogram: &Histogram, ladder: &[f64]) {
        for (index, count) in histogram.counts.iter().enumerate().filter(|it| *it.1 > 0) {
            let bucket = match histogram.bounds.get(index) {
                Some(upper) => ladder.partition_point(|bound| bound < upper),
                None => ladder.len(),
            };
            if self.buckets.len() <= bucket {
                self.buckets.resize(bucket + 1, 0);
            }
            self.buckets[bucket] = self.buckets[bucket].saturating_add(*count);
        }
    }

    /// Adds other sums of the same service.
    pub fn merge(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.errors = self.errors.saturating_add(other.errors);
        self.shed = self.shed.saturating_add(other.shed);
        self.in_time += other.in_time;
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (own, others) in self.buckets.iter_mut().zip(&other.buckets) {
            *own = own.saturating_add(*others);
        }
    }

    /// Returns the number of answers.
    #[must_use]
    pub fn answered(&self) -> u64 {
        let all = self.buckets.iter();
        all.fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the answers within the objective, and the late or refused ones.
    #[must_use]
    pub fn met_and_missed(&self) -> (f64, f64) {
        let judged = number(self.answered()) + number(self.shed);
        let met = self.in_time.min(judged);
        (met, judged - met)
    }

    /// Returns the fraction within the objective.
    #[must_use]
    pub fn attainment(&self) -> Option<f64> {
        let (met, missed) = self.met_and_missed();
        (met + missed > 0.0).then(|| met / (met + missed))
    }

    /// Returns the latency at a percentile, as a bucket's bound.
    #[must_use]
    pub fn latency(&self, percentile: Percentile, ladder: &[f64]) -> Option<Latency> {
        let answered = self.answered();
        let last = ladder.last().copied().unwrap_or_default();
        // Integers make the 99th of a hundred exact.
        let rank = (u128::from(answered) * u128::from(thousandths(percentile))).div_ceil(100_000);
        let mut below = 0_u128;
        for (bucket, count) in self.buckets.iter().enumerate() {
            below += u128::from(*count);
            if *count > 0 && below >= rank {
                let bound = ladder.get(bucket).copied();
                return Some(Latency {
                    ms: bound.unwrap_or(last),
                    is_more: bound.is_none(),
                });
            }
        }
        None
    }

    /// True within the limits.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.buckets.len() <= BOUNDS + 2 && self.in_time.is_finite() && self.in_time >= 0.0
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between 0 and 100,000"
)]
fn thousandths(percentile: Percentile) -> u32 {
    (percentile.fraction() * 100_000.0).round() as u32
}

#[expect(clippy::cast_precision_loss, reason = "a figure to read")]
pub(super) const fn number(count: u64) -> f64 {
    count as f64
}
