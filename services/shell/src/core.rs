//! The folded state and the gate for appends (`may_append`): active, caught up, nothing in flight, own
//! appends folded, and after a doubt the whole log.

use dormouse_messages::events::Budget;
use dormouse_messages::{
    Decision, Fold, LogClock, NewerFormat, Recorded, Sequence, Timestamp, Writer,
};

use crate::host::{ClockAnchor, Host};
use crate::log_item::LogItem;

/// Hashing a large state costs more than most decisions.
const HASH_EVERY: u64 = 1_000;

/// A folded state and its origin.
#[derive(Debug, Clone)]
pub struct Snapshot<F> {
    pub state: F,
    pub log: String,
    pub sequence: Sequence,
    pub stored_at: Timestamp,
    /// The last own sequence; 0 for a pure reader.
    pub own_last: Sequence,
}

/// A decision and its inputs.
#[derive(Debug, Clone)]
pub struct Made {
    pub decision: Decision,
    pub asof: Sequence,
    pub own_last: Sequence,
    pub now: Timestamp,
    pub started: Timestamp,
    pub state_hash: Option<String>,
    pub budget: Option<Budget>,
}

/// An event type or version unknown to this build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownVersion {
    pub sequence: Sequence,
    pub type_name: String,
}

/// Reason to stop at an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Halt {
    UnknownVersion(UnknownVersion),
    NewerFormat(NewerFormat),
    Contradiction { sequence: Sequence, what: String },
}

pub(crate) struct Core<F> {
    pub state: F,
    pub writer: Writer,
    pub log: String,
    pub folded: Sequence,
    pub stored_at: Timestamp,
    pub own_last: Sequence,
    pub active: bool,
    caught_up: bool,
    pub appending: bool,
    pub asking: u32,
    /// The last own append, or the head after a doubt.
    await_folded: Sequence,
    pub decisions: u64,
    /// Log time, and the clock at its fold.
    anchor: Option<(Timestamp, Timestamp)>,
    moved: bool,
    own_moved: bool,
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

    pub fn recall(&mut self, mark: ClockAnchor) {
        if mark.log == self.log {
            self.host.recall(mark);
        }
    }

    /// Returns an own event.
    pub fn fold<'a>(&mut self, followed: &'a LogItem) -> Result<Option<&'a Recorded>, Halt> {
        match followed {
            LogItem::Event(recorded) => {
                if let Some(type_name) = recorded.too_new() {
                    return Err(Halt::UnknownVersion(UnknownVersion {
                        sequence: recorded.sequence,
                        type_name: type_name.to_owned(),
                    }));
                }
                if let Some(newer) = recorded.newer_format() {
                    return Err(Halt::NewerFormat(newer));
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
            LogItem::Flagged {
                sequence,
                stored_at,
                writer,
                why: _,
            } => {
                self.passed(*sequence, *stored_at);
                // The fence counts subjects, events or not.
                if *writer == Some(self.writer) {
                    self.own_last = *sequence;
                }
            }
            LogItem::CaughtUp(_) => self.caught_up = true,
        }
        Ok(None)
    }

    fn passed(&mut self, sequence: Sequence, stored_at: Timestamp) {
        self.folded = sequence;
        self.stored_at = stored_at;
        self.caught_up = false;
        self.moved = true;
    }

    /// Dates new events by `clock`. Returns whether there were any, and a mark to write.
    pub fn look_at(&mut self, clock: Timestamp) -> (bool, Option<ClockAnchor>) {
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

    /// The decisions' time, or the host's after a longer silence.
    pub fn written(&self, clock: Timestamp) -> Timestamp {
        let now = self.now(clock);
        let trusted_us = now.as_micros().saturating_add(LogClock::TRUSTED_US);
        let by_host = self.host.time();
        by_host
            .filter(|by_host| by_host.as_micros() > trusted_us)
            .unwrap_or(now)
    }

    pub fn await_folded(&mut self, sequence: Sequence) {
        self.await_folded = self.await_folded.max(sequence);
    }

    pub fn may_append(&self) -> bool {
        let settled = !self.appending && self.asking == 0 && self.folded >= self.await_folded;
        self.active && self.caught_up && settled
    }

    /// Log time plus the clock's advance since; hosts' clocks differ, so only differences count.
    pub fn now(&self, clock: Timestamp) -> Timestamp {
        let (folded, then) = self.anchor.unwrap_or((self.stored_at, clock));
        moved_by(folded, clock.micros_since(then))
    }

    pub fn clock_at(&self, time: Timestamp) -> Timestamp {
        let (folded, then) = self.anchor.unwrap_or((self.stored_at, self.stored_at));
        moved_by(then, time.micros_since(folded))
    }

    pub fn hash_due(&self) -> bool {
        self.decisions.is_multiple_of(HASH_EVERY)
    }

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

/// Returns a state's hash in hex.
#[must_use]
pub fn state_hash<F: Fold>(state: &F) -> Option<String> {
    let bytes = rmp_serde::to_vec_named(state).ok()?;
    Some(blake3::hash(&bytes).to_hex().to_string())
}
