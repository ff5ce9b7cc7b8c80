//! A slice of a log: the states before it, and the events that follow.
//!
//! The first line is the head: `{"slice": 1, "log", "from", "asof", "at", "build", "states"}`. Each
//! state has its shape's version and is packed (MessagePack, zstd, hexadecimal). The other lines are
//! events as in an export. The states precede the basis and the causes of every decision in the slice,
//! so that all of them can be repeated and explained.

use std::collections::BTreeMap;

use dormouse_messages::{Fold, Recorded, Sequence, Timestamp};
use dormouse_projections::ReadModel;
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

    /// Counts a message that is no event.
    pub fn flag(&mut self, sequence: Sequence, why: String) {
        self.model.flag(sequence, why);
    }

    /// Encodes every state: MessagePack in zstd.
    ///
    /// # Errors
    /// A state cannot be encoded.
    pub fn encode(&self) -> Result<Vec<EncodedState>, SliceError> {
        Ok(vec![
            EncodedState::of(&self.fork.admission)?,
            EncodedState::of(&self.fork.cluster)?,
            EncodedState::of(&self.fork.autoscaler)?,
            EncodedState::of(&self.fork.archiver)?,
            EncodedState::of(&self.model)?,
        ])
    }

    /// Decodes the states after event `asof`, at `at`, that `build` has encoded.
    ///
    /// # Errors
    /// A state is missing, damaged, or of another shape than this build's.
    pub fn decode(
        states: &[EncodedState],
        asof: Sequence,
        at: Timestamp,
        build: &str,
    ) -> Result<Self, SliceError> {
        Ok(Self {
            fork: Fork {
                admission: EncodedState::find(states, build)?,
                cluster: EncodedState::find(states, build)?,
                autoscaler: EncodedState::find(states, build)?,
                archiver: EncodedState::find(states, build)?,
                sequence: asof,
                now: at,
            },
            model: EncodedState::find(states, build)?,
        })
    }

    /// Returns the head of a slice of `log` that begins at `from`, made by `build`.
    ///
    /// # Errors
    /// A state cannot be written.
    pub fn head(&self, log: &str, from: Sequence, build: &str) -> Result<String, SliceError> {
        let states = self.encode()?.into_iter().map(|state| {
            let (version, data) = (state.version, hexadecimal(&state.bytes));
            (state.name, Packed { version, data })
        });
        let head = Head {
            slice: VERSION,
            log: log.to_owned(),
            from,
            asof: self.fork.sequence,
            at: self.fork.now,
            build: build.to_owned(),
            states: states.collect(),
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
        let mut states = Vec::with_capacity(head.states.len());
        for (name, packed) in head.states {
            let bytes = of_hexadecimal(&packed.data);
            let bytes = bytes.ok_or_else(|| {
                SliceError::Damaged(name.clone(), "it is not hexadecimal".to_owned())
            })?;
            states.push(EncodedState {
                name,
                version: packed.version,
                bytes,
            });
        }
        Self::decode(&states, head.asof, head.at, &head.build)
    }
}

/// A state in MessagePack and zstd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedState {
    pub name: String,
    /// The version of the state's shape.
    pub version: u32,
    pub bytes: Vec<u8>,
}

impl EncodedState {
    /// Encodes a state.
    ///
    /// # Errors
    /// The state cannot be encoded.
    pub fn of<F: Fold>(state: &F) -> Result<Self, SliceError> {
        let damaged = |error: String| SliceError::Damaged(F::NAME.to_owned(), error);
        let bytes = rmp_serde::to_vec_named(state).map_err(|error| damaged(error.to_string()))?;
        let bytes =
            zstd::encode_all(&bytes[..], LEVEL).map_err(|error| damaged(error.to_string()))?;
        Ok(Self {
            name: F::NAME.to_owned(),
            version: F::VERSION,
            bytes,
        })
    }

    /// Decodes the state of `F` among those that `build` has encoded.
    ///
    /// # Errors
    /// The state is missing, damaged, or of another shape than this build's.
    pub fn find<F: Fold>(states: &[Self], build: &str) -> Result<F, SliceError> {
        let damaged = |error: &str| SliceError::Damaged(F::NAME.to_owned(), error.to_owned());
        let state = states.iter().find(|state| state.name == F::NAME);
        let state = state.ok_or_else(|| damaged("it is not there"))?;
        if state.version != F::VERSION {
            return Err(SliceError::State {
                name: F::NAME.to_owned(),
                has: state.version,
                reads: F::VERSION,
                build: build.to_owned(),
            });
        }
        let bytes =
            zstd::decode_all(&state.bytes[..]).map_err(|error| damaged(&error.to_string()))?;
        rmp_serde::from_slice(&bytes).map_err(|error| damaged(&error.to_string()))
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

fn hexadecimal(bytes: &[u8]) -> String {
    let mut data = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            data.extend(char::from_digit(u32::from(digit), 16));
        }
    }
    data
}

fn of_hexadecimal(data: &str) -> Option<Vec<u8>> {
    let byte = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).ok()?;
        let text = Some(text).filter(|text| text.len() == 2)?;
        u8::from_str_radix(text, 16).ok()
    };
    data.as_bytes().chunks(2).map(byte).collect()
}
