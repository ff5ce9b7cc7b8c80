//! The work of a decision, and the limits met on the way.

use std::cell::Cell;

use dormouse_messages::events::StoppedBy;

/// Counts steps instead of time: every machine stops at the same place.
#[derive(Debug)]
pub(crate) struct Work {
    limit: u64,
    left: Cell<u64>,
    met: Cell<Option<StoppedBy>>,
    open: Cell<bool>,
}

impl Work {
    /// `limit` is in steps ([`crate::problem::DECISION_WORK`]).
    pub const fn new(limit: u64) -> Self {
        Self {
            limit,
            left: Cell::new(limit),
            met: Cell::new(None),
            open: Cell::new(false),
        }
    }

    pub const fn left(&self) -> u64 {
        self.left.get()
    }

    pub const fn spent(&self) -> u64 {
        self.limit - self.left()
    }

    pub fn spend(&self, steps: u64) {
        self.left.set(self.left().saturating_sub(steps));
    }

    /// Reports and records that the limit is met: skipped work might have changed the decision.
    pub fn is_over(&self) -> bool {
        let over = self.left() == 0;
        if over {
            self.meet(StoppedBy::Work);
        }
        over
    }

    /// The work limit outranks the node limit.
    pub fn meet(&self, limit: StoppedBy) {
        self.met.set(self.met.get().max(Some(limit)));
    }

    pub const fn met(&self) -> Option<StoppedBy> {
        self.met.get()
    }

    pub fn leave_open(&self) {
        self.open.set(true);
    }

    pub const fn has_left_open(&self) -> bool {
        self.open.get()
    }
}
