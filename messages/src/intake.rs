//! A submission between the broker and the log, and the counts that limit a tenant's rate.

use serde::{Deserialize, Serialize};

use crate::subject::MEASURED;
use crate::time::Timestamp;
use crate::who::By;

/// Length of the windows in which a tenant's submissions are counted and limited.
pub const RATE_WINDOW_MS: u64 = 1_000;

/// A message that a tenant published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// Sequence in the ingress stream.
    pub sequence: u64,
    /// Time at which the broker stored the message.
    pub at: Timestamp,
    /// Tenant token of the subject, as published.
    pub tenant: String,
    pub verb: String,
    /// The publishing user, from the subject.
    pub by: Option<By>,
    pub content_type: Option<String>,
    /// W3C trace context, from the headers.
    pub traceparent: Option<String>,
    pub payload: Vec<u8>,
}

/// Submissions of one tenant that are refused together because they exceed its rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shed {
    /// Ingress sequence of the first.
    pub first: u64,
    /// Ingress sequence of the last; other tenants' submissions lie between.
    pub last: u64,
    pub count: u64,
    pub since: Timestamp,
    pub until: Timestamp,
    pub max_rate: u32,
    pub measured: bool,
}

/// Limits on a tenant's recorded messages per window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// Submissions, cancellations and revisions; `None` for no limit.
    pub submissions: Option<u32>,
    pub measured: u32,
}

impl Rates {
    /// Returns the limit on messages of `verb`.
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
    /// Ingress sequence of the last; 0 before the first.
    pub last: u64,
    /// Time at which the broker stored the last.
    pub at: Timestamp,
    /// Window of the last, counted from the epoch.
    pub window: u64,
    /// Recorded submissions, cancellations and revisions in that window.
    pub taken: u32,
    /// Recorded measurements in that window.
    #[serde(default)]
    pub measured: u32,
    /// Recorded and not decided.
    pub undecided: u32,
}

/// Returns the rate window of a time.
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
    /// True if a message is on the log already. A known sequence with a later time is a new message: the
    /// ingress stream was recreated or lost its tail.
    #[must_use]
    pub fn knows(&self, sequence: u64, at: Timestamp) -> bool {
        sequence <= self.last && at <= self.at
    }

    /// Counts one recorded message.
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

    /// True if a message of this verb at `at` would exceed `max_rate`.
    #[must_use]
    pub fn is_too_fast(&self, verb: &str, at: Timestamp, max_rate: u32) -> bool {
        let taken = match verb {
            MEASURED => self.measured,
            _ => self.taken,
        };
        window_of(at) == self.window && taken >= max_rate
    }
}
