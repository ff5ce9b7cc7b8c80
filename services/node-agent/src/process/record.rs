//! What lies in a container's directory, and what follows from it.

use std::fs;
use std::path::Path;

use dormouse_messages::Sequence;

use super::procfs::{self, Identity};
use crate::runtime::Exit;

/// The shell reports death by these without a message: SIGINT, SIGPIPE.
const SILENT_SIGNALS: [i32; 2] = [2, 13];

/// What the records of a container say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recorded {
    /// Nothing was started.
    Nothing,
    /// Its supervisor runs.
    Running(Identity),
    /// It has ended.
    Ended(Exit),
    /// Neither its process nor its exit is there.
    Vanished,
}

/// Reads the start request that a container was started for.
#[must_use]
pub fn request(directory: &Path) -> Option<Sequence> {
    let text = fs::read_to_string(directory.join("request")).ok()?;
    text.trim().parse().ok().map(Sequence)
}

/// Reads the records.
#[must_use]
pub fn read(directory: &Path) -> Recorded {
    let Ok(process) = fs::read_to_string(directory.join("process")) else {
        return Recorded::Nothing;
    };
    // Alive first, then the exit: the supervisor writes the exit before it ends.
    if let Some(identity) = identity(&process)
        && identity.is_alive()
    {
        return Recorded::Running(identity);
    }
    exit(directory).map_or(Recorded::Vanished, Recorded::Ended)
}

/// The supervisor's identity, if it is of this boot.
fn identity(process: &str) -> Option<Identity> {
    let (boot, stat) = process.trim_end().split_once(' ')?;
    (boot == procfs::boot_id()).then_some(())?;
    Some(procfs::parse_stat(stat)?.identity)
}

/// The supervisor of the container, whether it lives or not.
#[must_use]
pub fn supervisor(directory: &Path) -> Option<Identity> {
    identity(&fs::read_to_string(directory.join("process")).ok()?)
}

/// The recorded exit.
#[must_use]
pub fn exit(directory: &Path) -> Option<Exit> {
    let text = fs::read_to_string(directory.join("exit")).ok()?;
    // Without its newline it was cut off, by a full disk.
    let code = text.strip_suffix('\n')?.parse().ok()?;
    let message = fs::metadata(directory.join("ended")).is_ok_and(|file| file.len() > 0);
    Some(exit_of(code, message))
}

/// An exit as a shell reports it: 128 + n may be a signal.
#[must_use]
pub fn exit_of(code: i32, message: bool) -> Exit {
    let signal = code - 128;
    if (1..=64).contains(&signal) && (message || SILENT_SIGNALS.contains(&signal)) {
        Exit {
            signal: Some(signal),
            ..Exit::default()
        }
    } else {
        Exit {
            code: Some(code),
            ..Exit::default()
        }
    }
}
