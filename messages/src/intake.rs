//! Submissions between the broker and the log, and the rate limit.

use serde::{Deserialize, Serialize};

use crate::subject::MEASURED;
use crate::time::Timestamp;
use crate::who::By;

/// Submissions are counted and limited per window of this length.
pub const RATE_WINDOW_MS: u64 = 1_000;

/// A tenant's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    pub sequence: u64,
    pub at: Timestamp,
    pub tenant: String,
    pub verb: String,
    pub by: Option<By>,
    pub content_type: Option<String>,
    pub traceparent: Option<String>,
    pub payload: Vec<u8>,
}

/// Refused together, as they exceed the tenant's rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimited {
    pub first: u64,
    /// Other tenants' submissions lie between.
    pub last: u64,
    pub count: u64,
    pub since: Timestamp,
    pub until: Timestamp,
    pub max_rate: u32,
    pub measured: bool,
}

/// Limits on a tenant's messages per window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// Without measurements; `None` for no limit.
    pub submissions: Option<u32>,
    pub measured: u32,
}

impl Rates {
    /// Returns the limit for `verb`.
    #[must_use]
    pub fn of(&self, verb: &str) -> Option<u32> {
        match verb {
            MEASURED => Some(self.measured),
            _ => self.submissions,
        }
    }
}

/// A tenant's submissions on the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stand {
    /// Ingress sequence; 0 before the first.
    pub last: u64,
    pub at: Timestamp,
    pub window: u64,
    /// In that window, without measurements.
    pub taken: u32,
    #[serde(default)]
    pub measured: u32,
    /// Recorded and not decided.
    pub undecided: u32,
}

/// Returns a time's window.
#[must_use]
pub fn window_of(at: Timestamp) -> u64 {
    u64::try_from(at.as_micros()).unwrap_or(0) / (RATE_WINDOW_MS * 1_000)
}

/// Returns the end of a window.
#[must_use]
pub fn end_of(window: u64) -> Timestamp {
    Timestamp::default().plus_ms((window + 1).saturating_mul(RATE_WINDOW_MS))
}

impl Stand {
    /// True if the log has the message. A known sequence with a later time is new: the stream was recreated
    /// or lost its tail.
    #[must_use]
    pub fn knows(&self, sequence: u64, at: Timestamp) -> bool {
        sequence <= self.last && at <= self.at
    }

    /// Counts a recorded message.
    pub fn record(&mut self, verb: &str, sequence: u64, at: Timestamp) {
        let window = window_of(at);
        if window != self.window {
            (self.window, self.taken, self.measured) = (window, 0, 0);
        }
        let count = match verb {
            MEASURED => &mut self.measured,
            _ => &mut self.taken,
        };
        *count = count.saturating_add(1);
        (self.last, self.at) = (sequence, at);
    }

    /// True if a message at `at` would exceed `max_rate`.
    #[must_use]
    pub fn is_too_fast(&self, verb: &str, at: Timestamp, max_rate: u32) -> bool {
        let taken = match verb {
            MEASURED => self.measured,
            _ => self.taken,
        };
        window_of(at) == self.window && taken >= max_rate
    }
}
