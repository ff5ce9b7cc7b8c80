//! A service that goes on with a state.

use std::sync::Arc;

use dormouse_messages::{Decider, Sequence, Timestamp};
use dormouse_shell::Snapshot;

use super::{Copy, Service};

/// Where a service goes on.
#[derive(Debug, Clone, std::marker::Copy)]
pub struct Begun {
    /// The last sequence folded.
    pub sequence: Sequence,
    /// When that was stored.
    pub now: Timestamp,
    /// The last sequence of its own subjects.
    pub own_last: Sequence,
}

impl<D: Decider> Service<D> {
    /// A service that goes on with a state, and looks at once whether there is anything to decide.
    pub fn resume(decider: D, state: D::State, begun: Begun) -> Self {
        let decider = Arc::new(decider);
        let snapshot = Snapshot {
            state,
            log: String::new(),
            sequence: begun.sequence,
            stored_at: begun.now,
            own_last: begun.own_last,
        };
        let mut copy = Copy::starting_from(&decider, snapshot);
        copy.turn = Some(begun.now);
        Self {
            check: false,
            copies: vec![copy],
            decider,
            own_last: begun.own_last,
            appends: 0,
        }
    }
}
