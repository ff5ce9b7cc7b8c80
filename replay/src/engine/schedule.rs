//! What is due, and when: of what is due at one instant, that comes first which was planned first.

use std::collections::BTreeMap;

use dormouse_messages::Timestamp;

/// Things in the order in which they are due.
#[derive(Debug, Clone)]
pub(super) struct Schedule<T> {
    due: BTreeMap<(Timestamp, u64), T>,
    planned: u64,
}

impl<T> Schedule<T> {
    pub const fn new() -> Self {
        Self {
            due: BTreeMap::new(),
            planned: 0,
        }
    }

    /// Plans something for then.
    pub fn add(&mut self, at: Timestamp, what: T) {
        self.planned += 1;
        self.due.insert((at, self.planned), what);
    }

    /// When the next is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.due.keys().next().map(|(at, _)| *at)
    }

    /// The next that is due by now.
    pub fn take(&mut self, now: Timestamp) -> Option<T> {
        let first = self.due.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}
