//! Service times in buckets that grow by a fifth, over the present and the previous five minutes.

use dormouse_messages::events::Histogram;
use serde::{Deserialize, Serialize};

/// From half a millisecond to 40 s.
const BUCKETS: usize = 64;
const FIRST_BOUND_MS: f64 = 0.5;
const GROWTH: f64 = 1.2;

const BLOCK_S: i64 = 300;

const ENOUGH: f64 = 30.0;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Block {
    count: f64,
    sum_s: f64,
    squares: f64,
    buckets: Vec<f64>,
}

impl Block {
    fn add(&mut self, ms: f64, count: f64) {
        let seconds = ms / 1000.0;
        self.count += count;
        self.sum_s += count * seconds;
        self.squares += count * seconds * seconds;
        self.buckets.resize(BUCKETS, 0.0);
        let bound = bounds().position(|bound| ms <= bound);
        self.buckets[bound.unwrap_or(BUCKETS - 1)] += count;
    }
}

fn bounds() -> impl Iterator<Item = f64> {
    std::iter::successors(Some(FIRST_BOUND_MS), |bound| Some(bound * GROWTH)).take(BUCKETS)
}

/// The measured service times.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceTimes {
    since: i64,
    present: Block,
    before: Block,
}

/// The distribution of service times.
#[derive(Debug, Clone, PartialEq)]
pub struct Times {
    pub mean_s: f64,
    pub cv2: f64,
    /// Upper bounds in seconds, and parts of requests.
    pub parts: Vec<(f64, f64)>,
}

impl ServiceTimes {
    /// Adds a window.
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of a window lie far below 2^53"
    )]
    pub fn add(&mut self, measured: &Histogram, until: i64) {
        if until >= self.since + BLOCK_S {
            self.before = std::mem::take(&mut self.present);
            self.since = until;
        }
        let mut lower = 0.0;
        for (index, count) in measured.counts.iter().enumerate() {
            let upper = measured.bounds.get(index).copied();
            // Guesses the middle beyond the last bound.
            let middle = upper.map_or(lower * 1.5, |upper| f64::midpoint(lower, upper));
            if *count > 0 {
                self.present.add(middle, *count as f64);
            }
            lower = upper.unwrap_or(lower);
        }
    }

    /// Returns the times; `None` without measurements.
    #[must_use]
    pub fn times(&self) -> Option<Times> {
        let both = [&self.before, &self.present];
        let total = |of: fn(&Block) -> f64| both.iter().map(|block| of(block)).sum::<f64>();
        let count = total(|block| block.count);
        let sum_s = total(|block| block.sum_s);
        if count <= 0.0 || sum_s <= 0.0 {
            return None;
        }
        let mean_s = sum_s / count;
        let variance = (total(|block| block.squares) / count - mean_s * mean_s).max(0.0);
        let part = |index: usize| {
            let of = |block: &Block| block.buckets.get(index).copied().unwrap_or(0.0);
            both.iter().map(|block| of(block)).sum::<f64>() / count
        };
        let parts = bounds().enumerate();
        let parts = parts.map(|(index, bound)| (bound / 1000.0, part(index)));
        Some(Times {
            mean_s,
            cv2: (variance / (mean_s * mean_s)).min(10.0),
            parts: parts.filter(|(_, part)| *part > 0.0).collect(),
        })
    }

    /// Reports whether enough is measured.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.before.count + self.present.count >= ENOUGH
    }
}

impl Times {
    /// Returns gamma-distributed times.
    #[must_use]
    pub fn gamma(mean_s: f64, cv2: f64) -> Self {
        // Unnormalised density at each bucket's middle.
        let shape = 1.0 / cv2;
        let mut lower = 0.0;
        let parts = bounds().map(|bound| {
            let bound = bound / 1000.0;
            let middle = f64::midpoint(lower, bound);
            let part = (bound - lower)
                * libm::pow(middle / mean_s, shape - 1.0)
                * libm::exp(-shape * middle / mean_s);
            lower = bound;
            (bound, part)
        });
        let parts: Vec<(f64, f64)> = parts.collect();
        let total: f64 = parts.iter().map(|(_, part)| part).sum();
        let parts = parts.into_iter().map(|(bound, part)| (bound, part / total));
        Self {
            mean_s,
            cv2,
            parts: parts.filter(|(_, part)| *part > 1e-9).collect(),
        }
    }
}
