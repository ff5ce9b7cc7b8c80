//! An init: the trusted process that starts a container's program, reports its exit, and ends the rest. In a
//! sandbox it is the init of the pid namespace. Otherwise it kills orphans, and may wait for another
//! container. `launch` starts programs.

mod launch;

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid, setpgid};

use crate::cgroups::Group;
use crate::framed_socket::Lines;
use crate::isolation::{self, HostView, Prepared, Sandbox};
use crate::protocol::{Attachment, ExecExit, InitAsk, InitTell, Orders, Program};
use crate::spawn::end_now;
use crate::{StartError, procfs};
use launch::{Ends, launch};

/// Time limit for leftover processes to die. Later they count as not killable.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(2);

const SWEEP_PAUSE: Duration = Duration::from_millis(1);

struct Init {
    supervisor: Lines,
    signals: SignalFd,
    view: Option<HostView>,
    prepared: Option<Prepared>,
    unready: Option<StartError>,
    sandbox: Option<Sandbox>,
    program: Option<Pid>,
    execs: Vec<(Pid, u64)>,
    has_swept: bool,
}

/// Runs an init to its end.
pub fn main(supervisor: UnixStream, group: &Group, view: Option<&HostView>, folder: &Path) -> ! {
    let code = match Init::new(supervisor, group, view, folder) {
        Ok(mut init) => match init.serve() {
            Ok(()) => i32::from(!init.has_swept),
            Err(errno) => {
                eprintln!("an init: {errno}");
                1
            }
        },
        Err(error) => {
            eprintln!("an init cannot begin: {error}");
            1
        }
    };
    end_now(code)
}

impl Init {
    fn new(
        supervisor: UnixStream,
        group: &Group,
        view: Option<&HostView>,
        folder: &Path,
    ) -> std::io::Result<Self> {
        // Without a sandbox the init must first end its processes.
        let at_supervisors_end = match view {
            Some(_) => Signal::SIGKILL,
            None => Signal::SIGTERM,
        };
        prctl::set_pdeathsig(at_supervisors_end)?;
        prctl::set_child_subreaper(true)?;
        let _ = prctl::set_name(c"dormouse-init");
        let own = Pid::from_raw(0);
        setpgid(own, own)?;
        let mut mask = SigSet::all();
        mask.remove(Signal::SIGKILL);
        mask.remove(Signal::SIGSTOP);
        mask.thread_block()?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let entered = group.enter().map_err(|error| {
            let why = format!("its control group cannot be entered: {error}");
            StartError::of_node(why)
        });
        let prepared = entered.and_then(|()| match view {
            Some(view) => isolation::prepare(view, folder).map(Some),
            None => Ok(None),
        });
        let (prepared, unready) = match prepared {
            Ok(prepared) => (prepared, None),
            Err(why) => (None, Some(why)),
        };
        Ok(Self {
            supervisor: Lines::new(supervisor)?,
            signals,
            view: view.cloned(),
            prepared,
            unready,
            sandbox: None,
            program: None,
            execs: Vec::new(),
            has_swept: true,
        })
    }

