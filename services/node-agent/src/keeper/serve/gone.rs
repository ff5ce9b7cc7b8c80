//! An agent that is gone while its node lives: what it ran is ended, and the log hears of it before
//! the node's lease ends.
//!
//! ```text
//!  idle ──agent dies──▶ waiting ──nobody came──▶ ending ──nothing runs──▶ saying ──stored──▶ idle
//!   ▲                      │                                                │ ▲
//!   └──another agent came──┘                                   could not be ▼ │ a second later
//!                                                                          again
//! ```
//!
//! 1. An agent that stops in order takes its orders back first: it is about to come again.
//! 2. The word names the life that its agent had joined in. One that joins meanwhile has the next
//!    life, is not concerned by it, and starts nothing before it hears that it has joined.
//! 3. Where the word cannot be said until the lease ends, nothing is lost: the node is declared lost
//!    then, as without it.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use super::Keeper;
use crate::keeper::held::Stage;
use crate::keeper::words::Gone;

/// Before the word is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// What was ended so says so.
const GONE: &str =
    "the node's agent died and none came back in time; its keeper has ended everything";

/// What a keeper does about a dead agent.
#[derive(Debug, Default)]
pub(super) struct Absence {
    /// What the last agent that joined wants done.
    orders: Option<Gone>,
    /// Those that are being carried out.
    said: Option<Gone>,
    phase: Phase,
    /// No agent is there.
    alone: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// An agent is there, or nothing was ordered.
    #[default]
    Idle,
    /// For another agent, until then.
    Waiting(Instant),
    /// Everything was told to end.
    Ending,
    /// This process says it.
    Saying(u32),
    /// It could not; another one does from then on.
    Again(Instant),
}

impl Absence {
    /// The agent has orders for the case of its death, or takes them back.
    pub fn ordered(&mut self, orders: Option<Gone>) {
        self.orders = orders;
    }

    /// The agent's connection has closed.
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

    /// Another agent is there. What is being said already remains true of the life before.
    pub fn agent_came(&mut self) {
        self.alone = false;
        self.rest();
    }

    fn rest(&mut self) {
        if !matches!(self.phase, Phase::Saying(_)) {
            self.phase = Phase::Idle;
        }
    }

    /// The lease ends now, and the placer says the same.
    pub fn give_up(&mut self) {
        self.rest();
    }

    /// When it goes on by itself.
    pub fn due(&self) -> Option<Instant> {
        match self.phase {
            Phase::Waiting(at) | Phase::Again(at) => Some(at),
            Phase::Idle | Phase::Ending | Phase::Saying(_) => None,
        }
    }

    /// Whether it is still to do something.
    pub fn is_pending(&self) -> bool {
        self.phase != Phase::Idle
    }

    /// The process that says it, if there is one.
    pub const fn saying(&self) -> Option<u32> {
        match self.phase {
            Phase::Saying(pid) => Some(pid),
            _ => None,
        }
    }

    /// A child has ended, well or not; whether it was the one that says it.
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
            // One that came meanwhile is gone, too.
            self.wait();
        }
        true
    }

    /// Starts the process that says it.
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

/// What is ended.
trait Ends {
    /// Ends all of it; whether it will have ended once it runs nothing.
    fn end(&mut self) -> bool;
    /// Whether nothing of it runs any more.
    fn runs_nothing(&self) -> bool;
}

impl Absence {
    /// Goes on where it is time.
    fn go_on(&mut self, ends: &mut impl Ends) {
        let is_due = self.due().is_some_and(|at| at <= Instant::now());
        if is_due && matches!(self.phase, Phase::Waiting(_)) {
            let ending = ends.end();
            self.phase = if ending { Phase::Ending } else { Phase::Idle };
        }
        match self.phase {
            // Perhaps nothing ran, and nobody will say that it has ended.
            Phase::Ending if ends.runs_nothing() => self.say(),
            Phase::Again(_) if is_due => self.say(),
            _ => {}
        }
    }
}

impl Keeper {
    /// Goes on where it is time.
    pub(super) fn look_for_an_agent(&mut self) {
        let mut absence = std::mem::take(&mut self.absence);
        absence.go_on(self);
        self.absence = absence;
    }
}

impl Ends for Keeper {
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

    fn orders(life: &str) -> Gone {
        Gone {
            after_ms: 1_000,
            command: vec!["true".into(), life.into()],
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

    /// What runs nothing.
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
        // Nothing is said twice either.
        let (mut absence, pid) = saying();
        assert!(absence.reaped(pid, true));
        assert_eq!(absence.phase, Phase::Idle);
    }
}
