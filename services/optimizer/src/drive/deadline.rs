//! The end of a decision's time, and the limits met on the way.

use std::cell::Cell;

use dormouse_messages::events::StoppedBy;

use crate::problem::TimeLimit;

/// The time limit of a whole decision, and the limits met so far.
#[derive(Debug)]
pub(crate) struct Deadline {
    limit: Option<(TimeLimit, f64)>,
    met: Cell<Option<StoppedBy>>,
    open: Cell<bool>,
}

impl Deadline {
    pub fn new(limit: Option<TimeLimit>) -> Self {
        Self {
            limit: limit.map(|limit| (limit, (limit.clock)())),
            met: Cell::new(None),
            open: Cell::new(false),
        }
    }

    pub fn left(&self) -> Option<f64> {
        self.limit
            .map(|(limit, began_s)| (began_s + limit.seconds - (limit.clock)()).max(0.0))
    }

    /// Reports and records that the time is over: skipped work might have changed the decision.
    pub fn is_over(&self) -> bool {
        let over = self.left().is_some_and(|left| left <= 0.0);
        if over {
            self.meet(StoppedBy::Time);
        }
        over
    }

    /// The time limit outranks the node limit.
    pub fn meet(&self, limit: StoppedBy) {
        self.met.set(self.met.get().max(Some(limit)));
    }

    pub fn met(&self) -> Option<StoppedBy> {
        self.met.get()
    }

    pub fn leave_open(&self) {
        self.open.set(true);
    }

    pub fn has_left_open(&self) -> bool {
        self.open.get()
    }
}
