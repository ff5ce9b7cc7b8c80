//! The clocks of the command line.

use dormouse_messages::Timestamp;
use dormouse_runtime::{Clock, SteadyClock, SystemClock};

/// The time now.
#[must_use]
pub fn now() -> Timestamp {
    SystemClock.now()
}

/// The seconds since some moment, by a clock that does not step.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a decision takes seconds")]
pub fn steady_s() -> f64 {
    SteadyClock.now().as_micros() as f64 / 1e6
}
