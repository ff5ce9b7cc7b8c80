//! Times of a step by number of containers, on one node and on several, from intervals between progress reports.

use std::collections::BTreeMap;

use dormouse_messages::speed::SpeedPoint;
use serde::{Deserialize, Serialize};

use super::curve_fit::median;

/// A shorter interval measures the reports rather than the work.
pub(super) const LEAST_MS: u64 = 1_000;

/// The median of the newest intervals leaves out a pause and follows a change.
const KEPT: usize = 5;

/// Intervals after which a median may cause a decision.
const KNOWN: usize = 3;

/// The curve has three parameters; more counts only refine it.
const MOST_COUNTS: usize = 32;

/// As `objective.crossing`, it stays below 1.
const MOST_LOST: f64 = 0.99;

/// The newest intervals of each number of containers: steps and milliseconds.
type Intervals = BTreeMap<u32, Vec<(u64, u64)>>;

/// The workers of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Workers {
    pub containers: u32,
    /// They are on more than one node.
    pub apart: bool,
}

/// The newest intervals.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Samples {
    together: Intervals,
    apart: Intervals,
}

impl Samples {
    /// Returns true for the interval that makes a number of containers known.
    pub fn add(&mut self, workers: Workers, steps: u64, ms: u64) -> bool {
        let all = if workers.apart {
            &mut self.apart
        } else {
            &mut self.together
        };
        if !all.contains_key(&workers.containers) && all.len() >= MOST_COUNTS {
            return false;
        }
        let intervals = all.entry(workers.containers).or_default();
        if intervals.len() >= KEPT {
            intervals.remove(0);
        }
        let was_known = intervals.len() >= KNOWN;
        intervals.push((steps, ms));
        !was_known && intervals.len() >= KNOWN
    }

    /// Returns a point for each number of containers: on one node where that was measured, else on several.
    pub fn points(&self) -> Vec<SpeedPoint> {
        let mut all = points(&self.apart);
        all.extend(points(&self.together));
        all.into_values().collect()
    }

    /// Returns the part of its speed that the job loses on several nodes: the mean over the numbers of
    /// containers that were measured both ways.
    pub fn crossing(&self) -> Option<f64> {
        let (together, apart) = (points(&self.together), points(&self.apart));
        let (mut lost, mut count) = (0.0, 0.0);
        for (containers, one) in &together {
            if let Some(several) = apart.get(containers) {
                lost += 1.0 - one.step_s / several.step_s;
                count += 1.0;
            }
        }
        (count > 0.0).then(|| (lost / count).clamp(0.0, MOST_LOST))
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "285,000 years of milliseconds are exact"
)]
fn points(intervals: &Intervals) -> BTreeMap<u32, SpeedPoint> {
    let point = |(containers, intervals): (&u32, &Vec<(u64, u64)>)| {
        let each = intervals
            .iter()
            .map(|(steps, ms)| *ms as f64 / 1000.0 / *steps as f64);
        let point = SpeedPoint {
            containers: *containers,
            step_s: median(each.collect())?,
            seconds: intervals.iter().map(|(_, ms)| *ms as f64 / 1000.0).sum(),
        };
        Some((*containers, point))
    };
    intervals.iter().filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_does_not_count_and_a_change_does() {
        let mut samples = Samples::default();
        for ms in [1_000, 1_000, 60_000, 1_000, 1_000] {
            samples.add(four(false), 10, ms);
        }
        assert_eq!(samples.points()[0].step_s, 0.1);
        for _ in 0..3 {
            samples.add(four(false), 10, 2_000);
        }
        assert_eq!(samples.points()[0].step_s, 0.2);
    }

    #[test]
    fn the_loss_on_several_nodes_needs_both_measurements() {
        let mut samples = Samples::default();
        samples.add(four(true), 10, 2_000);
        assert_eq!(
            (samples.points()[0].step_s, samples.crossing()),
            (0.2, None)
        );
        samples.add(four(false), 10, 1_500);
        assert_eq!(samples.points()[0].step_s, 0.15);
        assert_eq!(samples.points().len(), 1);
        assert!((samples.crossing().expect("both") - 0.25).abs() < 1e-9);
    }

    fn four(apart: bool) -> Workers {
        Workers {
            containers: 4,
            apart,
        }
    }
}
