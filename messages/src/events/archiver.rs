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
    #[serde(default, skip_serializing_if = "crate::is_default")]
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

/// Level of the log, by its tightest bound.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Fill {
    /// Nothing is to be done.
    #[default]
    Roomy,
    /// The archiver seals and trims sooner.
    Filling,
    /// Admission refuses submissions, too: the rest is for the events of running jobs.
    Full,
}

/// Tightest bound of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogBound {
    /// `archive.log_mib` of the policy.
    Policy,
    /// The bound of the log's stream.
    Stream,
    /// The bound of the account at the broker.
    Account,
    /// The disk of the broker.
    Disk,
    /// No bound is known.
    Nothing,
}

/// The log has become fuller, or has room again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogFilled {
    /// Level of the log.
    pub fill: Fill,
    /// Bytes that count against the bound.
    pub bytes: u64,
    /// The tightest bound, in bytes; 0 without one.
    pub most_bytes: u64,
    /// The bound's kind.
    pub bound: LogBound,
}

impl LogFilled {
    /// Returns the used part of the bound, in percent; 0 without a bound.
    #[must_use]
    pub fn percent(&self) -> u64 {
        let percent = 100 * u128::from(self.bytes);
        let percent = percent.checked_div(u128::from(self.most_bytes));
        u64::try_from(percent.unwrap_or(0)).unwrap_or(u64::MAX)
    }
}
