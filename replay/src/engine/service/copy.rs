//! One copy of a service: folds the log, carries out the machine's effects, and survives restarts.

use std::sync::Arc;
use std::time::Duration;

use dormouse_messages::{Decider, Fold, Sequence, Timestamp};
use dormouse_shell::{
    Append, ClockAnchor, Effect, Halt, HostTime, LogItem, Made, Outcome, Shell, Snapshot,
};

use crate::engine::agent_link::Cut;
use crate::engine::brokers::after_us;
use crate::engine::faults::Faults;
use crate::engine::log::MemoryLog;

const BUILD: &str = "simulated";

pub(super) type Broken = (Sequence, String);

/// The services' connection to the brokers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Line {
    pub replicated: bool,
    /// The time from which questions are answered.
    pub answers: Timestamp,
}

pub(super) enum Phase {
    Following,
    Deciding(Timestamp, Box<Made>),
    /// The process is dead until then; true if it restarts from its snapshot.
    Down(Timestamp, bool),
}

pub(super) struct Copy<D: Decider> {
    pub(super) shell: Shell<D>,
    pub(super) phase: Phase,
    pub(super) turn: Option<Timestamp>,
    wake: Option<Timestamp>,
    pauses: Vec<Timestamp>,
    pub(super) answer: Option<(Timestamp, Outcome)>,
    pub(super) awaits: Option<u64>,
    asking: Vec<Timestamp>,
    pub(super) cut: Option<(Cut, Timestamp)>,
    pub(super) snapshot: Option<(Vec<u8>, Snapshot<()>)>,
    pub(super) off_us: i64,
    /// The host's boot number, and the clock offset after the next boot.
    pub(super) boot: u64,
    pub(super) reboot: Option<i64>,
    mark: Option<ClockAnchor>,
}

impl<D: Decider> Copy<D> {
    pub(super) fn new(decider: &Arc<D>) -> Self {
        Self::starting_from(decider, nothing())
    }

    pub(super) fn starting_from(decider: &Arc<D>, snapshot: Snapshot<D::State>) -> Self {
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

    pub(super) fn due(&self) -> Option<Timestamp> {
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
    pub(super) fn fold(
        &mut self,
        log: &MemoryLog,
        to: Sequence,
        check: bool,
    ) -> Result<(), Broken> {
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

    pub(super) fn restart(
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

    pub(super) fn keep_snapshot(&mut self) {
        let place = Snapshot {
            state: (),
            log: String::new(),
            sequence: self.shell.folded(),
            stored_at: self.shell.stored_at(),
            own_last: self.shell.own_last(),
        };
        self.snapshot = Some((encode(self.shell.state()), place));
    }

    pub(super) fn hear(&mut self, log: &MemoryLog, line: Line, now: Timestamp) {
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

    pub(super) fn step(
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
