//! The clocks of the command line.

use dormouse_messages::Timestamp;
use dormouse_runtime::{Clock, SteadyClock, SystemClock};

/// Returns the current time.
#[must_use]
pub fn now() -> Timestamp {
    SystemClock.now()
}

/// Returns the seconds of a monotonic clock, for intervals only.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a decision takes seconds")]
pub fn steady_s() -> f64 {
    SteadyClock.now().as_micros() as f64 / 1e6
}
