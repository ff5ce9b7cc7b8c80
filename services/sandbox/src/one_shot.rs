//! One program in a sandbox of its own, such as the installer of a tenant's packages. The agent's threads cannot
//! change their user, so its build runs in this single-threaded role:
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

use crate::StartError;
use crate::isolation::{self, HostView, SandboxSpec};
use crate::spawn::end_now;

/// Flag of this role. The orders follow.
pub const FLAG: &str = "--one-shot";

/// The agent's orders to run a program.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OneShot {
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
        Ok(code) => end_now(code),
        Err(error) => error,
    }
}

fn attempt(orders: &str) -> io::Result<i32> {
    let orders: OneShot = serde_json::from_str(orders)?;
    unshare(CloneFlags::CLONE_NEWPID)?;
    match fork::fork()? {
        Fork::Child => {
            eprintln!("{}", become_program(orders));
            end_now(127)
        }
        Fork::Parent(pid) => Ok(match waitpid(Pid::from_raw(pid), None)? {
            WaitStatus::Exited(_, code) => code,
            WaitStatus::Signaled(_, signal, _) => 128 + signal as i32,
            _ => 127,
        }),
    }
}

fn enter(orders: OneShot) -> Result<(), StartError> {
    let prepared = isolation::prepare(&orders.view, &orders.folder)?;
    let inside = isolation::enter(prepared, &orders.view, orders.sandbox)?;
    inside.drop_privileges()
}

/// Becomes the program. Returns only on failure.
fn become_program(orders: OneShot) -> Error {
    let mut command = Command::new(&orders.program);
    command
        .args(&orders.arguments)
        .current_dir(&orders.working_dir);
    if let Err(why) = enter(orders) {
        return Error::other(why);
    }
    // A change of user clears the death signal, so set it afterwards.
    if let Err(errno) = prctl::set_pdeathsig(Signal::SIGKILL) {
        return errno.into();
    }
    command.exec()
}
