//! Runs one service in memory: the shipped machine around its decider ([`dormouse_shell::Shell`]), in
//! one copy or two.
//!
//! 1. In its turn a copy takes pending answers, folds a prefix of the log, and carries out the machine's
//!    effects.
//! 2. The fence decides each append. The answer comes at once, late, or never; then the machine is told
//!    of a doubt, stored or not. A disconnected copy misses the log and its answers.
//! 3. Each incarnation of a copy has its own host clock, which may be days off.
//! 4. A crash stores any prefix of an append. A snapshot and the whole log must give the restarted copy
//!    the same state. Its clock anchor survives.
//!
//! - `copy.rs`: one copy; `resume.rs`: a service that begins in a given state

mod copy;
mod resume;

use std::sync::Arc;

use dormouse_messages::{Decider, Event, Recorded, Sequence, Timestamp, Writer};
use dormouse_shell::{Append, Failure, Outcome};

use super::agent_link::Cut;
use super::brokers::{ANSWER_US, after_us};
use super::faults::{Fate, Faults, Plant};
use super::log::MemoryLog;

use copy::{Broken, Copy, Phase};

pub use copy::Line;
pub use resume::Begun;

/// The result of a turn.
#[derive(Debug)]
pub enum Turn {
    Nothing,
    Stored {
        /// The decision's own time.
        written: Timestamp,
        events: Vec<Event>,
    },
    Asked(Asked),
}

/// An append on its way to the brokers.
#[derive(Debug)]
pub struct Asked {
    pub copy: usize,
    pub number: u64,
    /// The fence.
    pub expected: Sequence,
    pub written: Timestamp,
    pub events: Vec<Event>,
    pub arrives: Option<Timestamp>,
    /// The delay from apply to answer; `None` if no answer comes.
    pub answer_us: Option<u64>,
}

/// A service of any kind.
pub trait Participant: Send {
    /// Returns the writer of the service's subjects.
    fn writer(&self) -> Writer;

    /// Returns the time of the next turn.
    fn due(&self) -> Option<Timestamp>;

    /// Notes an event that was appended at `now`.
    fn told(&mut self, event: &Recorded, now: Timestamp, faults: &mut Faults);

    /// Stops every copy until `until`. `reboot` is the new offset of a rebooted host's clock, in
    /// microseconds.
    fn stop(&mut self, until: Timestamp, reboot: Option<i64>);

    /// Stops every copy until `until`, after the log was rolled back to `log`.
    fn goes_back(&mut self, log: &MemoryLog, until: Timestamp);

    /// Takes the turn of the copy that is due.
    ///
    /// # Errors
    /// A broken invariant, and the event after which it was found.
    fn turn(
        &mut self,
        log: &MemoryLog,
        line: Line,
        now: Timestamp,
        faults: &mut Faults,
    ) -> Result<Turn, Broken>;

    /// Disconnects a copy from the brokers until `until`.
    fn cut(&mut self, copy: usize, cut: Cut, until: Timestamp);

    /// Delivers the brokers' answer to an append at `at`.
    fn answered(&mut self, copy: usize, number: u64, outcome: Outcome, at: Timestamp);
}

/// A service: its copies and their log position.
pub struct Service<D: Decider> {
    decider: Arc<D>,
    check: bool,
    copies: Vec<Copy<D>>,
    own_last: Sequence,
    appends: u64,
}

impl<D: Decider> Service<D> {
    /// Returns a service whose copies are all active, since correctness does not depend on leases.
    pub fn new(decider: D, check: bool, faults: &mut Faults) -> Self {
        let decider = Arc::new(decider);
        let copies = faults.copies();
        let copy = |_| {
            let mut copy = Copy::new(&decider);
            copy.off_us = faults.clock_off_us();
            copy
        };
        Self {
            check,
            copies: (0..copies).map(copy).collect(),
            decider,
            own_last: Sequence(0),
            appends: 0,
        }
    }

    fn store(
        &mut self,
        index: usize,
        append: Append,
        head: Sequence,
        now: Timestamp,
        faults: &mut Faults,
    ) -> Turn {
        let written = append.time;
        let copy = &mut self.copies[index];
        let mut events: Vec<Event> = append.drafts.into_iter().map(|it| it.event).collect();
        let fate = faults.fate(events.len());
        let conflict =
            append.expected != self.own_last && faults.plant() != Some(Plant::StaleAppends);
        if conflict {
            events.clear();
        }
        let answered = match fate {
            Fate::Survives { answer_us } => Some((answer_us, None)),
            Fate::Doubt { stored, answer_us } => {
                events.truncate(stored);
                if faults.plant() == Some(Plant::DoubledRetries) {
                    events.extend(events.clone());
                }
                let doubt = Failure::Doubt("no answer in time".to_owned());
                Some((answer_us, Some(doubt)))
            }
            Fate::Crashes {
                stored,
                down_us,
                from_snapshot,
            } => {
                events.truncate(stored);
                copy.phase = Phase::Down(after_us(now, down_us), from_snapshot);
                None
            }
        };
        let last = Sequence(head.0 + events.len() as u64);
        if let Some((answer_us, failure)) = answered {
            let failure = failure.or(conflict.then_some(Failure::Conflict));
            let outcome = Outcome {
                last: failure.is_none().then_some(last),
                failure,
            };
            copy.answer = Some((after_us(now, answer_us), outcome));
        }
        Turn::Stored { written, events }
    }

