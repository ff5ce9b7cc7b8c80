//! One service in memory: its fold, its decider, and the rules of the live shell.
//!
//! 1. It is told that something was appended, and takes its turn, at once or late.
//! 2. In its turn it folds: at least its own last event, at most the head.
//! 3. It decides, unless nothing has happened since it last did and its wake is not due.
//! 4. A slow decision waits; then the head is folded, and it is appended with its old basis if it
//!    still holds, else made again.
//! 5. What is appended carries the basis that the shell would record. A crash cuts it off after
//!    any prefix; the state is then folded again, from a snapshot or from the beginning.

use dormouse_messages::{Basis, Decider, Decision, Fold, Proposal, Sequence, Timestamp, Writer};

use super::faults::{Fate, Faults};
use super::log::MemoryLog;

/// The build that decisions of a simulated cluster name.
const BUILD: &str = "simulated";

/// A service, whatever it decides.
pub trait Participant: Send {
    /// Whose subjects it appends to.
    fn writer(&self) -> Writer;

    /// When its next turn is due.
    fn due(&self) -> Option<Timestamp>;

    /// Something was appended at `now`.
    fn told(&mut self, now: Timestamp, faults: &mut Faults);

    /// Its last event is on the log at `sequence`.
    fn appended(&mut self, sequence: Sequence);

    /// Takes its turn: what it appends.
    ///
    /// # Errors
    /// A broken invariant, and after which event.
    fn turn(
        &mut self,
        log: &MemoryLog,
        now: Timestamp,
        faults: &mut Faults,
    ) -> Result<Vec<Proposal>, (Sequence, String)>;
}

/// A decision, and what it was made from.
struct Made {
    decision: Decision,
    asof: Sequence,
    now: Timestamp,
}

/// A state as bytes, and how far it was folded.
struct Snapshot {
    bytes: Vec<u8>,
    folded: Sequence,
}

/// What a service is doing.
enum Phase {
    /// It follows the log.
    Following,
    /// Its solver is busy.
    Deciding(Made),
    /// Its process has died.
    Down {
        /// Whether it starts from its snapshot.
        from_snapshot: bool,
    },
}

/// A service.
pub struct Service<D: Decider> {
    decider: D,
    check: bool,
    phase: Phase,
    state: D::State,
    folded: Sequence,
    own_last: Sequence,
    decided_at: Option<Sequence>,
    turn: Option<Timestamp>,
    wake: Option<Timestamp>,
    snapshot: Option<Snapshot>,
}

impl<D: Decider> Service<D> {
    /// A service that has folded nothing. `check`: whether its invariants are checked after
    /// every event.
    pub fn new(decider: D, check: bool) -> Self {
        Self {
            decider,
            check,
            phase: Phase::Following,
            state: D::State::default(),
            folded: Sequence(0),
            own_last: Sequence(0),
            decided_at: None,
            turn: None,
            wake: None,
            snapshot: None,
        }
    }

    fn fold(&mut self, log: &MemoryLog, to: Sequence) -> Result<(), (Sequence, String)> {
        for recorded in log.between(self.folded, to) {
            self.state.evolve(recorded);
            self.folded = recorded.sequence;
            if self.check
                && let Err(what) = self.state.check_invariants()
            {
                return Err((self.folded, format!("{}: {what}", D::State::NAME)));
            }
        }
        Ok(())
    }

    /// Starts again after a crash. A state from a snapshot must be the one from the whole log.
    fn restart(&mut self, log: &MemoryLog, from_snapshot: bool) -> Result<(), (Sequence, String)> {
        let head = log.head();
        (self.state, self.folded) = (D::State::default(), Sequence(0));
        self.fold(log, head)?;
        let Some(snapshot) = self.snapshot.take_if(|_| from_snapshot) else {
            return Ok(());
        };
        let whole = encode(&self.state);
        let decoded = rmp_serde::from_slice(&snapshot.bytes);
        self.state = decoded.map_err(|error| {
            (
                head,
                format!("{}: a snapshot does not read back: {error}", D::State::NAME),
            )
        })?;
        self.folded = snapshot.folded;
        self.fold(log, head)?;
        match encode(&self.state) == whole {
            true => Ok(()),
            false => {
                let what = format!(
                    "{}: folded from the snapshot at {} it is another state",
                    D::State::NAME,
                    snapshot.folded
                );
                Err((head, what))
            }
        }
    }

