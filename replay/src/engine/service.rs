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

mod resume;

use std::sync::Arc;
use std::time::Duration;

use dormouse_messages::{Decider, Event, Fold, Recorded, Sequence, Timestamp, Writer};
use dormouse_shell::{
    Append, ClockAnchor, Effect, Failure, Halt, HostTime, LogItem, Made, Outcome, Shell, Snapshot,
};

use super::agent_link::Cut;
use super::brokers::{ANSWER_US, after_us};
use super::faults::{Fate, Faults, Plant};
use super::log::MemoryLog;

pub use resume::Begun;

const BUILD: &str = "simulated";

type Broken = (Sequence, String);

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

/// The services' connection to the brokers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Line {
    pub replicated: bool,
    /// The time from which questions are answered.
    pub answers: Timestamp,
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

enum Phase {
    Following,
    Deciding(Timestamp, Box<Made>),
    /// The process is dead until then; true if it restarts from its snapshot.
    Down(Timestamp, bool),
}

struct Copy<D: Decider> {
    shell: Shell<D>,
    phase: Phase,
    turn: Option<Timestamp>,
    wake: Option<Timestamp>,
    pauses: Vec<Timestamp>,
    answer: Option<(Timestamp, Outcome)>,
    awaits: Option<u64>,
    asking: Vec<Timestamp>,
    cut: Option<(Cut, Timestamp)>,
    snapshot: Option<(Vec<u8>, Snapshot<()>)>,
    off_us: i64,
    /// The host's boot number, and the clock offset after the next boot.
    boot: u64,
    reboot: Option<i64>,
    mark: Option<ClockAnchor>,
}

impl<D: Decider> Copy<D> {
    fn new(decider: &Arc<D>) -> Self {
        Self::starting_from(decider, nothing())
    }

    fn starting_from(decider: &Arc<D>, snapshot: Snapshot<D::State>) -> Self {
        let mut shell = Shell::new(Arc::clone(decider), snapshot, BUILD, None);
        shell.activate();
        Self {
            shell,
            phase: Phase::Following,
            turn: None,
            wake: None,
            pauses: Vec::new(),
            answer: None,
            awaits: None,
            asking: Vec::new(),
            cut: None,
            snapshot: None,
            off_us: 0,
            boot: 1,
            reboot: None,
            mark: None,
        }
    }

    /// Returns the host's clocks. Uptime counts from the beginning.
    fn host(&self, now: Timestamp) -> HostTime {
        HostTime {
            boot: self.boot,
            up_us: now.as_micros(),
            wall: self.clock(now),
        }
    }

    fn clock(&self, now: Timestamp) -> Timestamp {
        Timestamp::from_micros(now.as_micros().saturating_add(self.off_us))
    }

    fn shown(&self, at: Timestamp) -> Timestamp {
        Timestamp::from_micros(at.as_micros().saturating_sub(self.off_us))
    }

    fn due(&self) -> Option<Timestamp> {
        match &self.phase {
            Phase::Down(at, _) => Some(*at),
            Phase::Deciding(at, _) => {
                let answer = self.answer.as_ref().map(|(at, _)| *at);
                let head = self.asking.iter().min().copied();
                let all = [Some(*at), self.turn, answer, head];
                all.into_iter().flatten().min()
            }
            Phase::Following => {
                let answer = self.answer.as_ref().map(|(at, _)| *at);
                let pause = self.pauses.iter().min().copied();
                let head = self.asking.iter().min().copied();
                let all = [self.turn, self.wake, pause, answer, head];
                all.into_iter().flatten().min()
            }
        }
    }

    /// Folds up to `to`, which the copy takes for the head.
    fn fold(&mut self, log: &MemoryLog, to: Sequence, check: bool) -> Result<(), Broken> {
        let events = log.between(self.shell.folded(), to).iter();
        let followed = events.map(|recorded| LogItem::Event(Arc::clone(recorded)));
        let unknown = |halt| match halt {
            Halt::UnknownVersion(it) => (it.sequence, format!("unknown: {}", it.type_name)),
            Halt::NewerFormat(it) => (it.sequence, it.to_string()),
            Halt::Contradiction { sequence, what } => {
                (sequence, format!("{}: {what}", D::State::NAME))
            }
        };
        if !check {
            let caught_up = std::iter::once(LogItem::CaughtUp(to));
            let batch: Vec<LogItem> = followed.chain(caught_up).collect();
            return self.shell.followed(&batch).map(|_| ()).map_err(unknown);
        }
        for event in followed.collect::<Vec<_>>() {
            self.shell
                .followed(std::slice::from_ref(&event))
                .map_err(unknown)?;
            if let Err(what) = self.shell.state().check_invariants() {
                return Err((self.shell.folded(), format!("{}: {what}", D::State::NAME)));
            }
        }
        let caught_up = self.shell.followed(&[LogItem::CaughtUp(to)]);
        caught_up.map(|_| ()).map_err(unknown)
    }

