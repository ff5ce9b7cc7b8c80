//! An event with the log's time: what folds that answer questions see of the log.
//!
//! Only a [`crate::LogClock`] makes one, so that a fold of facts cannot see a broker's stamp, which
//! steps with the clock of the broker.

use std::sync::Arc;

use crate::envelope::{Envelope, Recorded};
use crate::events::{Event, Writer};
use crate::ids::Sequence;
use crate::time::Timestamp;
use crate::who::By;

/// An event of the log, at a time of the log.
#[derive(Debug, Clone, Copy)]
pub struct Fact<'a> {
    /// Its place in the one total order.
    pub sequence: Sequence,
    /// The time of the log.
    pub at: Timestamp,
    recorded: &'a Recorded,
}

/// A fact that is kept for later.
#[derive(Debug, Clone)]
pub struct KeptFact {
    at: Timestamp,
    recorded: Arc<Recorded>,
}

impl KeptFact {
    pub(crate) const fn new(recorded: Arc<Recorded>, at: Timestamp) -> Self {
        Self { at, recorded }
    }

    /// The fact.
    #[must_use]
    pub fn fact(&self) -> Fact<'_> {
        Fact::new(&self.recorded, self.at)
    }

    /// The time of the log.
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// As it stands on the log, for the deciders' folds, which have a clock of their own.
    #[must_use]
    pub const fn recorded(&self) -> &Arc<Recorded> {
        &self.recorded
    }

    /// The event, if this build knows its type.
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

    /// The event, if this build knows its type.
    #[must_use]
    pub fn event(&self) -> Option<&'a Event> {
        self.recorded.event()
    }

    /// Who wrote it.
    #[must_use]
    pub const fn writer(&self) -> Writer {
        self.recorded.writer
    }

    /// The envelope.
    #[must_use]
    pub const fn envelope(&self) -> &'a Envelope {
        &self.recorded.envelope
    }

    /// Who did it: [`Recorded::by`].
    #[must_use]
    pub fn by(&self) -> Option<By> {
        self.recorded.by()
    }

    /// The time of the log at which a host's clock showed `said`. That clock is compared with the
    /// broker's at this event: both are a day off where both belong to one host.
    #[must_use]
    pub fn time_of(&self, said: Timestamp) -> Timestamp {
        let stamp_us = self.recorded.stored_at.as_micros();
        let ago_us = stamp_us.saturating_sub(said.as_micros());
        Timestamp::from_micros(self.at.as_micros().saturating_sub(ago_us))
    }
}
