//! The supervisor's records of idle inits and of containers.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cgroups::Group;
use crate::framed_socket::Lines;
use crate::protocol::{Attachment, ExecExit, Exit, HeldNow, InitAsk, InitTell};
use crate::{StartError, procfs};

/// A starved machine needs a hundred milliseconds.
const KILL_TIMEOUT: Duration = Duration::from_millis(500);

/// An init, idle or with a container.
#[derive(Debug)]
pub struct Init {
    pub pid: Pid,
    pub lines: Lines,
    pub group: Group,
    /// The init is still made as the next one would be.
    pub may_stay: bool,
    pub is_used: bool,
}

/// A container's stage in the supervisor.
#[derive(Debug)]
pub enum Stage {
    Starting(Vec<u64>),
    Running(u32),
    Ended(Exit),
}

/// A container's record in the supervisor.
#[derive(Debug)]
pub struct Held {
    pub request: u64,
    pub init: Option<Init>,
    pub stage: Stage,
    pub said: Option<(Option<i32>, Option<i32>)>,
    pub evicted: Option<String>,
    kill_at: Option<Instant>,
    pub execs: Vec<(u64, Attachment)>,
    pub has_news: bool,
}

/// The events in an init's messages.
#[derive(Debug, Default)]
pub struct Heard {
    pub started: Option<(Vec<u64>, Result<u32, StartError>)>,
    pub execs: Vec<(u64, ExecExit)>,
    pub is_over: bool,
}

impl Init {
    pub fn number(&self) -> u32 {
        u32::try_from(self.pid.as_raw()).unwrap_or(0)
    }

    /// Kills the init and its processes.
    pub fn end(&self) {
        self.group.kill();
        let _ = kill(self.pid, Signal::SIGKILL);
    }
}

impl Held {
    pub fn new(request: u64, init: Init, turn: u64) -> Self {
        Self {
            request,
            init: Some(init),
            stage: Stage::Starting(vec![turn]),
            said: None,
            evicted: None,
            kill_at: None,
            execs: Vec::new(),
            has_news: false,
        }
    }

    /// Returns the init's open socket.
    pub fn talks(&self) -> Option<&Lines> {
        let lines = self.init.as_ref().map(|it| &it.lines);
        lines.filter(|it| it.is_open())
    }

    /// Returns the record for the agent.
    pub fn now(&self, container: &str) -> HeldNow {
        HeldNow {
            container: container.to_owned(),
            request: self.request,
            status: match &self.stage {
                Stage::Starting(_) => Ok(0),
                Stage::Running(program) => Ok(*program),
                Stage::Ended(exit) => Err(exit.clone()),
            },
        }
    }

    /// Asks the init to kill everything. An init that fails in time is killed.
    pub fn kill(&mut self) {
        if let Some(init) = &mut self.init {
            init.lines.say(&InitAsk::Kill);
            self.kill_at = self.kill_at.or(Some(Instant::now() + KILL_TIMEOUT));
        }
    }

    /// Reports whether the container was ordered to die.
    pub const fn has_been_killed(&self) -> bool {
        self.kill_at.is_some()
    }

    /// Returns the time of the next check.
    pub const fn due(&self) -> Option<Instant> {
        match self.init {
            Some(_) => self.kill_at,
            None => None,
        }
    }

    /// Kills an init that has not obeyed in time, and repeats until the init is gone.
    pub fn kill_what_is_due(&mut self, now: Instant) {
        if let Some(init) = &mut self.init
            && self.kill_at.is_some_and(|at| at <= now)
        {
            init.may_stay = false;
            init.end();
            self.kill_at = Some(now + KILL_TIMEOUT);
        }
    }

    /// Reads the init's messages.
    pub fn hear(&mut self) -> Heard {
        let mut heard = Heard::default();
        let Some(init) = &mut self.init else {
            return heard;
        };
        init.lines.flush();
        for word in init.lines.hear::<InitTell>() {
            match word {
                InitTell::Started(result) => {
                    let first = procfs::children(init.number()).first().copied();
                    let result = result.map(|()| first.unwrap_or_default());
                    if let Stage::Starting(turns) = &mut self.stage {
                        heard.started = Some((std::mem::take(turns), result.clone()));
                        if let Ok(program) = result {
                            self.stage = Stage::Running(program);
                        }
                    }
                }
                InitTell::ExecEnded(number, exit) => {
                    let asked = self.execs.iter().position(|it| it.0 == number);
                    if let Some(index) = asked {
                        self.execs.remove(index);
                        heard.execs.push((number, exit));
                    }
                }
                InitTell::Ended(code, signal, is_free) => {
                    self.said = Some((code, signal));
                    heard.is_over = is_free;
                }
            }
        }
        heard
    }

    /// Returns the exit after the init's end.
    pub fn exit(&self, of_init: Option<i32>) -> Exit {
        let (code, signal) = self.said.unwrap_or((None, of_init));
        let out_of_memory = code != Some(0)
            && self
                .init
                .as_ref()
                .is_some_and(|it| it.group.ran_out_of_memory());
        Exit {
            code,
            signal,
            out_of_memory,
            evicted: self.evicted.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_init_that_is_gone_is_not_waited_for() {
        let held = Held {
            request: 1,
            init: None,
            stage: Stage::Ended(Exit::default()),
            said: None,
            evicted: None,
            kill_at: Some(Instant::now()),
            execs: Vec::new(),
            has_news: false,
        };
        assert_eq!(
            held.due(),
            None,
            "the supervisor would look again and again"
        );
    }
}
