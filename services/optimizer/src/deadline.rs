//! When a decision has to end, whatever it has found by then.

use std::time::Instant;

/// The time that one decision may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Option<(Instant, f64)>);

impl Deadline {
    /// `seconds` from now on, or no limit.
    pub fn new(seconds: Option<f64>) -> Self {
        Self(seconds.map(|seconds| (Instant::now(), seconds)))
    }

    /// The seconds left, if limited.
    pub fn left(&self) -> Option<f64> {
        self.0
            .map(|(start, seconds)| (seconds - start.elapsed().as_secs_f64()).max(0.0))
    }

    /// Whether nothing is left.
    pub fn is_over(&self) -> bool {
        self.left().is_some_and(|left| left <= 0.0)
    }
}
