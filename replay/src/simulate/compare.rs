//! Compares policies over the same scenarios: the mean relative difference of each figure to the first
//! policy, with its confidence interval.
//!
//! Both policies see the same jobs, so the interval is Student's t over the paired differences: mean ±
//! t(0.975, n − 1) · s / √n.

use serde::Serialize;

use super::figures::Figures;

/// The name of a figure, its value, and true if less is better.
type Metric = (&'static str, fn(&Figures) -> f64, bool);

/// The compared figures.
pub const METRICS: [Metric; 6] = [
    ("utilization", |figures| figures.utilization, false),
    ("loss", |figures| figures.loss, true),
    ("jct_s", |figures| figures.jct_s.mean, true),
    ("waiting_s", |figures| figures.waiting_s.mean, true),
    ("makespan_s", |figures| figures.makespan_s, true),
    (
        "adjustments",
        |figures| super::record::count(figures.adjustments),
        true,
    ),
];

/// The difference of a policy's figure to the first policy's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Difference {
    pub metric: &'static str,
    /// Mean of (this − first) / first over the scenarios.
    pub mean: f64,
    /// Half of the 95 % confidence interval; `None` for fewer than two scenarios.
    pub plus_minus: Option<f64>,
    pub better: usize,
    /// Scenarios in which both are equal, to a millionth.
    pub equal: usize,
    /// Scenarios in which the first policy's figure is not 0.
    pub scenarios: usize,
}

/// Compares `these` with `first`, scenario by scenario.
#[must_use]
pub fn compare(first: &[&Figures], these: &[&Figures]) -> Vec<Difference> {
    let one = |(metric, of, less): &Metric| {
        let pairs = first
            .iter()
            .zip(these)
            .map(|(first, this)| (of(first), of(this)));
        let relative = pairs
            .filter(|(first, _)| *first != 0.0)
            .map(|(first, this)| (this - first) / first);
        let values: Vec<f64> = relative.collect();
        let is_better = |value: &&f64| {
            if *less {
                **value < -1e-6
            } else {
                **value > 1e-6
            }
        };
        let (mean, plus_minus) = interval(&values);
        Difference {
            metric,
            mean,
            plus_minus,
            better: values.iter().filter(is_better).count(),
            equal: values.iter().filter(|value| value.abs() <= 1e-6).count(),
            scenarios: values.len(),
        }
    };
    METRICS.iter().map(one).collect()
}

fn interval(values: &[f64]) -> (f64, Option<f64>) {
    let n = super::record::count(values.len() as u64);
    if values.is_empty() {
        return (0.0, None);
    }
    let mean = values.iter().sum::<f64>() / n;
    if values.len() < 2 {
        return (mean, None);
    }
    let squares: f64 = values
        .iter()
        .map(|value| (value - mean) * (value - mean))
        .sum();
    let deviation = (squares / (n - 1.0)).sqrt();
    (
        mean,
        Some(student_t(values.len() - 1) * deviation / n.sqrt()),
    )
}

/// The 0.975 quantile of Student's t: a table, then z + (z³ + z) / 4ν, exact to three digits beyond 30
/// degrees of freedom.
fn student_t(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    let z = 1.959_964;
    let beyond = || z + (z * z * z + z) / (4.0 * super::record::count(freedom as u64));
    TABLE
        .get(freedom.saturating_sub(1))
        .copied()
        .unwrap_or_else(beyond)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_loss(loss: f64) -> Figures {
        Figures {
            loss,
            ..Figures::default()
        }
    }

    #[test]
    fn paired_differences_have_the_interval_of_students_t() {
        let (first, these) = ([1.0, 2.0, 4.0], [0.9, 1.6, 3.6]);
        let (first, these) = (first.map(with_loss), these.map(with_loss));
        let differences = compare(&first.each_ref(), &these.each_ref());
        let loss = differences
            .iter()
            .find(|one| one.metric == "loss")
            .expect("compared");
        assert!((loss.mean + 0.4 / 3.0).abs() < 1e-12, "{loss:?}");
        // −0.1, −0.2, −0.1: s = 0.057735, s / √3 = 1/30, t(2) = 4.303.
        let expected = 4.303 / 30.0;
        assert!(
            (loss.plus_minus.expect("three") - expected).abs() < 1e-6,
            "{loss:?}"
        );
        assert_eq!((loss.better, loss.scenarios), (3, 3));
        let jct = differences
            .iter()
            .find(|one| one.metric == "jct_s")
            .expect("compared");
        assert_eq!(jct.scenarios, 0);
    }
}
