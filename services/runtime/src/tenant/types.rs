//! Types of a tenant's client.

use serde_json::Value;

use crate::error::LogError;

/// A failed request of a tenant.
#[derive(Debug, thiserror::Error)]
pub enum TenantError {
    #[error("{code}: {reason}")]
    Refused { code: String, reason: String },
    #[error("nothing answers on {0}: is `dormouse up` running, and under this --prefix?")]
    Unavailable(String),
    #[error("as many messages on {0} wait to be recorded as may; send it again later")]
    Full(String),
    #[error("{what}")]
    TimedOut {
        what: String,
        /// The message will be decided. Otherwise a repetition under the same name is safe.
        stored: bool,
    },
    #[error("the broker denies {0}: use the tenant that these credentials are for")]
    Denied(String),
    #[error(transparent)]
    Log(#[from] LogError),
}

impl TenantError {
    pub(super) fn refused(code: &str, reason: &str) -> Self {
        Self::Refused {
            code: code.to_owned(),
            reason: reason.to_owned(),
        }
    }
}

/// Encoding of documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Json,
    MessagePack,
}

impl Encoding {
    /// Returns canonical bytes, with sorted keys.
    #[must_use]
    pub fn encode(self, document: &Value) -> Vec<u8> {
        match self {
            Self::Json => document.to_string().into_bytes(),
            Self::MessagePack => rmp_serde::to_vec_named(document).unwrap_or_default(),
        }
    }

    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::MessagePack => "application/msgpack",
        }
    }
}

/// Stage that a submission waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    Accepted,
    Decided,
    Started,
    Ended,
}

/// A submitted job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// `tenant/name`.
    pub job: String,
    pub ingress_sequence: u64,
    /// `stored`, `admitted`, `started`, `completed`, `failed` or `cancelled`.
    pub state: String,
    /// True if an equal document was submitted under this name before.
    pub existing: bool,
}

/// Returns the SHA-256 in hex.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    let hash = sha2::Sha256::digest(bytes);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
