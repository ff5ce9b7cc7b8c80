//! A slice of a log: the states before it, and the events that follow.
//!
//! The first line is the head: `{"slice": 1, "log", "from", "asof", "at", "build", "states"}`. Each
//! state has its shape's version and is packed (MessagePack, zstd, hexadecimal). The other lines are
//! events as in an export. The states precede the basis and the causes of every decision in the slice,
//! so that all of them can be repeated and explained.

use std::collections::BTreeMap;

use dormouse_admission::AdmissionState;
use dormouse_autoscaler::AutoscalerState;
use dormouse_messages::{Fold, Recorded, Sequence, Timestamp};
use dormouse_projections::ReadModel;
use dormouse_state::ClusterState;
use serde::{Deserialize, Serialize};

use super::fork::Fork;

const VERSION: u32 = 1;
/// Fast, and small enough since states repeat names.
const LEVEL: i32 = 3;

/// A fault in a slice's head.
#[derive(Debug, thiserror::Error)]
pub enum SliceError {
    #[error("the first line is not the head of a slice: {0}")]
    Head(#[from] serde_json::Error),
    #[error(
        "a slice of version {0}; this build reads version {VERSION}: use the build that made it, {1}"
    )]
    Version(u32, String),
    #[error(
        "its state {name} has version {has}, and this build reads version {reads}: use the build that made it, {build}, or make the slice again from the log"
    )]
    State {
        name: String,
        has: u32,
        reads: u32,
        build: String,
    },
    #[error("its state {0} is damaged: {1}")]
    Damaged(String, String),
}

#[derive(Serialize, Deserialize)]
struct Head {
    slice: u32,
    log: String,
    from: Sequence,
    asof: Sequence,
    at: Timestamp,
    build: String,
    states: BTreeMap<String, Packed>,
}

#[derive(Serialize, Deserialize)]
struct Packed {
    version: u32,
    data: String,
}

/// The states at the beginning of a slice.
#[derive(Debug, Clone, Default)]
pub struct States {
    pub fork: Fork,
    pub model: ReadModel,
}

impl States {
    /// Folds an event.
    pub fn read(&mut self, recorded: &Recorded) {
        self.fork.read(recorded);
        self.model.evolve(recorded);
    }

    /// Returns the head of a slice of `log` that begins at `from`, made by `build`.
    ///
    /// # Errors
    /// A state cannot be written.
    pub fn head(&self, log: &str, from: Sequence, build: &str) -> Result<String, SliceError> {
        let states = [
            pack(&self.fork.admission)?,
            pack(&self.fork.cluster)?,
            pack(&self.fork.autoscaler)?,
            pack(&self.model)?,
        ];
        let head = Head {
            slice: VERSION,
            log: log.to_owned(),
            from,
            asof: self.fork.sequence,
            at: self.fork.now,
            build: build.to_owned(),
            states: states.into_iter().collect(),
        };
        Ok(serde_json::to_string(&head)?)
    }

    /// Reads a slice's first line.
    ///
    /// # Errors
    /// The line is no head, or its states have other shapes than this build's.
    pub fn of_head(line: &str) -> Result<Self, SliceError> {
        let head: Head = serde_json::from_str(line)?;
        if head.slice != VERSION {
            return Err(SliceError::Version(head.slice, head.build));
        }
        let admission: AdmissionState = unpack(&head)?;
        let cluster: ClusterState = unpack(&head)?;
        let autoscaler: AutoscalerState = unpack(&head)?;
        Ok(Self {
            fork: Fork {
                admission,
                cluster,
                autoscaler,
                sequence: head.asof,
                now: head.at,
            },
            model: unpack(&head)?,
        })
    }
}

/// The last event before a slice: no decision in the slice has an earlier basis.
#[derive(Debug, Clone, Copy)]
pub struct Before(Sequence);

impl Before {
    /// Begins with a slice from `from`.
    #[must_use]
    pub fn new(from: Sequence) -> Self {
        Self(Sequence(from.0.saturating_sub(1)))
    }

    /// Reads an event of the slice.
    pub fn read(&mut self, recorded: &Recorded) {
        let basis = recorded.event().and_then(dormouse_messages::Event::basis);
        if let Some(basis) = basis {
            let causes = basis.causes.iter().map(|cause| cause.0.saturating_sub(1));
            let earliest = causes.map(Sequence).min().unwrap_or(basis.asof);
            self.0 = self.0.min(basis.asof).min(earliest);
        }
    }

    /// Returns the sequence.
    #[must_use]
    pub fn sequence(self) -> Sequence {
        self.0
    }
}

fn pack<F: Fold>(state: &F) -> Result<(String, Packed), SliceError> {
    let damaged = |error: String| SliceError::Damaged(F::NAME.to_owned(), error);
    let bytes = rmp_serde::to_vec_named(state).map_err(|error| damaged(error.to_string()))?;
    let bytes = zstd::encode_all(&bytes[..], LEVEL).map_err(|error| damaged(error.to_string()))?;
    let mut data = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            data.extend(char::from_digit(u32::from(digit), 16));
        }
    }
    let version = F::VERSION;
    Ok((F::NAME.to_owned(), Packed { version, data }))
}

fn unpack<F: Fold>(head: &Head) -> Result<F, SliceError> {
    let damaged = |error: &str| SliceError::Damaged(F::NAME.to_owned(), error.to_owned());
    let packed = head
        .states
        .get(F::NAME)
        .ok_or_else(|| damaged("it is not there"))?;
    if packed.version != F::VERSION {
        return Err(SliceError::State {
            name: F::NAME.to_owned(),
            has: packed.version,
            reads: F::VERSION,
            build: head.build.clone(),
        });
    }
    let digits = packed.data.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let text = std::str::from_utf8(pair)
            .ok()
            .filter(|text| text.len() == 2)?;
        u8::from_str_radix(text, 16).ok()
    };
    let bytes: Option<Vec<u8>> = digits.map(byte).collect();
    let bytes = bytes.ok_or_else(|| damaged("not hexadecimal"))?;
    let bytes = zstd::decode_all(&bytes[..]).map_err(|error| damaged(&error.to_string()))?;
    rmp_serde::from_slice(&bytes).map_err(|error| damaged(&error.to_string()))
}
