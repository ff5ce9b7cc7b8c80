//! The rules by which replicas are wished for, one file each.
//!
//! A rule sees one service ([`View`]) and says how many replicas it wishes for, between
//! `containers.min` and `max` or beyond: the bounds are kept by `decide`.

mod closed;
pub mod hpa;
pub mod kpa;
pub mod objective;
pub mod ray;

use crate::history::History;
use crate::state::Service;

/// The part of its limit that HPA and KPA aim at (Knative's default).
pub(crate) const TARGET_SHARE: f64 = 0.7;

/// A service as a rule sees it.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The service.
    pub service: &'a Service,
    /// The second behind the last one that is measured.
    pub until: i64,
    /// Its objective.
    pub objective: crate::staffing::Goal,
}

/// What a rule wishes for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wish {
    /// Replicas.
    pub replicas: u32,
    /// Replicas that are needed now, `containers.max` or not.
    pub needed: u32,
    /// The most that were needed lately.
    pub held: u32,
    /// Requests a second that are expected once they are there.
    pub forecast: f64,
    /// Why.
    pub reason: String,
}

impl Wish {
    /// So many, which are what is needed.
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
    /// What clients saw.
    #[must_use]
    pub fn history(&self) -> &'a History {
        &self.service.history
    }

    /// Requests that one replica works on at once.
    #[must_use]
    pub fn servers_each(&self) -> u32 {
        self.service.promise.concurrency.max(1)
    }

    /// How many replicas it is to have.
    #[must_use]
    pub fn target(&self) -> u32 {
        self.service.target
    }

    /// Requests a second in the last seconds.
    #[must_use]
    pub fn rate(&self, window_s: i64) -> f64 {
        self.history()
            .mean(self.until, window_s, |second| second.arrivals)
    }

    /// The present number of replicas with a reason.
    #[must_use]
    pub fn stay(&self) -> Wish {
        Wish::of(self.target(), self.rate(10), String::new())
    }

    /// Seconds since the last decision about it; from the log's beginning where there was none.
    #[must_use]
    pub fn since_scaled_s(&self) -> i64 {
        let scaled = self.service.scaled.map(|scaled| scaled.at);
        let scaled = scaled.unwrap_or_default();
        self.until - scaled.as_micros().div_euclid(1_000_000)
    }
}

/// The least whole number that is not below `value`; what is no number is 0.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to what fits; a cast of NaN is 0"
)]
pub fn whole_above(value: f64) -> u32 {
    // Sums of products are off by their last bits.
    (value - 1e-9).ceil().clamp(0.0, 1e9) as u32
}
