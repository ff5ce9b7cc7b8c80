//! A submission between the broker and the log, and what a state says of its tenant.

use serde::{Deserialize, Serialize};

use crate::subject::MEASURED;
use crate::time::Timestamp;
use crate::who::By;

/// Submissions are counted, and refused, by windows of this length: a tenant's rate is what it may
/// have recorded in one of them.
pub const RATE_WINDOW_MS: u64 = 1_000;

/// What a tenant published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// Its place in the ingress stream.
    pub sequence: u64,
    /// When the broker stored it there.
    pub at: Timestamp,
    /// The subject's tenant, as published.
    pub tenant: String,
    /// The subject's verb.
    pub verb: String,
    /// Who published it, by the subject.
    pub by: Option<By>,
    /// The header of that name.
    pub content_type: Option<String>,
    /// W3C trace context, from the headers.
    pub traceparent: Option<String>,
    /// The payload.
    pub payload: Vec<u8>,
}

/// Submissions of one tenant that are refused together, because they came too fast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shed {
    /// The ingress sequence of the first.
    pub first: u64,
    /// That of the last; other tenants' lie between.
    pub last: u64,
    /// How many they are.
    pub count: u64,
    /// When the broker stored the first.
    pub since: Timestamp,
    /// When it stored the last.
    pub until: Timestamp,
    /// What the tenant may have recorded in a second.
    pub max_rate: u32,
    /// Whether they are measurements.
    pub measured: bool,
}

/// How many messages of a tenant are recorded in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// Submissions, cancellations and revisions; `None` for any number.
    pub submissions: Option<u32>,
    /// Measurements.
    pub measured: u32,
}

impl Rates {
    /// Of messages that ask for `verb`.
    #[must_use]
    pub fn of(&self, verb: &str) -> Option<u32> {
        match verb {
            MEASURED => Some(self.measured),
            _ => self.submissions,
        }
    }
}

/// Where a tenant's submissions stand on the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stand {
    /// The ingress sequence of the last one on the log; 0 before the first.
    pub last: u64,
    /// When the broker stored that in the ingress stream.
    pub at: Timestamp,
    /// The window of the last one that was recorded, counted from the epoch.
    pub window: u64,
    /// How many submissions, cancellations and revisions were recorded in that window.
    pub taken: u32,
    /// How many measurements.
    #[serde(default)]
    pub measured: u32,
    /// How many are on the log and not decided.
    pub undecided: u32,
}

/// The rate window that a time lies in.
#[must_use]
pub fn window_of(at: Timestamp) -> u64 {
    u64::try_from(at.as_micros()).unwrap_or(0) / (RATE_WINDOW_MS * 1_000)
}

/// When a window is over.
#[must_use]
pub fn end_of(window: u64) -> Timestamp {
    Timestamp::default().plus_ms((window + 1).saturating_mul(RATE_WINDOW_MS))
}

impl Stand {
    /// Whether a message of the ingress stream is on the log already. One with a sequence that was
    /// there before and a later time is another: the stream was made anew, or has lost its tail.
    #[must_use]
    pub fn knows(&self, sequence: u64, at: Timestamp) -> bool {
        sequence <= self.last && at <= self.at
    }

    /// One more is recorded.
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

    /// Whether one of this verb that came at `at` is beyond `max_rate`.
    #[must_use]
    pub fn is_too_fast(&self, verb: &str, at: Timestamp, max_rate: u32) -> bool {
        let taken = match verb {
            MEASURED => self.measured,
            _ => self.taken,
        };
        window_of(at) == self.window && taken >= max_rate
    }
}
