//! The records of a simulation: jobs, series over time, and distributions.

use dormouse_messages::JobId;
use serde::{Deserialize, Serialize};

/// The second from which a value holds, and the value.
pub type Point = (f64, f64);

/// A job's containers during a time span.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bar {
    pub from_s: f64,
    pub to_s: f64,
    pub containers: u32,
}

/// The end of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    Completed,
    Failed,
    Cancelled,
}

/// One job; times are seconds from the beginning.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobRecord {
    pub job: JobId,
    pub submitted_s: f64,
    pub started_s: Option<f64>,
    pub ended_s: f64,
    pub end: End,
    pub bars: Vec<Bar>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Series {
    pub points: Vec<Point>,
}

impl Series {
    pub fn push(&mut self, at_s: f64, value: f64) {
        match self.points.last_mut() {
            Some(last) if last.0 >= at_s => last.1 = value,
            Some(last) if (last.1 - value).abs() < 1e-12 => {}
            _ => self.points.push((at_s, value)),
        }
    }

    pub fn mean(&self, from_s: f64, to_s: f64) -> f64 {
        mean(&self.points, from_s, to_s)
    }

    pub fn largest(&self) -> f64 {
        self.points.iter().map(|point| point.1).fold(0.0, f64::max)
    }
}

/// Returns the mean of a step function from `from_s` to `to_s`; 0 before the first point.
#[must_use]
pub fn mean(points: &[Point], from_s: f64, to_s: f64) -> f64 {
    let ends = points.iter().skip(1).map(|point| point.0);
    let ends = ends.chain([f64::INFINITY]);
    let parts = points
        .iter()
        .zip(ends)
        .map(|((since_s, value), end_s)| (end_s.min(to_s) - since_s.max(from_s)).max(0.0) * value);
    parts.sum::<f64>() / (to_s - from_s).max(f64::MIN_POSITIVE)
}

/// A distribution in its own unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub max: f64,
}

impl Percentiles {
    /// Computes nearest-rank percentiles; all 0 without values.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        values.sort_by(f64::total_cmp);
        let rank = |percent: usize| {
            let index = (values.len() * percent).div_ceil(100).saturating_sub(1);
            values.get(index).copied().unwrap_or(0.0)
        };
        Self {
            mean: values.iter().sum::<f64>() / count(values.len() as u64),
            p50: rank(50),
            p90: rank(90),
            p99: rank(99),
            max: rank(100),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts below 2^53 are exact")]
pub(super) fn count(value: u64) -> f64 {
    value as f64
}
