//! Refusals of submissions.

use dormouse_messages::sanitize;

/// The reason for refusing a submission.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    /// Machine-readable.
    pub code: &'static str,
    /// Problem and remedy.
    pub reason: String,
}

impl Refusal {
    /// Bounds and sanitizes the text.
    pub(crate) fn new(code: &'static str, reason: impl AsRef<str>) -> Self {
        Self {
            code,
            reason: sanitize::shown(reason.as_ref()),
        }
    }
}
