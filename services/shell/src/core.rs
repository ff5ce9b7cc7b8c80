//! What is folded, and when it may be decided on.
//!
//! 1. `fold` takes every item of the log, and keeps the last own sequence: the fence.
//! 2. `may_append` is the gate: active, caught up, nothing in flight, the last own append
//!    folded, and after a doubt the whole log as it then was.

use dormouse_messages::events::Budget;
use dormouse_messages::{Decision, Fold, LogClock, Recorded, Sequence, Timestamp, Writer};

use crate::followed::Followed;
use crate::host::{Host, Mark};

/// Every so many decisions, beginning with the first, the state's hash is recorded: hashing a large
/// state costs more than most decisions.
const HASH_EVERY: u64 = 1_000;

/// A folded state, and what it was folded from.
#[derive(Debug, Clone)]
pub struct Snapshot<F> {
    /// The state.
    pub state: F,
    /// The log.
    pub log: String,
    /// The last sequence folded.
    pub sequence: Sequence,
    /// When that was stored.
    pub stored_at: Timestamp,
    /// The last sequence of the service's own; 0 for a fold that appends nothing.
    pub own_last: Sequence,
}

/// A decision, and what it was made from.
#[derive(Debug, Clone)]
pub struct Made {
    /// What was decided.
    pub decision: Decision,
    /// The last sequence folded.
    pub asof: Sequence,
    /// The last own sequence folded.
    pub own_last: Sequence,
    /// The time that the decider was given.
    pub now: Timestamp,
    /// What the clock showed when it began.
    pub started: Timestamp,
    /// The state's hash, now and then.
    pub state_hash: Option<String>,
    /// What the solver could spend.
    pub budget: Option<Budget>,
}

/// A type that this build does not know, or not in this version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownVersion {
    /// Where.
    pub sequence: Sequence,
    /// Its type.
    pub type_name: String,
}

/// Why a service has to stop at an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Halt {
    /// Before it: it cannot be folded.
    UnknownVersion(UnknownVersion),
    /// Behind it: what was folded contradicts itself, and nothing may be decided on it.
    Contradiction {
        /// The event.
        sequence: Sequence,
        /// What cannot be.
        what: String,
    },
}

/// What is folded, and what is waited for.
pub(crate) struct Core<F> {
    pub state: F,
    pub writer: Writer,
    pub log: String,
    pub folded: Sequence,
    pub stored_at: Timestamp,
    /// The last own sequence that is folded: what the next append is fenced with.
    pub own_last: Sequence,
    pub active: bool,
    caught_up: bool,
    /// An append is with the broker.
    pub appending: bool,
    /// Questions for the log's head that are not answered yet.
    pub asking: u32,
    /// Nothing is appended before this is folded: the last own append, or the head as it was
    /// after a doubt.
    await_folded: Sequence,
    /// Decisions that led to events.
    pub decisions: u64,
    /// The time of the log, and what the clock showed when that was folded.
    anchor: Option<(Timestamp, Timestamp)>,
    /// Something was folded since.
    moved: bool,
    /// Something of the service's own was among it.
    own_moved: bool,
    /// What the host's clocks say.
    pub host: Host,
}

impl<F: Fold> Core<F> {
    pub fn new(snapshot: Snapshot<F>, writer: Writer) -> Self {
        Self {
            state: snapshot.state,
            writer,
            log: snapshot.log,
            folded: snapshot.sequence,
            stored_at: snapshot.stored_at,
            own_last: snapshot.own_last,
            active: false,
            caught_up: false,
            appending: false,
            asking: 0,
            await_folded: Sequence(0),
            decisions: 0,
            anchor: None,
            moved: true,
            own_moved: false,
            host: Host::default(),
        }
    }

    /// What an earlier life has kept, if it is of this log.
    pub fn recall(&mut self, mark: Mark) {
        if mark.log == self.log {
            self.host.recall(mark);
        }
    }

