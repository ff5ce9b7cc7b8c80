//! The zygote forks inits. It starts before any agent's message, so an init copies no memory with other
//! tenants' orders.
//!
//! ```text
//!  supervisor ──Make, the init's socket──► zygote ──fork──► init, a child of the supervisor
//!             ◄─────────────its pid───
//! ```

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use fork::Fork;
use nix::poll::{PollFd, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::cgroups::Group;
use crate::framed_socket::Lines;
use crate::init;
use crate::isolation::{HostView, syscalls};
use crate::kernel::{Forked, fork_sibling};
use crate::spawn::end_now;

const TIMEOUT_MS: u16 = 10_000;

#[derive(Debug, Serialize, Deserialize)]
struct Make {
    group: Group,
    view: Option<HostView>,
}

type Made = Result<i32, i32>;

/// The supervisor's handle of the zygote.
#[derive(Debug)]
pub struct Zygote {
    pub pid: Pid,
    lines: Lines,
}

impl Zygote {
    /// Forks the zygote. The supervisor must have one thread and hold only its lock.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn start(folder: &Path) -> io::Result<Self> {
        let (own, its) = UnixStream::pair()?;
        match fork::fork()? {
            Fork::Child => {
                drop(own);
                let ended = serve(its, folder);
                if let Err(error) = &ended {
                    eprintln!("the zygote has ended: {error}");
                }
                end_now(i32::from(ended.is_err()))
            }
            Fork::Parent(pid) => Ok(Self {
                pid: Pid::from_raw(pid),
                lines: Lines::new(own)?,
            }),
        }
    }

    /// Forks an init in a control group. Returns its pid and the supervisor's socket.
    ///
    /// # Errors
    /// Kernel errors, or the end of the zygote.
    pub fn make(&mut self, group: &Group, view: Option<&HostView>) -> io::Result<(Pid, Lines)> {
        let (own, its) = UnixStream::pair()?;
        let own = Lines::new(own)?;
        let make = Make {
            group: group.clone(),
            view: view.cloned(),
        };
        self.lines.say_with(&make, vec![OwnedFd::from(its)]);
        let made: io::Result<Made> = wait(&mut self.lines, PollTimeout::from(TIMEOUT_MS));
        // A late answer would pass for the next one.
        let made = made.inspect_err(|_| {
            let _ = kill(self.pid, Signal::SIGKILL);
        })?;
        let pid = made.map_err(io::Error::from_raw_os_error)?;
        Ok((Pid::from_raw(pid), own))
    }
}

fn wait<T: serde::de::DeserializeOwned>(lines: &mut Lines, timeout: PollTimeout) -> io::Result<T> {
    loop {
        let mut fds = [PollFd::new(lines.as_fd(), lines.interest())];
        match poll(&mut fds, timeout) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        lines.flush();
        if let Some(word) = lines.hear::<T>().into_iter().next() {
            return Ok(word);
        }
        if !lines.is_open() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

fn serve(supervisor: UnixStream, folder: &Path) -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    let _ = prctl::set_name(c"dormouse-zygote");
    syscalls::prepare_filters();
    let mut supervisor = Lines::new(supervisor)?;
    loop {
        let make: Make = match wait(&mut supervisor, PollTimeout::NONE) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            make => make?,
        };
        let init = supervisor.take(1).and_then(|mut sockets| sockets.pop());
        let init = init.ok_or_else(|| io::Error::other("an init's socket is missing"))?;
        let made: Made = match fork_sibling(make.view.is_some()) {
            Ok(Forked::New) => {
                drop(supervisor);
                init::main(init.into(), &make.group, make.view.as_ref(), folder)
            }
            Ok(Forked::Caller(pid)) => Ok(pid),
            Err(error) => Err(error.raw_os_error().unwrap_or(nix::libc::EIO)),
        };
        supervisor.say(&made);
    }
}
