//! The supervisor's children: makes inits in advance and handles exits.

use std::io;
use std::time::{Duration, Instant};

use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::{FILL_AFTER, Supervisor};
use crate::cgroups::Group;
use crate::protocol::{ExecExit, Exit, Orders, Tell};
use crate::supervisor::child::{Heard, Held, Init, Stage};
use crate::{ENDED, StartError, procfs};

/// The usual batch of starts on a node.
const WAITING: usize = 8;

/// Limit including used inits, for bursts of starts.
const MOST_WAITING: usize = 32;

const FEW: usize = 4;

/// Smallest assumed CPU demand. Inits get the last container's demand, but need some CPU themselves.
const LEAST_LIKELY_CPU_MILLI: u64 = 500;

const SWEEP_TIMEOUT: Duration = Duration::from_secs(2);

/// Explains an init's end before its program ran. Too small a memory demand kills the init too.
fn unstarted(exit: &Exit, has_been_killed: bool) -> StartError {
    if has_been_killed {
        ENDED.into()
    } else if exit.out_of_memory {
        "its memory does not suffice to start a program; see demand.memory".into()
    } else {
        StartError::of_node("its init has ended".to_owned())
    }
}

impl Supervisor {
    pub(super) fn init_for(&mut self, orders: &Orders) -> Result<Init, StartError> {
        let cpu_milli = orders.demand.cpu_milli;
        if cpu_milli >= LEAST_LIKELY_CPU_MILLI {
            self.likely_cpu_milli = cpu_milli;
        }
        let waiting = self.waiting.pop();
        let mut init = waiting.map_or_else(|| self.new_init(), Ok)?;
        let mut limited = self.limit(&mut init, orders);
        // Leftover memory of the previous container may exceed the new limit.
        if limited.is_err() && init.is_used {
            self.end(init);
            init = self.new_init()?;
            limited = self.limit(&mut init, orders);
        }
        match limited {
            Ok(()) => Ok(init),
            Err(error) => {
                self.end(init);
                Err(format!("its limits cannot be set: {error}; see demand").into())
            }
        }
    }

    fn new_init(&mut self) -> Result<Init, StartError> {
        self.make_init().map_err(|error| {
            let why = format!("no init for it: {error}; the node is out of processes or memory");
            StartError::of_node(why)
        })
    }

    fn limit(&self, init: &mut Init, orders: &Orders) -> io::Result<()> {
        let group = &mut init.group;
        self.cgroups.limit(group, orders.demand)
    }

    /// Reuses an init like new, or ends it.
    pub(super) fn put_back(&mut self, mut init: Init) {
        let is_wanted = self.agent.is_some() && self.waiting.len() < MOST_WAITING;
        let hears = init.lines.is_open() && init.lines.has_said_all();
        if is_wanted && hears && init.may_stay && init.group.is_like_new() {
            init.is_used = true;
            self.waiting.push(init);
        } else {
            self.end(init);
        }
    }

    fn end(&mut self, init: Init) {
        init.end();
        self.leaving.push(init);
    }

    fn make_init(&mut self) -> io::Result<Init> {
        let name = format!("{:x}-{}", std::process::id(), self.groups_made);
        self.groups_made += 1;
        let group = self.cgroups.create(&name, self.likely_cpu_milli)?;
        let view = self.settings.view.as_ref();
        match self.zygote.make(&group, view) {
            Ok((pid, lines)) => Ok(Init {
                pid,
                lines,
                group,
                may_stay: view.is_none(),
                is_used: false,
            }),
            Err(error) => {
                group.remove();
                Err(error)
            }
        }
    }

    /// Makes one init or removes one group per call, so that starts and exits need not wait for all.
    pub(super) fn fill(&mut self) {
        if self.fill_at.is_none_or(|at| at > Instant::now()) {
            return;
        }
        self.fill_at = None;
        // The removal may block during a move of a process.
        if let Some(group) = self.unused.pop() {
            group.remove();
            return self.fill_at = Some(Instant::now());
        }
        if self.to_make == 0 && self.waiting.len() < FEW {
            // If inits die at once, the next start makes others.
            self.to_make = WAITING - self.waiting.len();
        }
        let is_of_engine = self.settings.engine.is_some();
        if self.to_make == 0 || self.agent.is_none() || is_of_engine {
            self.to_make = 0;
            return;
        }
        self.to_make -= 1;
        match self.make_init() {
            Ok(init) => self.waiting.insert(0, init),
            Err(error) => {
                self.to_make = 0;
                eprintln!("no init waits in advance: {error}");
            }
        }
        self.fill_at = (self.to_make > 0).then(Instant::now);
    }

