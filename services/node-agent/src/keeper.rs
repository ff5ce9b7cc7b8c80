//! The keeper: one small process a node, the parent of all its plain processes, which ends
//! them when the agent cannot.
//!
//! ```text
//!  agent ──socket──► keeper ──► guard, one a container ──► program ──► what it starts
//!                    deadline   (in a sandbox)
//! ```
//!
//! - It holds the node's deadline, which the agent moves on with each renewal of its lease. When it
//!   comes, the keeper ends every container: whether the agent was killed, stands still or is
//!   cut off. The agents of `up` have no deadline.
//! - It keeps how programs ended until the agent says that this is on the log, over any restart of
//!   the agent. When no agent is there and nothing is held, it ends.
//! - A guard dies with the keeper, and its container with the guard. The next keeper waits until
//!   the guards of the one before are gone, by a lock that each of them holds.
//! - In a sandbox ([`sandbox`]) a guard is the first process of a namespace of processes: when it
//!   ends, the kernel kills everything in it. Without them it adopts what its program leaves
//!   behind (a subreaper), ends that, and may have another container.
//! - What is believed comes from the keeper's socket, in a folder that no sandbox shows.
//!
//! The keeper has one thread, no async runtime and no broker: it is forked from, and must not wait
//! for anybody. For containers of an engine, which are not its children, it holds the deadline
//! only, and starts a process that ends them by their label ([`engine`]).

pub mod client;
mod devices;
pub mod engine;
pub(crate) mod group;
mod guard;
mod held;
mod launch;
mod lines;
mod netns;
pub mod sandbox;
mod serve;
pub mod words;
mod zygote;

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use crate::marks::Supervised;
use crate::procfs;
use zygote::Zygote;

/// The keeper's folder in the node's own.
const FOLDER: &str = "keeper";

/// Its socket, in its folder.
const SOCKET: &str = "socket";

/// Held by a keeper and by its guards.
const LOCK: &str = "lock";

/// Which keeper was the last one to leave in order, holding nothing.
const LEFT: &str = "left";

/// What a keeper has to say, which nobody reads but after a fault.
const LOG: &str = "log";

/// The folder of a node's keeper.
#[must_use]
pub fn folder(node: &Path) -> PathBuf {
    let folder = node.join(FOLDER);
    std::path::absolute(&folder).unwrap_or(folder)
}

/// A path that names a file of a folder in a few characters: a socket's may have 107.
fn short(folder: &File, name: &str) -> PathBuf {
    use std::os::fd::AsRawFd;
    PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))
}

fn make(folder: &Path) -> io::Result<File> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(folder)?;
    File::open(folder)
}

/// The keeper that was the last one to leave in order: it held nothing, so that whatever was noted
/// for it and it was not asked to forget has never run.
#[must_use]
pub fn left(folder: &Path) -> Option<Supervised> {
    let text = fs::read_to_string(folder.join(LEFT)).ok()?;
    serde_json::from_str(&text).ok()
}

/// Closes what the agent was started with beside the three standard files: programs would have it.
fn close_inherited() -> io::Result<()> {
    let open = fs::read_dir("/proc/self/fd")?.flatten();
    let open = open.filter_map(|it| it.file_name().to_str()?.parse::<i32>().ok());
    // Collected first: the folder that is read is open, too, and is closed behind this line.
    let open: Vec<_> = open.filter(|number| *number > 2).collect();
    for number in open {
        let _ = nix::unistd::close(number);
    }
    Ok(())
}

/// Runs a keeper in its folder until it holds nothing and no agent is there.
///
/// # Errors
/// When its folder cannot be used.
pub fn run(folder: &Path) -> io::Result<()> {
    // No terminal's, no agent's: what ends those does not end this.
    let _ = nix::unistd::setsid();
    close_inherited()?;
    let opened = make(folder)?;
    let lock = File::create(folder.join(LOCK))?;
    // The guards of a keeper that was killed end their containers first.
    lock.lock()?;
    // Where memory is short, the keeper and its guards are the last to go; programs are put back.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-999");
    // Before there is anything in this memory, and without the folder, which leads to the node's others.
    drop(opened);
    let zygote = Zygote::start(folder)?;
    let opened = make(folder)?;
    let socket = short(&opened, SOCKET);
    match fs::remove_file(&socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&socket)?;
    std::env::set_current_dir("/")?;
    serve::Keeper::new(folder.to_owned(), listener, zygote)?.run()?;
    if let Some(own) = procfs::stat(std::process::id()) {
        let own = serde_json::to_string(&Supervised::by_keeper(own.identity))?;
        fs::write(folder.join(LEFT), own)?;
    }
    fs::remove_file(&socket)
}
