//! An event with the log's time. Only a [`crate::LogClock`] makes facts, so that folds never see a broker's
//! stamp.

use std::sync::Arc;

use crate::envelope::{Envelope, Recorded};
use crate::events::{Event, Writer};
use crate::ids::Sequence;
use crate::time::Timestamp;
use crate::who::By;

/// An event at a time of the log.
#[derive(Debug, Clone, Copy)]
pub struct Fact<'a> {
    pub sequence: Sequence,
    pub at: Timestamp,
    recorded: &'a Recorded,
}

/// An owned fact.
#[derive(Debug, Clone)]
pub struct KeptFact {
    at: Timestamp,
    recorded: Arc<Recorded>,
}

impl KeptFact {
    pub(crate) const fn new(recorded: Arc<Recorded>, at: Timestamp) -> Self {
        Self { at, recorded }
    }

    /// Returns the fact.
    #[must_use]
    pub fn fact(&self) -> Fact<'_> {
        Fact::new(&self.recorded, self.at)
    }

    /// Returns the log's time.
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// Returns the recorded event, for folds with their own clock.
    #[must_use]
    pub const fn recorded(&self) -> &Arc<Recorded> {
        &self.recorded
    }

    /// Returns the event, if its type is known.
    #[must_use]
    pub fn event(&self) -> Option<&Event> {
        self.recorded.event()
    }
}

impl<'a> Fact<'a> {
    pub(crate) const fn new(recorded: &'a Recorded, at: Timestamp) -> Self {
        Self {
            sequence: recorded.sequence,
            at,
            recorded,
        }
    }

    /// Returns the event, if its type is known.
    #[must_use]
    pub fn event(&self) -> Option<&'a Event> {
        self.recorded.event()
    }

    /// Returns the writer.
    #[must_use]
    pub const fn writer(&self) -> Writer {
        self.recorded.writer
    }

    /// Returns the envelope.
    #[must_use]
    pub const fn envelope(&self) -> &'a Envelope {
        &self.recorded.envelope
    }

    /// Returns the user: [`Recorded::by`].
    #[must_use]
    pub fn by(&self) -> Option<By> {
        self.recorded.by()
    }

    /// Returns the log's time when a host's clock showed `said`, if the host and the broker agree; they may
    /// share a wrong clock.
    #[must_use]
    pub fn time_of(&self, said: Timestamp) -> Timestamp {
        let stamp_us = self.recorded.stored_at.as_micros();
        let ago_us = stamp_us.saturating_sub(said.as_micros());
        Timestamp::from_micros(self.at.as_micros().saturating_sub(ago_us))
    }
}
