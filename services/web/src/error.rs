//! Failed answers.

use std::io;

use dormouse_projections::queries::QueryError;
use http::StatusCode;

/// A failed answer.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct AnswerError {
    pub(crate) status: StatusCode,
    pub(crate) code: String,
    pub(crate) message: String,
}

impl AnswerError {
    /// Reports a fault of the server.
    pub fn internal(error: impl ToString) -> Self {
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            code: "internal".to_owned(),
            message: error.to_string(),
        }
    }

    /// Reports another log or build.
    #[must_use]
    pub fn other_log() -> Self {
        Self {
            status: StatusCode::CONFLICT,
            code: "other_log".to_owned(),
            message: "the server has another log, or another build, than the page; load it again"
                .to_owned(),
        }
    }

    /// Reports an invalid query.
    pub fn wrong(error: impl ToString) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            code: "bad_request".to_owned(),
            message: error.to_string(),
        }
    }

    /// Reports a running what-if.
    #[must_use]
    pub fn busy() -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            code: "busy".to_owned(),
            message: "another what-if is being worked out; try again when it is done".to_owned(),
        }
    }

    /// Reports a missing subject.
    #[must_use]
    pub fn not_found(message: String) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            code: "not_found".to_owned(),
            message,
        }
    }
}

impl From<QueryError> for AnswerError {
    fn from(error: QueryError) -> Self {
        let status = match error.code.as_str() {
            "not_found" => StatusCode::NOT_FOUND,
            "internal" => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        };
        Self {
            status,
            code: error.code,
            message: error.message,
        }
    }
}

impl From<io::Error> for AnswerError {
    fn from(error: io::Error) -> Self {
        Self::internal(format!("the events could not be read back: {error}"))
    }
}