    fn decide(&mut self, now: Timestamp) -> Made {
        self.decided_at = Some(self.folded);
        let decision = self.decider.decide(&self.state, now);
        self.wake = decision.next_wake;
        Made {
            decision,
            asof: self.folded,
            now,
        }
    }

    /// Step 5.
    fn append(&mut self, made: Made, now: Timestamp, faults: &mut Faults) -> Vec<Proposal> {
        let mut proposals = made.decision.proposals;
        if proposals.is_empty() {
            return proposals;
        }
        let budget = self.decider.budget();
        for proposal in &mut proposals {
            proposal.event.set_basis(Some(Basis {
                asof: made.asof,
                now: made.now,
                causes: proposal.causes.clone(),
                build: BUILD.to_owned(),
                state_hash: None,
                seed: 0,
                budget,
            }));
        }
        if let Fate::Crashes {
            stored,
            down_us,
            from_snapshot,
        } = faults.fate(proposals.len())
        {
            proposals.truncate(stored);
            self.phase = Phase::Down { from_snapshot };
            self.turn = Some(after_us(now, down_us));
            (self.wake, self.decided_at) = (None, None);
        }
        proposals
    }
}

impl<D: Decider> Participant for Service<D> {
    fn writer(&self) -> Writer {
        D::WRITER
    }

    fn due(&self) -> Option<Timestamp> {
        match self.phase {
            Phase::Following => [self.turn, self.wake].into_iter().flatten().min(),
            Phase::Deciding(_) | Phase::Down { .. } => self.turn,
        }
    }

    fn told(&mut self, now: Timestamp, faults: &mut Faults) {
        if self.turn.is_none() {
            self.turn = Some(after_us(now, faults.notice_us()));
        }
    }

    fn appended(&mut self, sequence: Sequence) {
        self.own_last = sequence;
    }

    fn turn(
        &mut self,
        log: &MemoryLog,
        now: Timestamp,
        faults: &mut Faults,
    ) -> Result<Vec<Proposal>, (Sequence, String)> {
        self.turn = None;
        let reach = match std::mem::replace(&mut self.phase, Phase::Following) {
            Phase::Following => faults.follows(self.folded.max(self.own_last), log.head()),
            Phase::Down { from_snapshot } => {
                self.restart(log, from_snapshot)?;
                log.head()
            }
            Phase::Deciding(made) => {
                self.fold(log, log.head())?;
                if self.decider.still_valid(&self.state, &made.decision) {
                    return Ok(self.append(made, now, faults));
                }
                self.decided_at = None;
                log.head()
            }
        };
        self.fold(log, reach)?;
        if self.folded < log.head() {
            self.turn = Some(after_us(now, faults.notice_us()));
        }
        if faults.snapshots() {
            let (bytes, folded) = (encode(&self.state), self.folded);
            self.snapshot = Some(Snapshot { bytes, folded });
        }
        let wake_is_due = self.wake.is_some_and(|wake| wake <= now);
        if self.decided_at == Some(self.folded) && !wake_is_due && !faults.wakes() {
            return Ok(Vec::new());
        }
        let made = self.decide(now);
        let thinks_us = match D::SLOW && !made.decision.proposals.is_empty() {
            true => faults.thinks_us(),
            false => 0,
        };
        if thinks_us > 0 {
            self.phase = Phase::Deciding(made);
            self.turn = Some(after_us(now, thinks_us));
            return Ok(Vec::new());
        }
        Ok(self.append(made, now, faults))
    }
}

fn encode<F: Fold>(state: &F) -> Vec<u8> {
    rmp_serde::to_vec_named(state).unwrap_or_default()
}

fn after_us(now: Timestamp, micros: u64) -> Timestamp {
    Timestamp::from_micros(now.as_micros().saturating_add_unsigned(micros))
}