    pub(super) fn end_waiting(&mut self) {
        self.waiting.iter().for_each(Init::end);
        self.leaving.append(&mut self.waiting);
    }

    pub(super) fn reap(&mut self) {
        while let Ok(Some(_)) = self.signals.read_signal() {}
        let mut has_reaped = false;
        while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            match status {
                WaitStatus::Exited(pid, code) => self.reaped(pid, code, None),
                WaitStatus::Signaled(pid, signal, _) => self.reaped(pid, 0, Some(signal as i32)),
                WaitStatus::StillAlive => break,
                _ => continue,
            }
            has_reaped = true;
        }
        if has_reaped {
            self.end_orphans();
        }
    }

    fn reaped(&mut self, pid: Pid, code: i32, signal: Option<i32>) {
        let well = code == 0 && signal.is_none();
        if self.absence.reaped(pid, well) {
            return;
        }
        if self.zygote.pid == pid {
            // Another supervisor must follow, because this memory is not empty.
            eprintln!("the zygote has ended; this supervisor ends with its last container");
            return self.has_zygote = false;
        }
        let ends = |it: u32| i32::try_from(it) == Ok(pid.as_raw());
        if self.ending.is_some_and(ends) {
            self.ending = None;
            if !well {
                self.absence.give_up();
            }
            return;
        }
        let among = |inits: &[Init]| inits.iter().position(|it| it.pid == pid);
        if let Some(index) = among(&self.waiting) {
            let init = self.waiting.remove(index);
            return self.leave(init.group);
        }
        if let Some(index) = among(&self.leaving) {
            let init = self.leaving.remove(index);
            return self.leave(init.group);
        }
        let is_its = |held: &Held| held.init.as_ref().is_some_and(|it| it.pid == pid);
        let Some((container, held)) = self.held.iter_mut().find(|(_, held)| is_its(held)) else {
            return;
        };
        let container = container.clone();
        let heard = held.hear();
        if let Some(init) = held.init.as_ref().filter(|_| !well) {
            // A killed init without a namespace: use its group.
            init.group.kill_members();
        }
        if signal.is_some() {
            self.sweep();
        }
        if let Some(init) = self.has_ended(container, heard, signal) {
            self.leave(init.group);
        }
    }

    fn leave(&mut self, group: Group) {
        self.unused.push(group);
        self.fill_at = self.fill_at.or(Some(Instant::now() + FILL_AFTER));
    }

    pub(super) fn has_ended(
        &mut self,
        container: String,
        heard: Heard,
        signal: Option<i32>,
    ) -> Option<Init> {
        let held = self.held.get_mut(&container)?;
        let exit = held.exit(signal);
        let has_been_killed = held.has_been_killed();
        let init = held.init.take();
        let turns = match &mut held.stage {
            Stage::Starting(turns) => std::mem::take(turns),
            Stage::Running(_) | Stage::Ended(_) => Vec::new(),
        };
        let (request, execs) = (held.request, std::mem::take(&mut held.execs));
        let never_ran = !turns.is_empty() || matches!(&heard.started, Some((_, Err(_))));
        held.stage = Stage::Ended(exit.clone());
        let ended = Err(unstarted(&exit, has_been_killed));
        let (heard_turns, result) = heard.started.unwrap_or((turns, ended));
        for turn in heard_turns {
            self.tell(&Tell::Started(turn, result.clone()));
        }
        for (number, exit) in heard.execs {
            self.tell(&Tell::ExecEnded(number, exit));
        }
        for (number, _) in execs {
            let exit = ExecExit::without("the container has ended");
            self.tell(&Tell::ExecEnded(number, exit));
        }
        if never_ran {
            self.held.remove(&container);
        } else {
            self.tell(&Tell::Ended(container, request, exit));
        }
        init
    }

    fn sweep(&self) {
        let until = Instant::now() + SWEEP_TIMEOUT;
        while self.end_orphans() > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn end_orphans(&self) -> usize {
        let inits = self.held.values().filter_map(|it| it.init.as_ref());
        let inits = inits.chain(&self.waiting).chain(&self.leaving);
        let known: Vec<_> = inits
            .map(Init::number)
            .chain(self.ending)
            .chain(self.absence.saying())
            .chain(u32::try_from(self.zygote.pid.as_raw()))
            .collect();
        let mut orphans = procfs::children(std::process::id());
        orphans.retain(|child| !known.contains(child));
        for orphan in &orphans {
            procfs::kill_process(*orphan);
            let pid = i32::try_from(*orphan).map(Pid::from_raw);
            let _ = pid.map(|pid| waitpid(pid, Some(WaitPidFlag::WNOHANG)));
        }
        orphans.len()
    }
}
