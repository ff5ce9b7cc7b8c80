//! The supervisor: one small process per node, the parent of all plain processes, which it ends when the
//! agent cannot.
//!
//! ```text
//!  agent ──socket──► supervisor ──► init, one a container ──► program ──► its children
//!                    deadline   (in a sandbox)
//! ```
//!
//! - The agent extends the deadline with each lease renewal. At the deadline all containers end. Agents of
//!   `up` have none.
//! - Exits are kept until logged. Without agent and containers the supervisor ends.
//! - An init dies with the supervisor, and its container with it. The next supervisor waits for the inits'
//!   lock.
//! - The socket's folder is invisible in sandboxes.
//!
//! The supervisor forks, so it has one thread, no async runtime, and never blocks.
//!
//! Files: `serve` the loop, `child` containers and inits, `zygote` the fork of inits.

mod child;
mod serve;
mod zygote;

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::procfs::{self, Identity};
use zygote::Zygote;

const SOCKET: &str = "socket";

/// Lock held by a supervisor and its inits.
const LOCK: &str = "lock";

/// The last supervisor that left in order and held nothing.
const LEFT: &str = "left";

/// The supervisor's log in its folder.
pub const LOG: &str = "log";

/// A supervisor, distinct from every other of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Supervised {
    /// The boot id. Pids and ticks are valid within one boot.
    pub boot: String,
    pub pid: u32,
    pub started_ticks: u64,
}

impl Supervised {
    /// Describes a supervisor of this boot.
    #[must_use]
    pub fn by_supervisor(identity: Identity) -> Self {
        Self {
            boot: procfs::boot_id().to_owned(),
            pid: identity.pid,
            started_ticks: identity.started_ticks,
        }
    }

    /// Returns the process if it is of this boot.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        (self.boot == procfs::boot_id()).then_some(Identity {
            pid: self.pid,
            started_ticks: self.started_ticks,
        })
    }
}

/// Returns a short path of a supervisor's socket. A socket's path has at most 107 bytes.
#[must_use]
pub fn socket(folder: &File) -> PathBuf {
    use std::os::fd::AsRawFd;
    PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd()))
}

/// Opens a supervisor's folder, and creates it for this user alone.
///
/// # Errors
/// Kernel errors.
pub fn make(folder: &Path) -> io::Result<File> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(folder)?;
    File::open(folder)
}

/// Returns the last supervisor that left in order. A container recorded for it and never forgotten has never
/// run.
#[must_use]
pub fn left(folder: &Path) -> Option<Supervised> {
    let text = fs::read_to_string(folder.join(LEFT)).ok()?;
    serde_json::from_str(&text).ok()
}

/// Closes inherited descriptors, or programs would inherit them.
fn close_inherited() -> io::Result<()> {
    let open = fs::read_dir("/proc/self/fd")?.flatten();
    let open = open.filter_map(|it| it.file_name().to_str()?.parse::<i32>().ok());
    // Collect first: the listing's own descriptor is among them.
    let open: Vec<_> = open.filter(|number| *number > 2).collect();
    for number in open {
        let _ = nix::unistd::close(number);
    }
    Ok(())
}

/// Runs a supervisor until it holds nothing and no agent is connected.
///
/// # Errors
/// If the folder cannot be used.
pub fn run(folder: &Path) -> io::Result<()> {
    // Signals to a terminal or the agent do not reach the supervisor.
    let _ = nix::unistd::setsid();
    close_inherited()?;
    let opened = make(folder)?;
    let lock = File::create(folder.join(LOCK))?;
    // A killed supervisor's inits end their containers first.
    lock.lock()?;
    // The supervisor is killed last for memory. Programs get their score reset.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-999");
    // Fork while memory is empty, and without the folder's descriptor, which leads to its neighbours.
    drop(opened);
    let zygote = Zygote::start(folder)?;
    let opened = make(folder)?;
    let socket = socket(&opened);
    match fs::remove_file(&socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&socket)?;
    std::env::set_current_dir("/")?;
    serve::Supervisor::new(folder.to_owned(), listener, zygote)?.run()?;
    if let Some(own) = procfs::stat(std::process::id()) {
        let own = serde_json::to_string(&Supervised::by_supervisor(own.identity))?;
        fs::write(folder.join(LEFT), own)?;
    }
    fs::remove_file(&socket)
}
