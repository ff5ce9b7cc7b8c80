//! What a service is: a fold of the log and a pure decision on the folded state.
//!
//! Live running, restart, replay, verification and simulation call these same functions; there
//! is no second interpreter.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::envelope::Recorded;
use crate::events::{Budget, Event, Writer};
use crate::ids::Sequence;
use crate::time::Timestamp;

/// A fold of the log.
pub trait Fold: Default + Clone + Send + Unpin + Serialize + DeserializeOwned + 'static {
    /// Names its snapshots.
    const NAME: &'static str;
    /// Raised whenever the state's shape or meaning changes: older snapshots are then ignored.
    const VERSION: u32;

    /// Folds one event. Infallible, without a clock, without policy. Called for every event of
    /// the log in order, also for those that the fold does not use.
    fn evolve(&mut self, recorded: &Recorded);

    /// Why an event is not believed, if it is not: `evolve` passes over it. Asked before the event
    /// is folded, by the service that counts what is flagged.
    fn doubts(&self, _recorded: &Recorded) -> Option<String> {
        None
    }

    /// The time of the log, up to the last event folded; `None` for a fold that keeps none. A fold
    /// that decides on time has it from a [`crate::LogClock`].
    fn log_time(&self) -> Option<Timestamp> {
        None
    }

    /// What was folded last and cannot be: a contradiction of the system's own, never what others may
    /// say. Asked after every event by the service, which stops there: it must cost nothing.
    fn contradiction(&self) -> Option<&str> {
        None
    }

    /// Says which invariant is broken, if any. Called after every step in tests and simulation; it may
    /// look at everything.
    ///
    /// # Errors
    /// The broken invariant, in words.
    fn check_invariants(&self) -> Result<(), String> {
        Ok(())
    }

    /// The part of [`check_invariants`](Self::check_invariants) that verification asks for after every
    /// event; the whole it asks for now and then. It looks only at what has changed since `before`, the
    /// state of some events earlier, which broke no invariant. For what must not be broken for a moment,
    /// as the room of a node.
    ///
    /// # Errors
    /// The broken invariant, in words.
    fn check_since(&self, _before: &Self) -> Result<(), String> {
        Ok(())
    }
}

/// An event that a decider wants appended.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    /// The event, without its basis: the shell fills it in.
    pub event: Event,
    /// The events that made it necessary, the main one first.
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

/// What a decider decides.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    /// To append, in order. Any prefix of them is a valid history: what a crash cuts off is
    /// decided again.
    pub proposals: Vec<Proposal>,
    /// When to decide again on a silent log.
    pub next_wake: Option<Timestamp>,
}

/// A service: what it folds, and what it decides on the folded state.
pub trait Decider: Send + Sync + 'static {
    /// The folded state.
    type State: Fold;

    /// Whose subjects it appends to.
    const WRITER: Writer;

    /// Whether `decide` may take long: it then runs on a thread of its own while the log is
    /// followed on.
    const SLOW: bool = false;

    /// Whether there may be anything to decide; where not, `decide` is not called and no wake-up
    /// is set. Asked before a slow decision copies the state.
    fn is_due(&self, _state: &Self::State) -> bool {
        true
    }

    /// Until when a slow decision that is due may be put off, because another service is likely to say
    /// something in a moment that changes it. What is decided does not depend on it: a decision that
    /// was not put off is made again as it was.
    fn put_off_until(&self, _state: &Self::State) -> Option<Timestamp> {
        None
    }

    /// Decides on the state. Level-triggered: it looks at the state, not at the event that woke
    /// it. `now` is never earlier than the broker's time of the last folded event.
    fn decide(&self, state: &Self::State, now: Timestamp) -> Decision;

    /// Whether a slow decision still holds on a later state; otherwise it is discarded and made
    /// again.
    fn still_valid(&self, _state: &Self::State, _decision: &Decision) -> bool {
        true
    }

    /// The decision under the budget that a basis records. A decider without a solver has no budget.
    fn decide_within(
        &self,
        state: &Self::State,
        now: Timestamp,
        _budget: Option<Budget>,
    ) -> Decision {
        self.decide(state, now)
    }

    /// What verification compares with a recorded decision. An earlier build may have decided where this
    /// one sees no reason to: then it is what this one would have decided.
    fn decide_again(
        &self,
        state: &Self::State,
        now: Timestamp,
        budget: Option<Budget>,
    ) -> Decision {
        self.decide_within(state, now, budget)
    }

    /// What the solver may spend, recorded in the basis.
    fn budget(&self) -> Option<Budget> {
        None
    }

    /// Checks a recorded decision, with its basis, that need not come out again because a clock had a
    /// part in it; `None` where there is no such part, and it is to be made again.
    fn check(&self, _state: &Self::State, _recorded: &Event) -> Option<Result<(), String>> {
        None
    }

    /// Compares a recorded decision with the one made again from its basis. The default asks
    /// for equality.
    ///
    /// # Errors
    /// How they differ.
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
