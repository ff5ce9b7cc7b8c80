//! Resumes a service from a state.

use std::sync::Arc;

use dormouse_messages::{Decider, Sequence, Timestamp};
use dormouse_shell::Snapshot;

use super::{Copy, Service};

/// The position from which a service resumes.
#[derive(Debug, Clone, std::marker::Copy)]
pub struct Begun {
    pub sequence: Sequence,
    pub now: Timestamp,
    pub own_last: Sequence,
}

impl<D: Decider> Service<D> {
    /// Resumes a service, which takes a turn at once.
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
