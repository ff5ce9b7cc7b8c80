//! Events of the archiver: sealed segments of the log, and its trimmed beginning.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::events::Basis;
use crate::ids::Sequence;
use crate::time::Timestamp;

/// A segment of the log is in the archive, was read back, and its decisions came out again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogArchived {
    /// The segment's number, from 1.
    pub number: u64,
    /// The segment's first event.
    pub first: Sequence,
    /// The segment's last event.
    pub last: Sequence,
    /// The archived states are those after this event; no decision after the segment has an earlier basis.
    pub asof: Sequence,
    /// The log's time of the last event.
    pub ended: Timestamp,
    /// Bytes of segment and states.
    pub bytes: u64,
    /// SHA-256 of the segment's manifest, which names that of the manifest before.
    pub manifest: String,
    /// The archive: a folder or s3://BUCKET/PREFIX.
    pub place: String,
    /// Decisions of the segment that did not come out again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub findings: u64,
}

/// The log's beginning is archived, and leaves the broker once no reader waits for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogTrimmed {
    /// The log's first event from now on.
    pub first: Sequence,
    /// The last segment whose events go.
    pub number: u64,
    /// SHA-256 of that segment's manifest.
    pub manifest: String,
    /// Provenance; absent in historical logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}
