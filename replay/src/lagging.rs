//! A service behind the log: its state waits for the basis of the next recorded decision.

use std::collections::VecDeque;
use std::sync::Arc;

use dormouse_messages::{Decider, Fold as _, Recorded, Sequence};

/// A decider, its state, and the events after that.
#[derive(Default)]
pub struct Lagging<D: Decider> {
    pub decider: D,
    pub state: D::State,
    pub folded: Sequence,
    pub waiting: VecDeque<Arc<Recorded>>,
}

impl<D: Decider> Lagging<D> {
    /// Folds the next event, unless it comes after `last`.
    pub fn fold_next(&mut self, last: Sequence) -> Option<Arc<Recorded>> {
        let next = self.waiting.pop_front_if(|next| next.sequence <= last)?;
        self.state.evolve(&next);
        self.folded = next.sequence;
        Some(next)
    }
}
