//! The speed of a job by its number of containers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Longest table of speeds in a job document.
pub const MOST_SPEEDS: usize = 1_024;

/// The time of a step with n containers: T(n) = a + b/n + c(n − 1) seconds, with a, b, c ≥ 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Curve {
    /// Seconds that no container saves.
    pub a: f64,
    /// Seconds of one container that are divided.
    pub b: f64,
    /// Seconds that each further container adds.
    pub c: f64,
}

impl Curve {
    /// Returns the seconds per step.
    #[must_use]
    pub fn step_s(&self, containers: u32) -> f64 {
        let n = f64::from(containers.max(1));
        self.a + self.b / n + self.c * (n - 1.0)
    }

    /// Returns the useful containers, T(1) / T(n): the speed in speeds of one container.
    #[must_use]
    pub fn useful(&self, containers: u32) -> f64 {
        if containers == 0 {
            return 0.0;
        }
        self.step_s(1) / self.step_s(containers).max(f64::MIN_POSITIVE)
    }

    /// Returns the fastest number of containers up to `most`: √(b/c), rounded to the better side.
    #[must_use]
    pub fn peak(&self, most: u32) -> u32 {
        let most = most.max(1);
        if self.c <= 0.0 {
            return most;
        }
        let at = (self.b / self.c).sqrt();
        if at >= f64::from(most) {
            return most;
        }
        let below = (at as u32).max(1);
        let above = (below + 1).min(most);
        if self.step_s(above) < self.step_s(below) {
            above
        } else {
            below
        }
    }
}

/// The origin of the points of a curve.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum CurveSource {
    /// The job's progress at two or more numbers of containers.
    Measured,
    /// The progress of the job and of the tenant's jobs with the same name without its last number.
    Family,
    /// The job document, for lack of progress at two numbers of containers.
    Document,
}

/// A measured time of a step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpeedPoint {
    /// Number of containers, without roles.
    pub containers: u32,
    /// Seconds per step: the median over intervals between progress reports.
    pub step_s: f64,
    /// Seconds of these intervals.
    pub seconds: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_the_fastest_count() {
        for (a, b, c) in [
            (0.1, 4.0, 0.01),
            (0.0, 1.0, 0.3),
            (0.2, 0.5, 2.0),
            (0.1, 3.0, 0.0),
        ] {
            let curve = Curve { a, b, c };
            for most in [1, 2, 7, 64] {
                let fastest = (1..=most).max_by(|x, y| {
                    let (x, y) = (curve.useful(*x), curve.useful(*y));
                    x.total_cmp(&y)
                });
                let peak = curve.peak(most);
                let best = fastest.map(|it| curve.useful(it));
                assert!(
                    best.is_some_and(|best| best - curve.useful(peak) < 1e-12),
                    "{curve:?} {most}"
                );
            }
        }
    }
}
