//! Exit codes, and the output of a failed command.

use dormouse_messages::sanitize;
use serde_json::json;

use crate::cli::global::Output;
use crate::print;

/// Exit code: success.
pub const DONE: u8 = 0;
/// Exit code: an error.
pub const ERROR: u8 = 1;
/// Exit code: accepted, but cannot run now.
pub const WAITS: u8 = 2;
/// Exit code of `job wait`: the job failed.
pub const FAILED: u8 = 3;
/// Exit code of `job wait`: the job was cancelled.
pub const CANCELLED: u8 = 4;
/// Exit code of `job wait --timeout`, as of `timeout`.
pub const LATE: u8 = 124;
/// Exit code for a missing program, as in a shell.
pub const NO_PROGRAM: u8 = 127;

/// An error with a code for programs.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Coded {
    pub code: String,
    pub message: String,
}

impl Coded {
    /// Returns the code.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// Creates an error with a code.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
        }
    }
}

/// Prints an error to stderr and returns the exit code.
pub fn print(error: &anyhow::Error, output: Output) -> u8 {
    let closed = |cause: &(dyn std::error::Error + 'static)| {
        let cause = cause.downcast_ref::<std::io::Error>();
        cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(closed) {
        return DONE;
    }
    let message = sanitize::in_words(&format!("{error:#}"));
    if output == Output::Json {
        let code = error
            .downcast_ref::<Coded>()
            .map_or("error", |coded| coded.code.as_str());
        let message = sanitize::shortened(&message);
        let error = json!({"error": {"code": code, "message": message}});
        print::aside(error.to_string());
    } else {
        print::aside(format!("error: {}", sanitize::shortened(&message)));
    }
    match error.downcast_ref::<Coded>().map(Coded::code) {
        Some("timeout") => LATE,
        Some("no_program") => NO_PROGRAM,
        _ => ERROR,
    }
}
