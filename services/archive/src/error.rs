//! Faults of an archive.

use dormouse_bucket::SettingsError;
use dormouse_messages::Sequence;
use dormouse_replay::LogFileError;
use dormouse_replay::history::slice::SliceError;
use dormouse_runtime::LogError;

/// A fault of an archive.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("the archive {place}: {why}")]
    Store { place: String, why: String },
    #[error(
        "{place} holds no archive: there is no manifest in it; name the folder or bucket given to `dormouse serve archiver --archive`"
    )]
    Empty { place: String },
    /// An object is not the one that its manifest names.
    #[error("{object} in the archive {place} is damaged: {why}")]
    Damaged {
        place: String,
        object: String,
        why: String,
    },
    #[error(
        "the archive {place} is that of the log {archived}, and this log is {log}; give each log an archive of its own"
    )]
    OtherLog {
        place: String,
        archived: String,
        log: String,
    },
    /// The log lacks an event of the segment.
    #[error(
        "event {0} is not on the log, so that no segment with it is sealed; see docs/troubleshooting.md"
    )]
    Gap(Sequence),
    #[error(
        "event {sequence} is {type_name}, which this build does not know; run an archiver of the build that wrote it, or of a later one"
    )]
    TooNew {
        sequence: Sequence,
        type_name: String,
    },
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("the log could not be read to event {0}")]
    CutShort(Sequence),
    #[error(transparent)]
    File(#[from] LogFileError),
    #[error("the archived states: {0}")]
    States(#[from] SliceError),
    #[error("a file for the segment: {0}")]
    Disk(#[from] std::io::Error),
    #[error("the archive's thread panicked")]
    Panicked,
}
