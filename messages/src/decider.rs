//! The interface of a service: a fold of the log and a pure decision on the folded state.
//!
//! Live operation, restart, replay, verification and simulation all call these functions.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::envelope::Recorded;
use crate::events::{Budget, Event, Writer};
use crate::ids::Sequence;
use crate::time::Timestamp;

/// A fold of the log.
pub trait Fold: Default + Clone + Send + Unpin + Serialize + DeserializeOwned + 'static {
    /// Name of the fold's snapshots.
    const NAME: &'static str;
    /// Raised on every change of the state's shape or meaning; older snapshots are then ignored.
    const VERSION: u32;

    /// Folds one event. Called for every event in order; cannot fail, and reads no clock and no policy.
    fn evolve(&mut self, recorded: &Recorded);

    /// Returns the reason to reject an event, which `evolve` then skips. The service asks before the fold, to
    /// count rejections.
    fn doubts(&self, _recorded: &Recorded) -> Option<String> {
        None
    }

    /// Returns the log's time at the last folded event, from a [`crate::LogClock`]; `None` for a fold without
    /// a clock.
    fn log_time(&self) -> Option<Timestamp> {
        None
    }

    /// Returns a contradiction of the system's own in the last event, at which the service stops. Other
    /// writers' input never counts. Called after every event, so it must cost nothing.
    fn contradiction(&self) -> Option<&str> {
        None
    }

    /// Checks all invariants; called after every step in tests and simulation, however costly.
    ///
    /// # Errors
    /// The broken invariant.
    fn check_invariants(&self) -> Result<(), String> {
        Ok(())
    }

    /// Checks the invariants that must never break, such as a node's capacity, for changes since `before`, an
    /// earlier valid state. Verification calls this after every event, and
    /// [`check_invariants`](Self::check_invariants) from time to time.
    ///
    /// # Errors
    /// The broken invariant.
    fn check_since(&self, _before: &Self) -> Result<(), String> {
        Ok(())
    }
}

/// An event that a decider wants to append.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    /// The event; the shell adds its basis.
    pub event: Event,
    /// The events that caused it, the main one first.
    pub causes: Vec<Sequence>,
}

impl Proposal {
    /// Proposes `event` because of `cause`.
    pub fn new(event: impl Into<Event>, cause: Sequence) -> Self {
        Self {
            event: event.into(),
            causes: vec![cause],
        }
    }

    /// Proposes `event` because of several events, the main one first.
    pub fn caused_by(event: impl Into<Event>, causes: Vec<Sequence>) -> Self {
        Self {
            event: event.into(),
            causes,
        }
    }
}

/// The result of a decision.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    /// Events to append, in order. Any prefix is a valid history: after a crash the rest is decided again.
    pub proposals: Vec<Proposal>,
    /// Time of the next decision on a silent log.
    pub next_wake: Option<Timestamp>,
}

/// A service: a fold with a decision on its state.
pub trait Decider: Send + Sync + 'static {
    /// The folded state.
    type State: Fold;

    /// The writer of its events.
    const WRITER: Writer;

    /// True if `decide` may take long: it then runs on its own thread while the fold continues.
    const SLOW: bool = false;

    /// Reports whether `decide` may have something to do; otherwise no wake-up is set. Called before a slow
    /// decision copies the state.
    fn is_due(&self, _state: &Self::State) -> bool {
        true
    }

    /// Returns how long a due slow decision may wait for another service's imminent events. Does not affect
    /// the decision.
    fn put_off_until(&self, _state: &Self::State) -> Option<Timestamp> {
        None
    }

    /// Decides on the state, not on the event that triggered the call. `now` is never before the last folded
    /// event.
    fn decide(&self, state: &Self::State, now: Timestamp) -> Decision;

    /// Reports whether a slow decision still holds on a later state; if not, it is made again.
    fn still_valid(&self, _state: &Self::State, _decision: &Decision) -> bool {
        true
    }

    /// Decides within the budget recorded in a basis, if the decider has a solver.
    fn decide_within(
        &self,
        state: &Self::State,
        now: Timestamp,
        _budget: Option<Budget>,
    ) -> Decision {
        self.decide(state, now)
    }

    /// Repeats a recorded decision for verification, even if this build sees no reason to decide.
    fn decide_again(
        &self,
        state: &Self::State,
        now: Timestamp,
        budget: Option<Budget>,
    ) -> Decision {
        self.decide_within(state, now, budget)
    }

    /// Returns the solver's budget, for the basis.
    fn budget(&self) -> Option<Budget> {
        None
    }

    /// Checks a recorded decision that depended on a clock and cannot be repeated; `None` if it can be
    /// repeated.
    fn check(&self, _state: &Self::State, _recorded: &Event) -> Option<Result<(), String>> {
        None
    }

    /// Compares a recorded decision with its repetition, by default for equality.
    ///
    /// # Errors
    /// The difference.
    fn verify(
        &self,
        _state: &Self::State,
        recorded: &Event,
        again: Option<&Event>,
    ) -> Result<(), String> {
        match again {
            Some(again) if again == recorded => Ok(()),
            Some(again) => Err(difference(recorded, again)),
            None => Err("nothing is decided from this basis".to_owned()),
        }
    }
}

fn difference(recorded: &Event, again: &Event) -> String {
    let text = |event: &Event| serde_json::to_string(event).unwrap_or_default();
    format!("recorded {} but decided {}", text(recorded), text(again))
}
