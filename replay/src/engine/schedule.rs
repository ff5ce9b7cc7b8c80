//! Keeps due items by time, and in the order of planning within one instant.

use std::collections::BTreeMap;

use dormouse_messages::Timestamp;

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

    pub fn add(&mut self, at: Timestamp, what: T) {
        self.planned += 1;
        self.due.insert((at, self.planned), what);
    }

    pub fn next_due(&self) -> Option<Timestamp> {
        self.due.keys().next().map(|(at, _)| *at)
    }

    pub fn take(&mut self, now: Timestamp) -> Option<T> {
        let first = self.due.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}