    /// Folds one item; the event, if it is the service's own.
    pub fn fold<'a>(&mut self, followed: &'a Followed) -> Result<Option<&'a Recorded>, Halt> {
        match followed {
            Followed::Event(recorded) => {
                if let Some(type_name) = recorded.too_new() {
                    return Err(Halt::UnknownVersion(UnknownVersion {
                        sequence: recorded.sequence,
                        type_name: type_name.to_owned(),
                    }));
                }
                self.state.evolve(recorded);
                if let Some(what) = self.state.contradiction() {
                    return Err(Halt::Contradiction {
                        sequence: recorded.sequence,
                        what: what.to_owned(),
                    });
                }
                self.passed(recorded.sequence, recorded.stored_at);
                if recorded.writer == self.writer {
                    self.own_last = recorded.sequence;
                    self.own_moved = true;
                    return Ok(Some(recorded));
                }
            }
            Followed::Flagged {
                sequence,
                stored_at,
                writer,
                why: _,
            } => {
                self.passed(*sequence, *stored_at);
                // It counts for the fence, which looks at subjects.
                if *writer == Some(self.writer) {
                    self.own_last = *sequence;
                }
            }
            Followed::CaughtUp(_) => self.caught_up = true,
        }
        Ok(None)
    }

    fn passed(&mut self, sequence: Sequence, stored_at: Timestamp) {
        self.folded = sequence;
        self.stored_at = stored_at;
        self.caught_up = false;
        self.moved = true;
    }

    /// The clock shows this. What was folded since it was last looked at, was folded now; whether
    /// there was something, and what is to be kept of it.
    pub fn look_at(&mut self, clock: Timestamp) -> (bool, Option<Mark>) {
        let moved = std::mem::take(&mut self.moved) || self.anchor.is_none();
        if moved {
            let folded = self.state.log_time().unwrap_or(self.stored_at);
            self.anchor = Some((folded, clock));
            self.host.folded(&self.log, folded, self.caught_up);
        }
        let own_moved = std::mem::take(&mut self.own_moved);
        let mark = moved.then(|| self.host.keep(own_moved)).flatten();
        (moved, mark)
    }

    /// The time that is written: that of decisions, or what the host's clocks say, where these know of
    /// a silence in which the service had no clock.
    pub fn written(&self, clock: Timestamp) -> Timestamp {
        let now = self.now(clock);
        let trusted_us = now.as_micros().saturating_add(LogClock::TRUSTED_US);
        let by_host = self.host.time();
        by_host
            .filter(|by_host| by_host.as_micros() > trusted_us)
            .unwrap_or(now)
    }

    /// Holds the next append back until `sequence` is folded.
    pub fn await_folded(&mut self, sequence: Sequence) {
        self.await_folded = self.await_folded.max(sequence);
    }

    /// Whether the service may append now.
    pub fn may_append(&self) -> bool {
        let settled = !self.appending && self.asking == 0 && self.folded >= self.await_folded;
        self.active && self.caught_up && settled
    }

    /// The time that a decision is given: the log's, and what has passed since that was folded.
    /// What the clock shows does not matter, only how far it has moved: hosts' clocks differ, and
    /// time-outs run from one event to another.
    pub fn now(&self, clock: Timestamp) -> Timestamp {
        let (folded, then) = self.anchor.unwrap_or((self.stored_at, clock));
        moved_by(folded, clock.micros_since(then))
    }

    /// What the clock will show at a time of the log.
    pub fn clock_at(&self, time: Timestamp) -> Timestamp {
        let (folded, then) = self.anchor.unwrap_or((self.stored_at, self.stored_at));
        moved_by(then, time.micros_since(folded))
    }

    /// Whether the next decision's state is to be hashed.
    pub fn hash_due(&self) -> bool {
        self.decisions.is_multiple_of(HASH_EVERY)
    }

    /// What a snapshot holds now.
    pub fn snapshot(&self) -> Snapshot<F> {
        Snapshot {
            state: self.state.clone(),
            log: self.log.clone(),
            sequence: self.folded,
            stored_at: self.stored_at,
            own_last: self.own_last,
        }
    }
}

fn moved_by(at: Timestamp, micros: u64) -> Timestamp {
    Timestamp::from_micros(at.as_micros().saturating_add_unsigned(micros))
}

/// The hash of a state, as it is recorded.
#[must_use]
pub fn state_hash<F: Fold>(state: &F) -> Option<String> {
    let bytes = rmp_serde::to_vec_named(state).ok()?;
    Some(blake3::hash(&bytes).to_hex().to_string())
}
