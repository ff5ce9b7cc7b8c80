//! What a failed command prints and returns.

use dormouse_messages::plain;
use serde_json::json;

use crate::cli::Output;
use crate::print;

/// Done.
pub const DONE: u8 = 0;
/// An error.
pub const ERROR: u8 = 1;
/// Accepted, but cannot run now.
pub const WAITS: u8 = 2;
/// `job wait`: the job failed.
pub const FAILED: u8 = 3;
/// `job wait`: the job was cancelled.
pub const CANCELLED: u8 = 4;
/// `job wait --timeout`: the time is over, as `timeout` says it.
pub const LATE: u8 = 124;
/// `job exec`, `run`: there is no such program, as a shell says it.
pub const NO_PROGRAM: u8 = 127;

/// An error with a code for programs.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Coded {
    /// For programs.
    pub code: String,
    /// For people.
    pub message: String,
}

impl Coded {
    /// Its code.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// An error with a code.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
        }
    }
}

/// Prints an error to stderr, as JSON where that is asked for, and says what the process returns.
pub fn print(error: &anyhow::Error, output: Output) -> u8 {
    let closed = |cause: &(dyn std::error::Error + 'static)| {
        let cause = cause.downcast_ref::<std::io::Error>();
        cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(closed) {
        // Whoever read has seen enough.
        return DONE;
    }
    let message = plain::in_words(&format!("{error:#}"));
    if output == Output::Json {
        let code = error
            .downcast_ref::<Coded>()
            .map_or("error", |coded| coded.code.as_str());
        let message = plain::shortened(&message);
        let error = json!({"error": {"code": code, "message": message}});
        print::aside(error.to_string());
    } else {
        print::aside(format!("error: {}", plain::shortened(&message)));
    }
    match error.downcast_ref::<Coded>().map(Coded::code) {
        Some("timeout") => LATE,
        Some("no_program") => NO_PROGRAM,
        _ => ERROR,
    }
}
