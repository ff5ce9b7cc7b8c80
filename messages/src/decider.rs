//! The interface of a service: a fold of the log and a pure decision on it. Live operation, restart, replay,
//! verification and simulation share these functions.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::envelope::Recorded;
use crate::events::{Budget, Event, Writer};
use crate::ids::Sequence;
use crate::time::Timestamp;

/// A fold of the log.
pub trait Fold: Default + Clone + Send + Unpin + Serialize + DeserializeOwned + 'static {
    /// Names the snapshots.
    const NAME: &'static str;
    /// Raised when the state's shape or meaning changes, which invalidates snapshots.
    const VERSION: u32;

    /// Folds one event, in order. Cannot fail, and reads no clock and no policy.
    fn evolve(&mut self, recorded: &Recorded);

    /// Returns the reason to reject an event, which `evolve` then skips. The service counts rejections.
    fn rejects(&self, _recorded: &Recorded) -> Option<String> {
        None
    }

    /// Returns the log's time, from a [`crate::LogClock`], if the fold keeps one.
    fn log_time(&self) -> Option<Timestamp> {
        None
    }

    /// Returns the system's own contradiction in the last event, never others' input; the service then stops.
    /// Called after every event, so it must cost nothing.
    fn contradiction(&self) -> Option<&str> {
        None
    }

    /// Checks all invariants, after every step in tests and simulation.
    ///
    /// # Errors
    /// The broken invariant.
    fn check_invariants(&self) -> Result<(), String> {
        Ok(())
    }

    /// Checks changes since `before`, an earlier valid state, for invariants that never break, such as a
    /// node's capacity. Verification calls this after every event,
    /// [`check_invariants`](Self::check_invariants) from time to time.
    ///
    /// # Errors
    /// The broken invariant.
    fn check_since(&self, _before: &Self) -> Result<(), String> {
        Ok(())
    }
}

/// An event for the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    /// The shell adds the basis.
    pub event: Event,
    /// The main one first.
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
    /// In order; any prefix is a valid history, and after a crash the rest is decided again.
    pub proposals: Vec<Proposal>,
    /// Time of the next decision, if the log is silent.
    pub next_wake: Option<Timestamp>,
}

/// A service: a fold with a decision.
pub trait Decider: Send + Sync + 'static {
    /// The folded state.
    type State: Fold;

    /// The writer of the events.
    const WRITER: Writer;

    /// True to run `decide` on its own thread while the fold continues.
    const SLOW: bool = false;

    /// Reports whether `decide` may have work; otherwise no wake-up is set. Asked before a slow decision
    /// copies the state.
    fn is_due(&self, _state: &Self::State) -> bool {
        true
    }

    /// Reports whether an event can change the decision. Others are only folded: a busy cluster reports
    /// progress far more often than its queues change.
    fn concerns(&self, _event: &Event) -> bool {
        true
    }

    /// Returns until when a due slow decision may wait for another service. Does not affect the decision.
    fn put_off_until(&self, _state: &Self::State) -> Option<Timestamp> {
        None
    }

    /// Decides on the state, whatever event triggered the call. `now` is never before the last folded event.
    fn decide(&self, state: &Self::State, now: Timestamp) -> Decision;

    /// Reports whether a slow decision holds on a later state.
    fn still_valid(&self, _state: &Self::State, _decision: &Decision) -> bool {
        true
    }

    /// Decides within a basis's budget, if there is a solver.
    fn decide_within(
        &self,
        state: &Self::State,
        now: Timestamp,
        _budget: Option<Budget>,
    ) -> Decision {
        self.decide(state, now)
    }

    /// Repeats a recorded decision, even if this build sees no reason to decide.
    fn decide_again(
        &self,
        state: &Self::State,
        now: Timestamp,
        budget: Option<Budget>,
    ) -> Decision {
        self.decide_within(state, now, budget)
    }

    /// Returns the solver's budget.
    fn budget(&self) -> Option<Budget> {
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
