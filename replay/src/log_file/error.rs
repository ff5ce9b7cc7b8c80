//! Faults of log files.

use std::io;
use std::path::{Path, PathBuf};

use dormouse_messages::NewerFormat;

use crate::output::OutputError;

/// A fault of a log file.
#[derive(Debug, thiserror::Error)]
pub enum LogFileError {
    #[error("{path}")]
    File {
        path: PathBuf,
        /// The error of the operating system, or of the form.
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
    #[error(transparent)]
    NewerFormat(#[from] NewerFormat),
}

impl LogFileError {
    pub(crate) fn file(path: &Path, source: io::Error) -> Self {
        Self::File {
            path: path.to_owned(),
            source,
        }
    }
}
