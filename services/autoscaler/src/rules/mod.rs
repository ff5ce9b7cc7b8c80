//! Scaling rules. A rule sees one service ([`View`]) and wishes for replicas; `decide` applies the bounds.
//!
//! - [`objective`], `closed`: latency objectives, with arrivals independent of answers or waiting for them
//! - [`hpa`], [`kpa`], [`ray`]: the rules of Kubernetes, Knative and Ray Serve

mod closed;
pub mod hpa;
pub mod kpa;
pub mod objective;
pub mod ray;

use crate::history::History;
use crate::state::Service;

/// Knative's default, used for HPA too.
pub(crate) const TARGET_SHARE: f64 = 0.7;

/// A service as a rule sees it.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    pub service: &'a Service,
    /// End of the measured time, exclusive.
    pub until: i64,
    pub objective: crate::staffing::Goal,
}

/// The wish of a rule.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wish {
    pub replicas: u32,
    /// Needed now, regardless of `containers.max`.
    pub needed: u32,
    pub held: u32,
    /// Expected once replicas are ready.
    pub forecast: f64,
    pub reason: String,
}

impl Wish {
    /// Wishes for the needed replicas.
    #[must_use]
    pub fn of(replicas: u32, forecast: f64, reason: impl Into<String>) -> Self {
        Self {
            replicas,
            needed: replicas,
            held: replicas,
            forecast,
            reason: reason.into(),
        }
    }
}

impl<'a> View<'a> {
    /// Returns the client history.
    #[must_use]
    pub fn history(&self) -> &'a History {
        &self.service.history
    }

    /// Returns the concurrent requests of one replica.
    #[must_use]
    pub fn servers_each(&self) -> u32 {
        self.service.promise.concurrency.max(1)
    }

    /// Returns the target.
    #[must_use]
    pub fn target(&self) -> u32 {
        self.service.target
    }

    /// Returns the mean requests per second.
    #[must_use]
    pub fn rate(&self, window_s: i64) -> f64 {
        self.history()
            .mean(self.until, window_s, |second| second.arrivals)
    }

    /// Wishes for the present target.
    #[must_use]
    pub fn stay(&self) -> Wish {
        Wish::of(self.target(), self.rate(10), String::new())
    }

    /// Returns seconds since the last decision, or since 1970.
    #[must_use]
    pub fn since_scaled_s(&self) -> i64 {
        let scaled = self.service.scaled.map(|scaled| scaled.at);
        let scaled = scaled.unwrap_or_default();
        self.until - scaled.as_micros().div_euclid(1_000_000)
    }
}

/// Rounds up; NaN gives 0.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to what fits; a cast of NaN is 0"
)]
pub fn whole_above(value: f64) -> u32 {
    // Tolerates rounding errors.
    (value - 1e-9).ceil().clamp(0.0, 1e9) as u32
}
