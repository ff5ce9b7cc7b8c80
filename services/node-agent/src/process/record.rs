//! What a container's supervisor has recorded, and what follows from it.
//!
//! Which process it is stands in the container's mark, written before the supervisor is told what
//! to run: whoever finds the mark knows whether that process lives, and nothing else is believed.

use dormouse_messages::ContainerId;
use dormouse_messages::events::NodeFault;

use super::procfs::{self, Identity};
use crate::folder::{Below, Folder};
use crate::marks::{Mark, Marks, Supervised};
use crate::runtime::{Exit, NotStarted};

/// The shell reports death by these without a message: SIGINT, SIGPIPE.
const SILENT_SIGNALS: [i32; 2] = [2, 13];

/// An exit code and a newline.
const EXIT_BYTES: u64 = 16;

/// The records of a container.
#[derive(Debug, Clone)]
pub struct Records {
    folder: Below,
    /// How their names begin.
    prefix: String,
}

/// What the records of a container say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recorded {
    /// Nothing was started, and nothing will be.
    Nothing,
    /// Its supervisor runs.
    Running(Identity),
    /// It has ended.
    Ended(Exit),
    /// Neither its process nor its exit is there.
    Vanished,
}

impl Records {
    /// The records of a marked container.
    #[must_use]
    pub fn of(marks: &Marks, mark: &Mark) -> Self {
        let (folder, prefix) = marks.records_of(mark);
        Self { folder, prefix }
    }

    fn open(&self) -> Option<Folder> {
        self.folder.open().ok()
    }

    /// What they say of a supervisor.
    #[must_use]
    pub fn read(&self, supervised: &Supervised) -> Recorded {
        // Alive first, then the exit: the supervisor writes the exit before it ends.
        if let Some(identity) = supervised.identity()
            && identity.is_alive()
        {
            return Recorded::Running(identity);
        }
        match self.exit() {
            Some(exit) => Recorded::Ended(exit),
            None if self.has_begun() => Recorded::Vanished,
            None => Recorded::Nothing,
        }
    }

    /// Whether the supervisor had its orders: it opens this file first of all.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        let folder = self.open();
        folder.is_some_and(|folder| folder.file(&format!("{}ended", self.prefix)).is_ok())
    }

    /// The recorded exit.
    #[must_use]
    pub fn exit(&self) -> Option<Exit> {
        let folder = self.open()?;
        let text = folder.read_text(&format!("{}exit", self.prefix), EXIT_BYTES);
        // Without its newline it was cut off, by a full disk.
        let code = text.ok()?.strip_suffix('\n')?.parse().ok()?;
        let message = folder.file(&format!("{}ended", self.prefix));
        let message = message.and_then(|file| file.metadata());
        Some(exit_of(code, message.is_ok_and(|file| file.len() > 0)))
    }
}

impl Supervised {
    /// A process of this boot.
    #[must_use]
    pub fn new(identity: Identity, group: String) -> Self {
        Self {
            boot: procfs::boot_id(),
            pid: identity.pid,
            started_ticks: identity.started_ticks,
            group,
            is_of_before: false,
        }
    }

    /// The process, if it is of this boot.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        (self.boot == procfs::boot_id()).then_some(Identity {
            pid: self.pid,
            started_ticks: self.started_ticks,
        })
    }
}

/// Why nothing ran, where the supervisor's records could not be written.
#[must_use]
pub fn unwritten(container: &ContainerId) -> Exit {
    let why =
        format!("the records of {container} cannot be written; free space on this node's disk");
    Exit::cannot_start(&NotStarted::of_node(NodeFault::Disk, why))
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
