//! Failures to start a program: the fault of the node, or of the job.

use std::io::{self, ErrorKind};
use std::path::Path;

use nix::libc;
use serde::{Deserialize, Serialize};

/// Reason for a container killed during its start.
pub const ENDED: &str = "it was ended while it started";

/// A fault of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    Disk,
    Processes,
}

/// A failure to start a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartError {
    /// For a person.
    pub why: String,
    /// Absent if every node would fail.
    pub fault: Option<Fault>,
}

impl StartError {
    /// Returns a failure of the node to make or confine a process.
    #[must_use]
    pub const fn of_node(why: String) -> Self {
        Self {
            why,
            fault: Some(Fault::Processes),
        }
    }

    /// Explains an error at the agent's own path, with advice.
    #[must_use]
    pub fn of_disk(what: &str, path: &Path, error: &io::Error) -> Self {
        let fault = match error.raw_os_error() {
            _ if is_of_the_disk(error) => Some(Fault::Disk),
            Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => Some(Fault::Processes),
            _ => None,
        };
        let advice = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "; free space on this node's disk",
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                "; let the node's agent write there"
            }
            _ => "",
        };
        let why = format!("{what} {}: {error}{advice}", path.display());
        Self { why, fault }
    }
}

impl From<String> for StartError {
    fn from(why: String) -> Self {
        Self { why, fault: None }
    }
}

impl From<&str> for StartError {
    fn from(why: &str) -> Self {
        why.to_owned().into()
    }
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for StartError {}

fn is_of_the_disk(error: &io::Error) -> bool {
    use ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let full_or_closed = matches!(
        error.kind(),
        StorageFull | QuotaExceeded | PermissionDenied | ReadOnlyFilesystem
    );
    full_or_closed || error.raw_os_error() == Some(libc::EIO)
}
