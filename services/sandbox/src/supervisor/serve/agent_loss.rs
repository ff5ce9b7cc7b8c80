//! The reaction to a dead agent on a live node: ends its containers and reports before the lease ends.
//!
//! ```text
//!  idle ──agent dies──▶ waiting ──nobody came──▶ ending ──nothing runs──▶ saying ──stored──▶ idle
//!   ▲                      │                                                │ ▲
//!   └──another agent came──┘                                        failed  ▼ │ a second later
//!                                                                          again
//! ```
//!
//! 1. An agent that stops in order first withdraws its orders.
//! 2. The report names the dead incarnation. A later agent starts nothing before it sees its own join.
//! 3. If the report fails, the end of the lease declares the node lost.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use super::Supervisor;
use crate::protocol::Gone;
use crate::supervisor::child::Stage;

const AGAIN: Duration = Duration::from_secs(1);

const GONE: &str =
    "the node's agent died and none came back in time; its supervisor has ended everything";

#[derive(Debug, Default)]
pub(super) struct Absence {
    orders: Option<Gone>,
    said: Option<Gone>,
    phase: Phase,
    alone: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    Waiting(Instant),
    Ending,
    Saying(u32),
    Again(Instant),
}

impl Absence {
    /// Sets or withdraws the agent's orders.
    pub fn ordered(&mut self, orders: Option<Gone>) {
        self.orders = orders;
    }

    /// Handles the agent's disconnection.
    pub fn agent_left(&mut self) {
        self.alone = true;
        self.wait();
    }

    fn wait(&mut self) {
        if let (Some(orders), Phase::Idle) = (&self.orders, self.phase) {
            let after = Duration::from_millis(orders.after_ms);
            self.phase = Phase::Waiting(Instant::now() + after);
        }
    }

    /// A report under way stays true of the earlier incarnation.
    pub fn agent_came(&mut self) {
        self.alone = false;
        self.rest();
    }

    fn rest(&mut self) {
        if !matches!(self.phase, Phase::Saying(_)) {
            self.phase = Phase::Idle;
        }
    }

    /// The end of the lease has the placer report the same.
    pub fn give_up(&mut self) {
        self.rest();
    }

    /// Returns the next step's time.
    pub fn due(&self) -> Option<Instant> {
        match self.phase {
            Phase::Waiting(at) | Phase::Again(at) => Some(at),
            Phase::Idle | Phase::Ending | Phase::Saying(_) => None,
        }
    }

    /// Reports whether work is pending.
    pub fn is_pending(&self) -> bool {
        self.phase != Phase::Idle
    }

    /// Returns the pid of the reporting process.
    pub const fn saying(&self) -> Option<u32> {
        match self.phase {
            Phase::Saying(pid) => Some(pid),
            _ => None,
        }
    }

    /// Handles a child's end. True for the reporting process.
    pub fn reaped(&mut self, pid: Pid, well: bool) -> bool {
        let its = |saying: u32| i32::try_from(saying) == Ok(pid.as_raw());
        if !self.saying().is_some_and(its) {
            return false;
        }
        let said = self.said.take().filter(|_| !well && self.orders.is_none());
        self.phase = match said {
            None => Phase::Idle,
            again => {
                self.orders = again;
                Phase::Again(Instant::now() + AGAIN)
            }
        };
        if self.alone {
            self.wait();
        }
        true
    }

    fn say(&mut self) {
        let Some(orders) = &self.orders else {
            self.phase = Phase::Idle;
            return;
        };
        let [program, arguments @ ..] = &orders.command[..] else {
            self.phase = Phase::Idle;
            return;
        };
        let started = Command::new(program)
            .args(arguments)
            .env_clear()
            .envs(&orders.env)
            .current_dir(&orders.working_dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        self.phase = match started {
            Ok(child) => {
                self.said = self.orders.take();
                Phase::Saying(child.id())
            }
            Err(error) => {
                eprintln!("that everything has ended cannot be said: {program}: {error}");
                Phase::Again(Instant::now() + AGAIN)
            }
        };
    }
}

trait Ends {
    /// Ends all of them. Returns true if they have ended once nothing runs.
    fn end(&mut self) -> bool;
    fn runs_nothing(&self) -> bool;
}

impl Absence {
    fn go_on(&mut self, ends: &mut impl Ends) {
        let is_due = self.due().is_some_and(|at| at <= Instant::now());
        if is_due && matches!(self.phase, Phase::Waiting(_)) {
            let ending = ends.end();
            self.phase = if ending { Phase::Ending } else { Phase::Idle };
        }
        match self.phase {
            // Otherwise no end would trigger this step.
            Phase::Ending if ends.runs_nothing() => self.say(),
            Phase::Again(_) if is_due => self.say(),
            _ => {}
        }
    }
}

impl Supervisor {
    pub(super) fn look_for_an_agent(&mut self) {
        let mut absence = std::mem::take(&mut self.absence);
        absence.go_on(self);
        self.absence = absence;
    }
}

impl Ends for Supervisor {
    fn end(&mut self) -> bool {
        self.end_everything(GONE)
    }

    fn runs_nothing(&self) -> bool {
        let has_ended = |stage: &Stage| matches!(stage, Stage::Ended(_));
        self.ending.is_none() && self.held.values().all(|it| has_ended(&it.stage))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn orders(argument: &str) -> Gone {
        Gone {
            after_ms: 1_000,
            command: vec!["true".into(), argument.into()],
            env: BTreeMap::new(),
            working_dir: "/".into(),
        }
    }

    fn saying() -> (Absence, Pid) {
        let mut absence = Absence::default();
        absence.ordered(Some(orders("1")));
        absence.agent_left();
        absence.say();
        let pid = i32::try_from(absence.saying().expect("a process")).expect("a pid");
        (absence, Pid::from_raw(pid))
    }

    #[test]
    fn an_agent_that_dies_while_its_predecessors_end_is_said_is_waited_for() {
        let (mut absence, pid) = saying();
        absence.agent_came();
        absence.ordered(Some(orders("2")));
        absence.agent_left();
        assert!(absence.reaped(pid, true));
        assert!(matches!(absence.phase, Phase::Waiting(_)));
    }

    struct Empty;

    impl Ends for Empty {
        fn end(&mut self) -> bool {
            true
        }

        fn runs_nothing(&self) -> bool {
            true
        }
    }

    #[test]
    fn where_nothing_runs_that_is_said_at_once() {
        let mut absence = Absence::default();
        absence.ordered(Some(Gone {
            after_ms: 0,
            ..orders("1")
        }));
        absence.agent_left();
        absence.go_on(&mut Empty);
        assert!(absence.saying().is_some());
    }

    #[test]
    fn one_that_lives_is_left_alone() {
        let (mut absence, pid) = saying();
        absence.agent_came();
        absence.ordered(Some(orders("2")));
        assert!(absence.reaped(pid, true));
        assert_eq!(absence.phase, Phase::Idle);
        let (mut absence, pid) = saying();
        assert!(absence.reaped(pid, true));
        assert_eq!(absence.phase, Phase::Idle);
    }
}
