//! Times of a step by number of containers, from intervals between progress reports.

use std::collections::BTreeMap;

use dormouse_messages::speed::SpeedPoint;
use serde::{Deserialize, Serialize};

/// A shorter interval measures the reports rather than the work.
pub(super) const LEAST_MS: u64 = 1_000;

/// The median of the newest intervals leaves out a pause and follows a change.
const KEPT: usize = 5;

/// Intervals whose median counts enough to decide anew.
const KNOWN: usize = 3;

/// The curve has three parameters; more counts only refine it.
const MOST_COUNTS: usize = 32;

/// The newest intervals of each number of containers: steps and milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Samples(BTreeMap<u32, Vec<(u64, u64)>>);

impl Samples {
    /// Returns true for the interval that makes a number of containers known.
    pub fn add(&mut self, containers: u32, steps: u64, ms: u64) -> bool {
        if !self.0.contains_key(&containers) && self.0.len() >= MOST_COUNTS {
            return false;
        }
        let intervals = self.0.entry(containers).or_default();
        if intervals.len() >= KEPT {
            intervals.remove(0);
        }
        let was_known = intervals.len() >= KNOWN;
        intervals.push((steps, ms));
        !was_known && intervals.len() >= KNOWN
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "285,000 years of milliseconds are exact"
    )]
    pub fn points(&self) -> Vec<SpeedPoint> {
        let point = |(containers, intervals): (&u32, &Vec<(u64, u64)>)| {
            let mut each: Vec<f64> = intervals
                .iter()
                .map(|(steps, ms)| *ms as f64 / 1000.0 / *steps as f64)
                .collect();
            each.sort_by(f64::total_cmp);
            SpeedPoint {
                containers: *containers,
                step_s: each[each.len() / 2],
                seconds: intervals.iter().map(|(_, ms)| *ms as f64 / 1000.0).sum(),
            }
        };
        let measured = self.0.iter().filter(|(_, intervals)| !intervals.is_empty());
        measured.map(point).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_does_not_count_and_a_change_does() {
        let mut samples = Samples::default();
        for ms in [1_000, 1_000, 60_000, 1_000, 1_000] {
            samples.add(4, 10, ms);
        }
        assert_eq!(samples.points()[0].step_s, 0.1);
        for _ in 0..3 {
            samples.add(4, 10, 2_000);
        }
        assert_eq!(samples.points()[0].step_s, 0.2);
    }
}