    fn serve(&mut self) -> nix::Result<()> {
        loop {
            let mut fds = [
                PollFd::new(self.supervisor.as_fd(), self.supervisor.interest()),
                PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
            self.supervisor.flush();
            for ask in self.supervisor.hear::<InitAsk>() {
                if !self.answer(ask) {
                    return Ok(());
                }
            }
            let mut must_end = !self.supervisor.is_open();
            while let Ok(Some(signal)) = self.signals.read_signal() {
                must_end |= i32::try_from(signal.ssi_signo) == Ok(Signal::SIGTERM as i32)
                    && self.view.is_none();
            }
            if must_end {
                self.kill_program();
                self.sweep();
                return Ok(());
            }
            if self.reap() {
                return Ok(());
            }
        }
    }

    fn answer(&mut self, ask: InitAsk) -> bool {
        match ask {
            InitAsk::Run(orders) => {
                let started = self.run(*orders);
                let goes_on = started.is_ok();
                self.supervisor.say(&InitTell::Started(started));
                return goes_on;
            }
            InitAsk::Signal(signal) => {
                if let (Some(program), Ok(signal)) = (self.program, Signal::try_from(signal)) {
                    let _ = killpg(program, signal);
                }
            }
            InitAsk::Kill => self.kill_program(),
            InitAsk::Exec(number, program, attachment) => match self.exec(&program, attachment) {
                Ok(pid) => self.execs.push((pid, number)),
                Err(why) => {
                    let exit = ExecExit::without(why.why);
                    self.supervisor.say(&InitTell::ExecEnded(number, exit));
                }
            },
            InitAsk::ExecSignal(number, signal) => {
                let found = self.execs.iter().find(|(_, it)| *it == number);
                if let (Some((pid, _)), Ok(signal)) = (found, Signal::try_from(signal)) {
                    let _ = killpg(*pid, signal);
                }
            }
        }
        true
    }

    fn run(&mut self, orders: Orders) -> Result<(), StartError> {
        if let Some(why) = &self.unready {
            return Err(why.clone());
        }
        self.sandbox = match (orders.sandbox, &self.view, self.prepared.take()) {
            (Some(spec), Some(view), Some(prepared)) => {
                Some(isolation::enter(prepared, view, spec)?)
            }
            (None, None, None) => None,
            _ => {
                return Err(
                    "its supervisor was told of another sandbox; start the agent again".into(),
                );
            }
        };
        let started = launch(&orders.program, self.sandbox.as_ref(), Ends::Files)?;
        self.program = Some(started);
        Ok(())
    }

    fn exec(&mut self, program: &Program, attachment: Attachment) -> Result<Pid, StartError> {
        let descriptors = self.supervisor.take(attachment.descriptors());
        let descriptors = descriptors.ok_or("its descriptors are missing")?;
        // A request may arrive after the program's exit.
        if self.program.is_none() {
            return Err("the container does not run".into());
        }
        let ends = match attachment {
            Attachment::Files => Ends::Files,
            Attachment::Pipes | Attachment::Terminal => Ends::Attached(descriptors),
        };
        launch(program, self.sandbox.as_ref(), ends)
    }

    fn kill_program(&self) {
        if let Some(program) = self.program {
            let _ = kill(program, Signal::SIGKILL);
            let _ = killpg(program, Signal::SIGKILL);
        }
    }

    /// Returns true if the init must end: no other program can follow.
    fn reap(&mut self) -> bool {
        while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            let (pid, code, signal) = match status {
                WaitStatus::Exited(pid, code) => (pid, Some(code), None),
                WaitStatus::Signaled(pid, signal, _) => (pid, None, Some(signal as i32)),
                WaitStatus::StillAlive => break,
                _ => continue,
            };
            if self.program == Some(pid) {
                self.sweep();
                let is_free = self.has_swept && self.view.is_none();
                (self.program, self.execs) = (None, Vec::new());
                self.supervisor.say(&InitTell::Ended(code, signal, is_free));
                return !is_free;
            }
            if let Some(index) = self.execs.iter().position(|(it, _)| *it == pid) {
                let (_, number) = self.execs.remove(index);
                let exit = ExecExit {
                    code,
                    signal,
                    why: None,
                };
                self.supervisor.say(&InitTell::ExecEnded(number, exit));
            }
        }
        false
    }

    fn sweep(&mut self) {
        let until = Instant::now() + SWEEP_TIMEOUT;
        let own = u32::try_from(getpid().as_raw()).unwrap_or(0);
        while self.view.is_none() && Instant::now() < until {
            let children = procfs::children(own);
            children.iter().copied().for_each(procfs::kill_process);
            while matches!(waitpid(None, Some(WaitPidFlag::WNOHANG)), Ok(it) if it != WaitStatus::StillAlive)
            {
            }
            self.has_swept = procfs::children(own).is_empty();
            if self.has_swept {
                return;
            }
            std::thread::sleep(SWEEP_PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::{BufRead, BufReader};

    use super::*;

    #[test]
    fn what_comes_behind_the_end_of_its_container_is_not_started_in_the_next_one() {
        let (own, supervisors) = UnixStream::pair().expect("a pair");
        let mask = SigSet::empty();
        let mut init = Init {
            supervisor: Lines::new(own).expect("a socket"),
            signals: SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK).expect("a descriptor"),
            view: None,
            prepared: None,
            unready: None,
            sandbox: None,
            program: None,
            execs: Vec::new(),
            has_swept: true,
        };
        let program = Program {
            path: "/bin/true".into(),
            arguments: Vec::new(),
            env: BTreeMap::new(),
            working_dir: "/".into(),
            output: "/tmp".into(),
            output_files: ["out".to_owned(), "errors".to_owned()],
        };
        assert!(init.answer(InitAsk::Kill) && init.answer(InitAsk::Signal(15)));
        let exec = InitAsk::Exec(7, Box::new(program), Attachment::Files);
        assert!(init.answer(exec));
        let told = BufReader::new(supervisors).lines().next();
        let told = told.expect("a word").expect("read");
        let told = serde_json::from_str(&told).expect("a word");
        assert!(
            matches!(&told, InitTell::ExecEnded(7, exit) if exit.why.is_some()),
            "{told:?}"
        );
    }
}
