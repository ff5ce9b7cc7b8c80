//! A failed query.

use serde::{Deserialize, Serialize};

/// A failed query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct QueryError {
    /// `unknown_query`, `bad_request`, `not_found` or `internal`.
    pub code: String,
    pub message: String,
}

impl QueryError {
    pub(super) fn not_found(message: String) -> Self {
        Self {
            code: "not_found".to_owned(),
            message,
        }
    }

    pub(super) fn bad_request(message: String) -> Self {
        Self {
            code: "bad_request".to_owned(),
            message,
        }
    }
}
