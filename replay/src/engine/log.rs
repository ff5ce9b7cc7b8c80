//! The log in memory: what has been appended, from which the services read.

use std::sync::Arc;

use dormouse_messages::{Recorded, Sequence};

/// Events in order. What every service has folded may be taken away, so that a long run needs
/// no more memory than a short one.
#[derive(Debug, Clone, Default)]
pub struct MemoryLog {
    taken: usize,
    events: Vec<Arc<Recorded>>,
}

impl MemoryLog {
    /// A log that goes on after `sequence`; what was before is not here.
    #[must_use]
    pub fn after(sequence: Sequence) -> Self {
        Self {
            taken: usize::try_from(sequence.0).unwrap_or(usize::MAX),
            events: Vec::new(),
        }
    }

    /// The last sequence.
    #[must_use]
    pub fn head(&self) -> Sequence {
        Sequence((self.taken + self.events.len()) as u64)
    }

    /// The events that are still here.
    #[must_use]
    pub fn events(&self) -> &[Arc<Recorded>] {
        &self.events
    }

    /// The events behind `after`, up to `to`.
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

    /// Loses so many events, but never the first one; those that are lost.
    pub(super) fn go_back(&mut self, events: usize) -> Vec<Arc<Recorded>> {
        let kept = self.events.len().saturating_sub(events).max(1);
        self.events.split_off(kept.min(self.events.len()))
    }

    pub(super) fn take(&mut self) -> Vec<Arc<Recorded>> {
        self.taken += self.events.len();
        std::mem::take(&mut self.events)
    }
}