    /// Sends an append to the brokers, with a timeout. Several events are one atomic batch.
    fn ask(&mut self, index: usize, append: Append, now: Timestamp, faults: &mut Faults) -> Turn {
        self.appends += 1;
        let copy = &mut self.copies[index];
        let (is_sent, answer_us) = match faults.fate(append.drafts.len()) {
            Fate::Survives { answer_us } => (true, Some(answer_us)),
            Fate::Doubt { stored, .. } => (stored > 0, None),
            Fate::Crashes {
                stored,
                down_us,
                from_snapshot,
            } => {
                copy.phase = Phase::Down(after_us(now, down_us), from_snapshot);
                (stored > 0, None)
            }
        };
        let arrives = match copy.cut {
            None | Some((Cut::Deaf, _)) => Some(now),
            Some((_, until)) => faults.is_sent_late().then_some(until),
        };
        let failure = Some(Failure::Doubt("no answer in time".to_owned()));
        let silence = Outcome {
            last: None,
            failure,
        };
        copy.answer = Some((after_us(now, ANSWER_US), silence));
        copy.awaits = Some(self.appends);
        Turn::Asked(Asked {
            copy: index,
            number: self.appends,
            expected: append.expected,
            written: append.time,
            events: append.drafts.into_iter().map(|it| it.event).collect(),
            arrives: arrives.filter(|_| is_sent),
            answer_us,
        })
    }
}

impl<D: Decider> Participant for Service<D> {
    fn writer(&self) -> Writer {
        D::WRITER
    }

    fn due(&self) -> Option<Timestamp> {
        self.copies.iter().filter_map(Copy::due).min()
    }

    fn told(&mut self, event: &Recorded, now: Timestamp, faults: &mut Faults) {
        if event.writer == D::WRITER {
            self.own_last = event.sequence;
        }
        for copy in &mut self.copies {
            if copy.turn.is_none() {
                copy.turn = Some(after_us(now, faults.notice_us()));
            }
        }
    }

    fn stop(&mut self, until: Timestamp, reboot: Option<i64>) {
        for copy in &mut self.copies {
            copy.phase = Phase::Down(until, false);
            copy.boot += u64::from(reboot.is_some());
            copy.reboot = reboot;
        }
    }

    fn goes_back(&mut self, log: &MemoryLog, until: Timestamp) {
        let mut newest_first = log.events().iter().rev();
        let own_last = newest_first.find(|it| it.writer == D::WRITER);
        self.own_last = own_last.map_or(Sequence(0), |it| it.sequence);
        for copy in &mut self.copies {
            copy.phase = Phase::Down(until, true);
            // A snapshot from beyond the rolled-back log's end has another stamp at its sequence later.
            copy.snapshot
                .take_if(|(_, place)| place.sequence > log.head());
        }
    }

    fn turn(
        &mut self,
        log: &MemoryLog,
        line: Line,
        now: Timestamp,
        faults: &mut Faults,
    ) -> Result<Turn, Broken> {
        let due = |copy: &Copy<D>| copy.due().is_some_and(|due| due <= now);
        let Some(index) = self.copies.iter().position(due) else {
            return Ok(Turn::Nothing);
        };
        let copy = &mut self.copies[index];
        copy.cut.take_if(|(_, until)| *until <= now);
        let until = copy.cut.map(|(_, until)| until);
        let line = Line {
            answers: line.answers.max(until.unwrap_or_default()),
            ..line
        };
        if index > 0 {
            copy.shell.lease(faults.believes_to_be_active());
        }
        let reach = match std::mem::replace(&mut copy.phase, Phase::Following) {
            Phase::Following => faults.follows(copy.shell.folded(), log.head()),
            Phase::Down(_, from_snapshot) if line.answers > now => {
                // A restarting copy first asks for the head.
                copy.phase = Phase::Down(line.answers, from_snapshot);
                return Ok(Turn::Nothing);
            }
            Phase::Down(_, from_snapshot) => {
                let reboot = copy.reboot.take();
                copy.restart(&self.decider, log, from_snapshot, self.check)?;
                copy.off_us = reboot.unwrap_or_else(|| faults.clock_off_us());
                log.head()
            }
            Phase::Deciding(at, made) if at <= now => {
                copy.shell.made(*made, false);
                faults.follows(copy.shell.folded(), log.head())
            }
            deciding @ Phase::Deciding(..) => {
                copy.phase = deciding;
                faults.follows(copy.shell.folded(), log.head())
            }
        };
        copy.turn = None;
        copy.hear(log, line, now);
        let is_deaf = matches!(copy.cut, Some((Cut::Deaf | Cut::Whole | Cut::Killed, _)));
        if !is_deaf {
            copy.fold(log, reach, self.check)?;
        }
        if let Some(until) = until.filter(|_| is_deaf) {
            copy.turn = Some(until);
        } else if copy.shell.folded() < log.head() {
            copy.turn = Some(after_us(now, faults.notice_us()));
        }
        if faults.snapshots() {
            copy.keep_snapshot();
        }
        if faults.wakes() {
            copy.shell.woken();
        }
        match copy.step(log, (line, now), self.check, faults)? {
            Some(append) if line.replicated => Ok(self.ask(index, append, now, faults)),
            Some(append) => Ok(self.store(index, append, log.head(), now, faults)),
            None => Ok(Turn::Nothing),
        }
    }

    fn cut(&mut self, copy: usize, cut: Cut, until: Timestamp) {
        if let Some(copy) = self.copies.get_mut(copy) {
            copy.cut = Some((cut, until));
        }
    }

    fn answered(&mut self, copy: usize, number: u64, outcome: Outcome, at: Timestamp) {
        let copy = &mut self.copies[copy];
        if copy.cut.is_some_and(|(_, until)| until > at) {
            return;
        }
        let is_down = matches!(copy.phase, Phase::Down(..));
        let in_time = copy
            .answer
            .as_ref()
            .is_some_and(|(given_up, _)| at < *given_up);
        if copy.awaits == Some(number) && in_time && !is_down {
            copy.answer = Some((at, outcome));
        }
    }
}
