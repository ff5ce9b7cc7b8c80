//! The manifest of a segment.

use std::fmt::Write as _;

use dormouse_messages::events::LogArchived;
use dormouse_messages::{Sequence, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The version of the archive's form.
pub const FORMAT: u32 = 1;

/// A sealed segment: its events, its states, and the manifest before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    /// The log's identity.
    pub log: String,
    /// From 1.
    pub number: u64,
    pub first: Sequence,
    pub last: Sequence,
    pub events: u64,
    /// Messages that are no events.
    pub flagged: u64,
    /// The log's times of the first and the last event.
    pub began: Timestamp,
    pub ended: Timestamp,
    pub segment: Object,
    /// The states are those after this event; no decision after the segment has an earlier basis.
    pub asof: Sequence,
    /// The log's time after event `asof`.
    pub asof_time: Timestamp,
    /// The broker's time of event `asof`.
    pub asof_stored_at: Timestamp,
    pub states: Vec<StateObject>,
    pub decisions: Decisions,
    /// The build that sealed the segment.
    pub build: String,
    /// SHA-256 of the manifest before; absent in the first.
    pub previous: Option<String>,
}

/// An object of the archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    pub path: String,
    pub bytes: u64,
    pub sha256: String,
}

/// A folded state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateObject {
    pub name: String,
    /// The version of the state's shape.
    pub version: u32,
    #[serde(flatten)]
    pub object: Object,
}

/// The decisions of a segment, made again when the segment was sealed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decisions {
    /// Decisions that came out again.
    pub verified: u64,
    /// Decisions that came out otherwise.
    pub findings: u64,
}

/// A manifest with the digest of its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    pub manifest: Manifest,
    /// SHA-256, hexadecimal.
    pub digest: String,
}

impl Sealed {
    /// Returns the event that says so on the log.
    #[must_use]
    pub fn event(&self, place: &str) -> LogArchived {
        let manifest = &self.manifest;
        let states = manifest.states.iter().map(|state| state.object.bytes);
        LogArchived {
            number: manifest.number,
            first: manifest.first,
            last: manifest.last,
            asof: manifest.asof,
            ended: manifest.ended,
            bytes: manifest.segment.bytes + states.sum::<u64>(),
            manifest: self.digest.clone(),
            place: place.to_owned(),
            findings: manifest.decisions.findings,
        }
    }
}

/// Returns the SHA-256 of bytes, hexadecimal.
pub fn digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