    fn restart(
        &mut self,
        decider: &Arc<D>,
        log: &MemoryLog,
        from_snapshot: bool,
        check: bool,
    ) -> Result<(), Broken> {
        let snapshot = self.snapshot.take();
        let (boot, mark, cut) = (self.boot, self.mark.take(), self.cut);
        *self = Self::new(decider);
        (self.boot, self.mark, self.cut) = (boot, mark, cut);
        self.recall();
        let head = log.head();
        self.fold(log, head, check)?;
        let Some((bytes, place)) = snapshot.filter(|_| from_snapshot) else {
            return Ok(());
        };
        let wrong = |what: String| (head, format!("{}: {what}", D::State::NAME));
        let state = rmp_serde::from_slice(&bytes)
            .map_err(|error| wrong(format!("a snapshot does not read back: {error}")))?;
        let whole = encode(self.shell.state());
        let at = place.sequence;
        let snapshot = Snapshot {
            state,
            log: place.log,
            sequence: place.sequence,
            stored_at: place.stored_at,
            own_last: place.own_last,
        };
        self.shell = Shell::new(Arc::clone(decider), snapshot, BUILD, None);
        self.shell.activate();
        self.recall();
        self.fold(log, head, check)?;
        if encode(self.shell.state()) == whole {
            Ok(())
        } else {
            Err(wrong(format!(
                "folded from the snapshot at {at} it is another state"
            )))
        }
    }

    fn recall(&mut self) {
        if let Some(mark) = self.mark.clone() {
            self.shell.recall(mark);
        }
    }

    fn keep_snapshot(&mut self) {
        let place = Snapshot {
            state: (),
            log: String::new(),
            sequence: self.shell.folded(),
            stored_at: self.shell.stored_at(),
            own_last: self.shell.own_last(),
        };
        self.snapshot = Some((encode(self.shell.state()), place));
    }

    fn hear(&mut self, log: &MemoryLog, line: Line, now: Timestamp) {
        if let Some((_, outcome)) = self.answer.take_if(|(at, _)| *at <= now) {
            self.awaits = None;
            self.shell.answered(outcome);
        }
        for at in self.asking.iter_mut().filter(|at| **at <= now) {
            *at = line.answers;
        }
        let before = self.asking.len();
        self.asking.retain(|at| *at > now);
        for _ in self.asking.len()..before {
            self.shell.head(log.head());
            self.turn.get_or_insert(now);
        }
        let before = self.pauses.len();
        self.pauses.retain(|at| *at > now);
        for _ in self.pauses.len()..before {
            self.shell.resumed();
        }
        if self.wake.take_if(|at| *at <= now).is_some() {
            self.shell.woken();
        }
    }

    fn step(
        &mut self,
        log: &MemoryLog,
        (line, now): (Line, Timestamp),
        check: bool,
        faults: &mut Faults,
    ) -> Result<Option<Append>, Broken> {
        loop {
            self.shell.host_shows(self.host(now));
            self.shell.advance(self.clock(now), |_| Vec::new());
            let effects = self.shell.take_effects();
            let (mut again, mut append) = (false, None);
            for effect in effects {
                match effect {
                    Effect::Append(asked) => append = Some(asked),
                    Effect::AskHead if line.answers > now => self.asking.push(line.answers),
                    Effect::AskHead => {
                        self.shell.head(log.head());
                        self.fold(log, log.head(), check)?;
                        again = true;
                    }
                    Effect::Decide(task) => {
                        let made = task.run();
                        let thinks_us = if made.decision.proposals.is_empty() {
                            0
                        } else {
                            faults.thinks_us()
                        };
                        if thinks_us > 0 {
                            self.phase = Phase::Deciding(after_us(now, thinks_us), Box::new(made));
                        } else {
                            self.shell.made(made, true);
                            again = true;
                        }
                    }
                    Effect::WakeAt(at) => self.wake = at.map(|at| self.shown(at)),
                    Effect::Pause(pause) => self.pauses.push(after(now, pause)),
                    Effect::Keep(mark) => self.mark = Some(mark),
                    Effect::Save(_) | Effect::Decided | Effect::Discarded { .. } | Effect::End => {}
                }
            }
            if append.is_some() || !again {
                return Ok(append);
            }
        }
    }
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

fn nothing<F: Fold>() -> Snapshot<F> {
    Snapshot {
        state: F::default(),
        log: String::new(),
        sequence: Sequence(0),
        stored_at: Timestamp::default(),
        own_last: Sequence(0),
    }
}

fn encode<F: Fold>(state: &F) -> Vec<u8> {
    rmp_serde::to_vec_named(state).unwrap_or_default()
}

fn after(now: Timestamp, wait: Duration) -> Timestamp {
    after_us(now, u64::try_from(wait.as_micros()).unwrap_or(u64::MAX))
}
