//! The time budget of one decision, and the limits met while deciding.

use std::cell::Cell;

use dormouse_messages::events::StoppedBy;

use crate::problem::TimeLimit;

/// The time limit of one decision, shared by all its questions, with the limits that left answers open.
#[derive(Debug)]
pub(crate) struct Deadline {
    /// The limit and the time when it began.
    limit: Option<(TimeLimit, f64)>,
    met: Cell<Option<StoppedBy>>,
    open: Cell<bool>,
}

impl Deadline {
    /// Starts the limit now; `None` sets no limit.
    pub fn new(limit: Option<TimeLimit>) -> Self {
        Self {
            limit: limit.map(|limit| (limit, (limit.clock)())),
            met: Cell::new(None),
            open: Cell::new(false),
        }
    }

    /// Returns the seconds left, if limited.
    pub fn left(&self) -> Option<f64> {
        self.limit
            .map(|(limit, began_s)| (began_s + limit.seconds - (limit.clock)()).max(0.0))
    }

    /// Reports and records whether the time is used up. Work skipped afterwards might have changed the
    /// decision.
    pub fn is_over(&self) -> bool {
        let over = self.left().is_some_and(|left| left <= 0.0);
        if over {
            self.meet(StoppedBy::Time);
        }
        over
    }

    /// Records a limit that was met. The time limit outranks the node limit.
    pub fn meet(&self, limit: StoppedBy) {
        self.met.set(self.met.get().max(Some(limit)));
    }

    /// Returns the most severe limit met so far.
    pub fn met(&self) -> Option<StoppedBy> {
        self.met.get()
    }

    /// Records that a question stayed without an answer.
    pub fn leave_open(&self) {
        self.open.set(true);
    }

    /// True if some question stayed without an answer.
    pub fn has_left_open(&self) -> bool {
        self.open.get()
    }
}
