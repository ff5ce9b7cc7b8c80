//! Step functions, thinned without visible loss.

use dormouse_messages::Timestamp;
use serde::{Deserialize, Serialize};

/// The points of a job's step function: hundreds of resizes.
pub(crate) const JOB_POINTS: usize = 512;

/// The value from a time on.
pub type Point = (Timestamp, f64);

/// A step function of bounded points, with exact mean and extremes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Steps {
    points: Vec<Point>,
    /// In value-seconds, up to the last point.
    integral: f64,
    since: Timestamp,
    first: Option<Timestamp>,
    last: f64,
    min: f64,
    max: f64,
}

/// Exact figures of a step function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub mean: f64,
    pub min: f64,
    pub max: f64,
    pub last: f64,
}

impl Steps {
    /// Sets the value from `at` on, in at most `limit` points.
    pub fn push(&mut self, at: Timestamp, value: f64, limit: usize) {
        if self.first.is_none() {
            self.first = Some(at);
            (self.min, self.max) = (value, value);
        } else {
            // Only an exactly equal value is no change.
            if self.last.to_bits() == value.to_bits() {
                return;
            }
            self.integral += self.last * at.seconds_since(self.since);
            self.min = self.min.min(value);
            self.max = self.max.max(value);
        }
        (self.since, self.last) = (at, value);
        match self.points.last_mut() {
            Some(last) if last.0 == at => last.1 = value,
            _ => self.points.push((at, value)),
        }
        if self.points.len() > limit {
            self.points = thin(&self.points, limit / 2);
        }
    }

    /// Returns the last point, with exact figures.
    #[must_use]
    pub fn tail(&self) -> Self {
        let last = self.points.last().copied();
        Self {
            points: last.into_iter().collect(),
            ..*self
        }
    }

    /// Returns the points, in order.
    #[must_use]
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Returns the last value.
    #[must_use]
    pub const fn last(&self) -> f64 {
        self.last
    }

    /// Returns the time of the first value.
    #[must_use]
    pub const fn first(&self) -> Option<Timestamp> {
        self.first
    }

    /// Returns ∫ value dt until `now`, in value-seconds.
    #[must_use]
    pub fn integral(&self, now: Timestamp) -> f64 {
        self.integral + self.last * now.seconds_since(self.since).max(0.0)
    }

    /// True if no change after `to` is known.
    #[must_use]
    pub fn ends_by(&self, to: Timestamp) -> bool {
        self.since <= to
    }

    /// Returns the exact figures until `now`.
    #[must_use]
    pub fn summary(&self, now: Timestamp) -> Summary {
        let length_s = self.first.map_or(0.0, |first| now.seconds_since(first));
        let mean = if length_s > 0.0 {
            self.integral(now) / length_s
        } else {
            self.last
        };
        Summary {
            mean,
            min: self.min,
            max: self.max,
            last: self.last,
        }
    }

    /// Returns the points in a window, from the value held at its start.
    #[must_use]
    pub fn within(&self, from: Option<Timestamp>, to: Option<Timestamp>) -> Vec<Point> {
        let from_index = from.map_or(0, |from| self.points.partition_point(|p| p.0 < from));
        let to_index = to.map_or(self.points.len(), |to| {
            self.points.partition_point(|p| p.0 <= to)
        });
        let inside = self.points.get(from_index..to_index).unwrap_or_default();
        let held = from_index
            .checked_sub(1)
            .map(|before| self.points[before].1);
        let starts_later = inside.first().map(|p| p.0) != from;
        let edge = match (from, held) {
            (Some(from), Some(value)) if starts_later => Some((from, value)),
            _ => None,
        };
        edge.into_iter().chain(inside.iter().copied()).collect()
    }
}

/// Summarises bare points until `to`.
#[must_use]
pub fn summarise(points: &[Point], to: Timestamp) -> Summary {
    let mut steps = Steps::default();
    for (at, value) in points {
        steps.push(*at, *value, usize::MAX);
    }
    steps.summary(to)
}

/// Thins to at most `limit` points (at least 4) without changing a drawing of that width: keeps the first,
/// least, greatest and last of equal slices of time (M4; Jugel, Jerzak, Hackenbroich, Markl: "M4: A
/// Visualization-Oriented Time Series Data Aggregation", VLDB 2014).
#[must_use]
pub fn thin(points: &[Point], limit: usize) -> Vec<Point> {
    let limit = limit.max(4);
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Vec::new();
    };
    if points.len() <= limit {
        return points.to_vec();
    }
    let slices = i64::try_from(limit / 4).unwrap_or(1);
    let length_us = (last.0.as_micros() - first.0.as_micros()).max(1);
    let slice_us = length_us / slices + 1;
    let slice = |point: &Point| (point.0.as_micros() - first.0.as_micros()) / slice_us;
    let mut kept = Vec::with_capacity(limit);
    for chunk in points.chunk_by(|a, b| slice(a) == slice(b)) {
        let by_value = |a: &usize, b: &usize| chunk[*a].1.total_cmp(&chunk[*b].1);
        let indices = || 0..chunk.len();
        let least = indices().min_by(by_value).unwrap_or(0);
        let greatest = indices().max_by(by_value).unwrap_or(0);
        let mut chosen = [0, least, greatest, chunk.len() - 1];
        chosen.sort_unstable();
        let mut previous = None;
        for index in chosen {
            if previous != Some(index) {
                kept.push(chunk[index]);
            }
            previous = Some(index);
        }
    }
    kept
}

#[expect(clippy::cast_precision_loss, reason = "a figure to read")]
pub(crate) fn fraction(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_micros(second * 1_000_000)
    }

    #[test]
    fn equal_values_are_one_step() {
        let mut steps = Steps::default();
        for (second, value) in [(0, 1.0), (1, 1.0), (2, 3.0), (2, 2.0)] {
            steps.push(at(second), value, 100);
        }
        assert_eq!(steps.points(), [(at(0), 1.0), (at(2), 2.0)]);
        let summary = steps.summary(at(4));
        assert!((summary.mean - 1.5).abs() < 1e-12);
        assert_eq!(summary.last, 2.0);
    }

    #[test]
    fn a_window_begins_with_the_value_held() {
        let mut steps = Steps::default();
        for second in 0..10_u32 {
            steps.push(at(i64::from(second) * 10), f64::from(second), 100);
        }
        let window = steps.within(Some(at(15)), Some(at(30)));
        assert_eq!(window, [(at(15), 1.0), (at(20), 2.0), (at(30), 3.0)]);
        assert_eq!(steps.within(Some(at(500)), None), [(at(500), 9.0)]);
    }

    #[test]
    fn thinning_keeps_the_extremes_and_the_exact_mean() {
        let mut steps = Steps::default();
        for second in 0..10_000_u32 {
            let peak = if second == 5_000 { 100.0 } else { 0.0 };
            steps.push(at(i64::from(second)), f64::from(second % 7) + peak, 400);
        }
        assert!(steps.points().len() <= 400);
        assert!(steps.points().iter().any(|point| point.1 >= 100.0));
        let summary = steps.summary(at(10_000));
        assert!((summary.mean - 3.01).abs() < 0.01, "{}", summary.mean);
        assert!(steps.points().is_sorted_by_key(|point| point.0));
    }
}
