//! The program that installs a tenant's packages in a sandbox. The agent's threads cannot change their user,
//! so its build runs in this single-threaded role:
//!
//! 1. It forks the init of a pid namespace, and returns its exit code.
//! 2. The child enters the sandbox, becomes the tenant's user, and executes the program.

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

use dormouse_agent_core::NotStarted;

use crate::supervisor::sandbox::{self, HostView, SandboxSpec};

/// Flag of this role. The orders follow.
pub const FLAG: &str = "--install";

/// The agent's orders to install.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Install {
    pub view: HostView,
    pub sandbox: SandboxSpec,
    pub folder: PathBuf,
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub working_dir: PathBuf,
}

/// Runs the program and exits with its code. Returns only on failure.
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

/// Becomes the program. Returns only on failure.
fn become_program(install: Install) -> Error {
    let mut command = Command::new(&install.program);
    command
        .args(&install.arguments)
        .current_dir(&install.working_dir);
    if let Err(why) = enter(install) {
        return Error::other(why);
    }
    // A change of user clears the death signal, so set it afterwards.
    if let Err(errno) = prctl::set_pdeathsig(Signal::SIGKILL) {
        return errno.into();
    }
    command.exec()
}
