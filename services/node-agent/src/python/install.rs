//! The program that installs packages for a tenant, inside the sandbox of its jobs.
//!
//! The agent has many threads, and none of them may become another user. So it starts its own build
//! in this role, which has one:
//!
//! 1. It forks the first process of a namespace of processes, and passes its exit code on.
//! 2. The child builds the sandbox and goes in: the node's programs and the tenant's own folder.
//! 3. It becomes the tenant's user for good, and then the program. Environment and standard
//!    descriptors are those that the agent gave it.

use std::io::{self, Error};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use fork::Fork;
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::keeper::sandbox::{self, HostView, SandboxSpec};
use crate::runtime::NotStarted;

/// How the agent's build is told to be this: its orders follow.
pub const FLAG: &str = "--install";

/// What the agent orders.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Install {
    /// What is seen of the node.
    pub view: HostView,
    /// The tenant's user and folder.
    pub sandbox: SandboxSpec,
    /// Where the sandbox's root is mounted, in a namespace of mounts of its own.
    pub folder: PathBuf,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Where it starts.
    pub working_dir: PathBuf,
}

/// Runs the program, and ends as it ends; returns where it cannot be run.
#[must_use]
pub fn run(orders: &str) -> Error {
    match attempt(orders) {
        Ok(code) => dormouse_spawn::end_now(code),
        Err(error) => error,
    }
}

fn attempt(orders: &str) -> io::Result<i32> {
    let install: Install = serde_json::from_str(orders)?;
    unshare(CloneFlags::CLONE_NEWPID)?;
    match fork::fork()? {
        Fork::Child => {
            eprintln!("{}", become_program(install));
            dormouse_spawn::end_now(127)
        }
        Fork::Parent(pid) => Ok(match waitpid(Pid::from_raw(pid), None)? {
            WaitStatus::Exited(_, code) => code,
            WaitStatus::Signaled(_, signal, _) => 128 + signal as i32,
            _ => 127,
        }),
    }
}

fn enter(install: Install) -> Result<(), NotStarted> {
    let prepared = sandbox::prepare(&install.view, &install.folder)?;
    let inside = sandbox::enter(prepared, &install.view, install.sandbox)?;
    inside.drop_privileges()
}

/// Returns only where it fails.
fn become_program(install: Install) -> Error {
    let mut command = Command::new(&install.program);
    command
        .args(&install.arguments)
        .current_dir(&install.working_dir);
    if let Err(why) = enter(install) {
        return Error::other(why);
    }
    // After the change of user, which clears it.
    if let Err(errno) = prctl::set_pdeathsig(Signal::SIGKILL) {
        return errno.into();
    }
    command.exec()
}
