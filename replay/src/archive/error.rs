//! Faults of log files.

use std::io;
use std::path::PathBuf;

use crate::output::OutputError;

/// A fault of a log file.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("{path}")]
    File {
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error("{path}, event {number}: {error}")]
    Event {
        path: PathBuf,
        /// Counted from 1.
        number: u64,
        error: String,
    },
}
