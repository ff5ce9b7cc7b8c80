//! What a keeper holds: guards that wait for a container, and containers.

use std::time::{Duration, Instant};

use dormouse_messages::Sequence;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::group::Group;
use super::lines::Lines;
use super::words::{ExecExit, GuardAsk, GuardTell, HeldNow};
use crate::procfs;
use crate::runtime::{Exit, NotStarted};
use dormouse_messages::ContainerId;

/// How long a guard may take to kill what it guards: milliseconds, on a starved machine a hundred.
const KILL_TIMEOUT: Duration = Duration::from_millis(500);

/// A guard: it waits for a container, or has one.
#[derive(Debug)]
pub struct Guard {
    pub pid: Pid,
    pub lines: Lines,
    pub group: Group,
    /// It may have another container after one that it had: it stands as the next one would be made.
    pub may_stay: bool,
    /// It had one.
    pub is_used: bool,
}

/// Where a container stands.
#[derive(Debug)]
pub enum Stage {
    /// Its guard has its orders; these turns wait for the answer.
    Starting(Vec<u64>),
    /// Its program runs, under this number.
    Running(u32),
    /// Nothing of it runs any more.
    Ended(Exit),
}

/// A container.
#[derive(Debug)]
pub struct Held {
    pub request: Sequence,
    pub guard: Option<Guard>,
    pub stage: Stage,
    /// What its guard said of its program's end.
    pub said: Option<(Option<i32>, Option<i32>)>,
    /// Why the keeper ended it.
    pub evicted: Option<String>,
    /// When its guard is killed, where that does not obey.
    kill_at: Option<Instant>,
    /// Turns of programs beside it.
    pub beside: Vec<u64>,
    /// Numbers of programs in it that somebody is attached to.
    pub execs: Vec<u64>,
    /// Its guard has something to say, or takes what waits for it.
    pub has_news: bool,
}

/// What has become of a container by its guard's words.
#[derive(Debug, Default)]
pub struct Heard {
    /// The turns that wait for its start, and the answer.
    pub started: Option<(Vec<u64>, Result<u32, NotStarted>)>,
    /// Programs beside it that have ended.
    pub beside: Vec<(u64, Result<(), String>)>,
    /// Programs that somebody was attached to and that have ended.
    pub execs: Vec<(u64, ExecExit)>,
    /// Nothing of it is left but its guard.
    pub is_over: bool,
}

impl Guard {
    pub fn number(&self) -> u32 {
        u32::try_from(self.pid.as_raw()).unwrap_or(0)
    }

    /// Ends it with all that it guards, at once.
    pub fn end(&self) {
        self.group.kill();
        let _ = kill(self.pid, Signal::SIGKILL);
    }
}

impl Held {
    pub fn new(request: Sequence, guard: Guard, turn: u64) -> Self {
        Self {
            request,
            guard: Some(guard),
            stage: Stage::Starting(vec![turn]),
            said: None,
            evicted: None,
            kill_at: None,
            beside: Vec::new(),
            execs: Vec::new(),
            has_news: false,
        }
    }

    /// Its guard's end, while it is open.
    pub fn talks(&self) -> Option<&Lines> {
        let lines = self.guard.as_ref().map(|it| &it.lines);
        lines.filter(|it| it.is_open())
    }

    /// As the agent is told.
    pub fn now(&self, container: &ContainerId) -> HeldNow {
        HeldNow {
            container: container.clone(),
            request: self.request,
            status: match &self.stage {
                Stage::Starting(_) => Ok(0),
                Stage::Running(program) => Ok(*program),
                Stage::Ended(exit) => Err(exit.clone()),
            },
        }
    }

    /// Has its guard kill everything; soon it is made to.
    pub fn kill(&mut self) {
        if let Some(guard) = &mut self.guard {
            guard.lines.say(&GuardAsk::Kill);
            self.kill_at = self.kill_at.or(Some(Instant::now() + KILL_TIMEOUT));
        }
    }

    /// Whether somebody has had it killed.
    pub const fn has_been_killed(&self) -> bool {
        self.kill_at.is_some()
    }

    /// When it has to be looked at again.
    pub const fn due(&self) -> Option<Instant> {
        match self.guard {
            Some(_) => self.kill_at,
            // It is gone: nothing of it is to be killed any more.
            None => None,
        }
    }

    /// Kills a guard that has not obeyed in time, and again until it is gone.
    pub fn kill_what_is_due(&mut self, now: Instant) {
        if let Some(guard) = &mut self.guard
            && self.kill_at.is_some_and(|at| at <= now)
        {
            guard.may_stay = false;
            guard.end();
            self.kill_at = Some(now + KILL_TIMEOUT);
        }
    }

    /// What its guard has to say.
    pub fn hear(&mut self) -> Heard {
        let mut heard = Heard::default();
        let Some(guard) = &mut self.guard else {
            return heard;
        };
        guard.lines.flush();
        for word in guard.lines.hear::<GuardTell>() {
            match word {
                GuardTell::Started(result) => {
                    let first = procfs::children(guard.number()).first().copied();
                    let result = result.map(|()| first.unwrap_or_default());
                    if let Stage::Starting(turns) = &mut self.stage {
                        heard.started = Some((std::mem::take(turns), result.clone()));
                        if let Ok(program) = result {
                            self.stage = Stage::Running(program);
                        }
                    }
                }
                // What was asked of the container that the guard had before has been answered.
                GuardTell::BesideEnded(turn, result) => {
                    let asked = self.beside.iter().position(|it| *it == turn);
                    if let Some(index) = asked {
                        self.beside.remove(index);
                        heard.beside.push((turn, result));
                    }
                }
                GuardTell::ExecEnded(number, exit) => {
                    let asked = self.execs.iter().position(|it| *it == number);
                    if let Some(index) = asked {
                        self.execs.remove(index);
                        heard.execs.push((number, exit));
                    }
                }
                GuardTell::Ended(code, signal, is_free) => {
                    self.said = Some((code, signal));
                    heard.is_over = is_free;
                }
            }
        }
        heard
    }

    /// Its guard is gone, and all that it guarded with it.
    pub fn exit(&self, of_guard: Option<i32>) -> Exit {
        let (code, signal) = self.said.unwrap_or((None, of_guard));
        let out_of_memory = code != Some(0)
            && self
                .guard
                .as_ref()
                .is_some_and(|it| it.group.ran_out_of_memory());
        let exit = Exit {
            code,
            signal,
            out_of_memory,
            ..Exit::default()
        };
        exit.with_eviction(self.evicted.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_that_is_gone_is_not_waited_for() {
        let held = Held {
            request: Sequence(1),
            guard: None,
            stage: Stage::Ended(Exit::default()),
            said: None,
            evicted: None,
            kill_at: Some(Instant::now()),
            beside: Vec::new(),
            execs: Vec::new(),
            has_news: false,
        };
        assert_eq!(held.due(), None, "the keeper would look again and again");
    }
}
