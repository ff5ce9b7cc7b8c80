//! What a tenant's client takes and says.

use serde_json::Value;

use crate::error::LogError;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum TenantError {
    /// The cluster has refused it, for good.
    #[error("{code}: {reason}")]
    Refused {
        /// For programs.
        code: String,
        /// What is wrong and what to do.
        reason: String,
    },
    /// Nothing listens.
    #[error("nothing answers on {0}: is `dormouse up` running, and under this --prefix?")]
    Unavailable(String),
    /// Too many of the tenant's messages waited to be recorded, for all of the call's time.
    #[error("as many messages on {0} wait to be recorded as may; send it again later")]
    Full(String),
    /// No answer in time.
    #[error("{what}")]
    TimedOut {
        /// What there was no answer to.
        what: String,
        /// Whether the broker has it: then it will be decided. If not, nobody knows; to send the
        /// same document under the same name again is safe.
        stored: bool,
    },
    /// The broker's permissions do not allow it.
    #[error("the broker denies {0}: use the tenant that these credentials are for")]
    Denied(String),
    /// The connection, or what came over it.
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

/// How documents are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// JSON.
    Json,
    /// MessagePack with field names.
    MessagePack,
}

impl Encoding {
    /// The canonical bytes of a document: keys sorted, as in every language's client.
    #[must_use]
    pub fn encode(self, document: &Value) -> Vec<u8> {
        match self {
            Self::Json => document.to_string().into_bytes(),
            // A value of JSON can always be written.
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

/// What a submission waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The broker has stored it.
    Accepted,
    /// It is admitted.
    Decided,
    /// Its containers run.
    Started,
    /// It has completed, failed or been cancelled.
    Ended,
}

/// A job that the cluster has, or (`stored`) that the broker has for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// `tenant/name`.
    pub job: String,
    /// The message's, as the broker acknowledged it.
    pub ingress_sequence: u64,
    /// `stored`, `admitted`, `started`, `completed`, `failed` or `cancelled`.
    pub state: String,
    /// Whether the same document was submitted under this name before.
    pub existing: bool,
}

/// SHA-256 in hex: what tells a document from another.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    let hash = sha2::Sha256::digest(bytes);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
