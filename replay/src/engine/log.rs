//! The log in memory, from which the services read.

use std::sync::Arc;

use dormouse_messages::{Recorded, Sequence};

/// Events in order. Folded events may be taken away, so that memory stays bounded in long runs.
#[derive(Debug, Clone, Default)]
pub struct MemoryLog {
    taken: usize,
    events: Vec<Arc<Recorded>>,
}

impl MemoryLog {
    /// Begins a log that continues after `sequence`, without the earlier events.
    #[must_use]
    pub fn after(sequence: Sequence) -> Self {
        Self {
            taken: usize::try_from(sequence.0).unwrap_or(usize::MAX),
            events: Vec::new(),
        }
    }

    /// Returns the last sequence.
    #[must_use]
    pub fn head(&self) -> Sequence {
        Sequence((self.taken + self.events.len()) as u64)
    }

    /// Returns the events that are still here.
    #[must_use]
    pub fn events(&self) -> &[Arc<Recorded>] {
        &self.events
    }

    /// Returns the events after `after`, up to `to`.
    #[must_use]
    pub fn between(&self, after: Sequence, to: Sequence) -> &[Arc<Recorded>] {
        let index = |sequence: Sequence| {
            let sequence = usize::try_from(sequence.0).unwrap_or(usize::MAX);
            sequence.saturating_sub(self.taken)
        };
        self.events.get(index(after)..index(to)).unwrap_or_default()
    }

    pub(super) fn push(&mut self, recorded: Arc<Recorded>) {
        self.events.push(recorded);
    }

    /// Drops the last `events` events, but never the first of the log; returns the dropped ones.
    pub(super) fn go_back(&mut self, events: usize) -> Vec<Arc<Recorded>> {
        let kept = self.events.len().saturating_sub(events).max(1);
        self.events.split_off(kept.min(self.events.len()))
    }

    pub(super) fn take(&mut self) -> Vec<Arc<Recorded>> {
        self.taken += self.events.len();
        std::mem::take(&mut self.events)
    }
}
