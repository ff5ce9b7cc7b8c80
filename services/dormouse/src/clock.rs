//! The clock of the command line.

use dormouse_messages::Timestamp;
use dormouse_runtime::{Clock, SystemClock};

/// Returns the current time.
#[must_use]
pub fn now() -> Timestamp {
    SystemClock.now()
}
