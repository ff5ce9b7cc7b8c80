//! The zygote: the process that forks inits. The supervisor starts it before an agent has told it
//! anything, so that an init, which a tenant's programs have next to them, is no copy of a memory that
//! holds other tenants' orders.
//!
//! ```text
//!  supervisor ──Make, the init's socket──► zygote ──fork──► init, a child of the supervisor
//!             ◄──────────────its number──
//! ```

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use dormouse_spawn::kernel::{Forked, fork_sibling};
use fork::Fork;
use nix::poll::{PollFd, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::group::Group;
use super::guard;
use super::lines::Lines;
use super::sandbox::{HostView, syscalls};

/// How long a fork may take; on a starved machine it takes tens of milliseconds.
const TIMEOUT_MS: u16 = 10_000;

/// An init to make, with its end of a socket.
#[derive(Debug, Serialize, Deserialize)]
struct Make {
    group: Group,
    /// What its sandbox shows of the node; absent: it has none.
    view: Option<HostView>,
}

/// Its number, or the kernel's error.
type Made = Result<i32, i32>;

/// The supervisor's side.
#[derive(Debug)]
pub struct Zygote {
    pub pid: Pid,
    lines: Lines,
}

impl Zygote {
    /// Forks it. The supervisor must have one thread, and hold nothing yet but its lock.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start(folder: &Path) -> io::Result<Self> {
        let (own, its) = UnixStream::pair()?;
        match fork::fork()? {
            Fork::Child => {
                drop(own);
                let ended = serve(its, folder);
                if let Err(error) = &ended {
                    eprintln!("the zygote has ended: {error}");
                }
                dormouse_spawn::end_now(i32::from(ended.is_err()))
            }
            Fork::Parent(pid) => Ok(Self {
                pid: Pid::from_raw(pid),
                lines: Lines::new(own)?,
            }),
        }
    }

    /// Has an init forked in a control group; its number, and the supervisor's end of its socket.
    ///
    /// # Errors
    /// The kernel's, or that the zygote has ended.
    pub fn make(&mut self, group: &Group, view: Option<&HostView>) -> io::Result<(Pid, Lines)> {
        let (own, its) = UnixStream::pair()?;
        let own = Lines::new(own)?;
        let make = Make {
            group: group.clone(),
            view: view.cloned(),
        };
        self.lines.say_with(&make, vec![OwnedFd::from(its)]);
        let made: io::Result<Made> = wait(&mut self.lines, PollTimeout::from(TIMEOUT_MS));
        // A late answer would be taken for that to the next question.
        let made = made.inspect_err(|_| {
            let _ = kill(self.pid, Signal::SIGKILL);
        })?;
        let pid = made.map_err(io::Error::from_raw_os_error)?;
        Ok((Pid::from_raw(pid), own))
    }
}

/// The next word of the other side.
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

/// The zygote's whole life: until the supervisor ends.
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
                guard::main(init.into(), &make.group, make.view.as_ref(), folder)
            }
            Ok(Forked::Caller(pid)) => Ok(pid),
            Err(error) => Err(error.raw_os_error().unwrap_or(nix::libc::EIO)),
        };
        supervisor.say(&made);
    }
}
