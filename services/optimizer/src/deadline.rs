//! When a decision has to end, whatever it has found by then; and what limits left open on its way.

use std::cell::Cell;

use dormouse_messages::events::StoppedBy;

use crate::problem::TimeLimit;

/// The time that one decision may take, however many questions it asks, and which of their answers are
/// missing for a limit.
#[derive(Debug)]
pub(crate) struct Deadline {
    /// With the moment from which it counts.
    limit: Option<(TimeLimit, f64)>,
    met: Cell<Option<StoppedBy>>,
    open: Cell<bool>,
}

impl Deadline {
    /// From now on, or no limit.
    pub fn new(limit: Option<TimeLimit>) -> Self {
        Self {
            limit: limit.map(|limit| (limit, (limit.clock)())),
            met: Cell::new(None),
            open: Cell::new(false),
        }
    }

    /// The seconds left, if limited.
    pub fn left(&self) -> Option<f64> {
        self.limit
            .map(|(limit, began_s)| (began_s + limit.seconds - (limit.clock)()).max(0.0))
    }

    /// Whether nothing is left. What is not done for that may have changed the decision.
    pub fn is_over(&self) -> bool {
        let over = self.left().is_some_and(|left| left <= 0.0);
        if over {
            self.meet(StoppedBy::Time);
        }
        over
    }

    /// A limit was met: of nodes, or of time, which counts for more.
    pub fn meet(&self, limit: StoppedBy) {
        self.met.set(self.met.get().max(Some(limit)));
    }

    /// The most severe limit that was met so far.
    pub fn met(&self) -> Option<StoppedBy> {
        self.met.get()
    }

    /// A question has no answer: there may be an allocation, or none.
    pub fn leave_open(&self) {
        self.open.set(true);
    }

    /// Whether some question has no answer.
    pub fn has_left_open(&self) -> bool {
        self.open.get()
    }
}
