//! The wall clock of the command line.

use dormouse_messages::Timestamp;
use dormouse_runtime::{Clock, SystemClock};

/// The time now.
#[must_use]
pub fn now() -> Timestamp {
    SystemClock.now()
}
