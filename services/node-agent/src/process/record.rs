//! What lies in a container's directory, and what follows from it.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

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
    text.lines().next()?.parse().ok().map(Sequence)
}

/// What stands in `process` where a supervisor came too late: it will not run its program.
const ABANDONED: &str = "abandoned\n";

/// A start request older than this has a supervisor, or never will.
const YOUNG: Duration = Duration::from_secs(5);

/// Reads the records of a container that a former agent may have been starting as it died. Its
/// supervisor is waited for until `patience`; after that it is kept from running its program, so
/// that what is said here stays true.
#[must_use]
pub fn settled(directory: &Path, patience: Instant) -> Recorded {
    let is_young = || {
        let written = fs::metadata(directory.join("request")).and_then(|file| file.modified());
        written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < YOUNG))
    };
    let is_unwritten = || fs::metadata(directory.join("process")).is_ok_and(|it| it.len() == 0);
    let is_pending = || match read(directory) {
        Recorded::Nothing => is_young(),
        Recorded::Vanished => is_unwritten() && is_young(),
        Recorded::Running(_) | Recorded::Ended(_) => false,
    };
    while is_pending() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(2));
    }
    match read(directory) {
        Recorded::Nothing if !abandon(directory) => read(directory),
        recorded => recorded,
    }
}

/// Takes the place of a supervisor's record, unless it is there.
fn abandon(directory: &Path) -> bool {
    let process = directory.join("process");
    is_abandoned(directory)
        || File::create_new(process)
            .and_then(|mut file| file.write_all(ABANDONED.as_bytes()))
            .is_ok()
}

/// Whether a start was abandoned: it can be made again.
#[must_use]
pub fn is_abandoned(directory: &Path) -> bool {
    fs::read_to_string(directory.join("process")).is_ok_and(|text| text == ABANDONED)
}

/// Reads the records.
#[must_use]
pub fn read(directory: &Path) -> Recorded {
    let Ok(process) = fs::read_to_string(directory.join("process")) else {
        return Recorded::Nothing;
    };
    if process == ABANDONED {
        return Recorded::Nothing;
    }
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
