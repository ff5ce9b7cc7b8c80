//! Snapshots: a cache of the fold, ignored on any doubt.
//!
//! `<dir>/<name>-v<version>-<build>.snap` holds a state. Another build, version or log, a wrong checksum, or
//! a sequence that the log lacks or has under another time invalidates it. In the last two cases the log went
//! back ([`Snapshots::find`]).
//!
//! Layout: magic, header length (u32, big-endian), header (MessagePack), state (MessagePack, zstd), BLAKE3 of
//! all that.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use async_nats::jetstream::message::StreamMessage;
use dormouse_messages::{Fold, Sequence, Timestamp};
pub use dormouse_shell::Snapshot;
use serde::{Deserialize, Serialize};

use crate::decode;
use crate::log::Log;
use crate::rollback::{Rollback, Verdict, Word};

const MAGIC: &[u8] = b"DORMOUSE-SNAP-1\n";
const CHECKSUM_BYTES: usize = 32;

/// Higher levels cost more than they save.
const ZSTD_LEVEL: i32 = 3;

const ASK_AGAIN: Duration = Duration::from_millis(200);

/// A build's folder of snapshots.
#[derive(Debug, Clone)]
pub struct Snapshots {
    dir: PathBuf,
    build: String,
}

#[derive(Serialize, Deserialize)]
struct Header {
    name: String,
    version: u32,
    build: String,
    log: String,
    sequence: Sequence,
    stored_at: Timestamp,
    own_last: Sequence,
}

impl Snapshots {
    /// Uses the snapshots of `build` in `dir`.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>, build: impl Into<String>) -> Self {
        Self {
            dir: dir.into(),
            build: build.into(),
        }
    }

    /// Returns the path of the snapshot of `F`.
    #[must_use]
    pub fn path<F: Fold>(&self) -> PathBuf {
        let build: String = self
            .build
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || c == '.' {
                    c
                } else {
                    '_'
                }
            })
            .collect();
        self.dir.join(format!("{}{build}.snap", prefix::<F>()))
    }

    /// Loads a fitting snapshot.
    pub async fn load<F: Fold>(&self, log: &Log) -> Option<Snapshot<F>> {
        self.find(log).await.ok().flatten()
    }

    /// Loads a fitting snapshot.
    ///
    /// # Errors
    /// The old state, if the log went back.
    pub async fn find<F: Fold>(&self, log: &Log) -> Result<Option<Snapshot<F>>, Box<F>> {
        let path = self.path::<F>();
        let read = {
            let (path, build) = (path.clone(), self.build.clone());
            tokio::task::spawn_blocking(move || read::<F>(&path, &build)).await
        };
        let ignored = |why: &str| {
            ignore(&path, why);
            Ok(None)
        };
        let snapshot = match read {
            Ok(Ok(Some(snapshot))) => snapshot,
            Ok(Ok(None)) => return Ok(None),
            Ok(Err(why)) => return ignored(&why),
            Err(error) => return ignored(&error.to_string()),
        };
        let place = (snapshot.sequence, snapshot.stored_at);
        match is_of(&snapshot.log, place, log).await {
            Ok(()) => Ok(Some(snapshot)),
            Err(Other::Unknown(why)) => ignored(&why),
            Err(Other::WentBack(why)) => {
                ignore(&path, &why);
                Err(Box::new(snapshot.state))
            }
        }
    }

    /// Writes the snapshot atomically and removes those of other builds and versions. Blocks.
    ///
    /// # Errors
    /// When the snapshot cannot be written.
    pub fn save<F: Fold>(&self, snapshot: &Snapshot<F>) -> std::io::Result<()> {
        let bytes = encode(snapshot, &self.build).map_err(std::io::Error::other)?;
        std::fs::create_dir_all(&self.dir)?;
        let path = self.path::<F>();
        let partial = path.with_extension("snap.partial");
        let mut file = std::fs::File::create(&partial)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        std::fs::rename(&partial, &path)?;
        self.clean_up::<F>(&path);
        Ok(())
    }

    fn clean_up<F: Fold>(&self, keep: &Path) {
        let Ok(entries) = std::fs::read_dir(&self.dir) else {
            return;
        };
        let name = format!("{}-v", F::NAME);
        for path in entries.flatten().map(|entry| entry.path()) {
            let is_snapshot = path.extension().is_some_and(|it| it == "snap")
                && path
                    .file_name()
                    .is_some_and(|it| it.to_string_lossy().starts_with(&name));
            if is_snapshot && path != keep {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

fn prefix<F: Fold>() -> String {
    format!("{}-v{}-", F::NAME, F::VERSION)
}

fn ignore(path: &Path, why: &str) {
    tracing::warn!(path = %path.display(), why, "the snapshot is not used; folding from the start");
}

pub(crate) fn encode<F: Fold>(snapshot: &Snapshot<F>, build: &str) -> Result<Vec<u8>, String> {
    let header = Header {
        name: F::NAME.to_owned(),
        version: F::VERSION,
        build: build.to_owned(),
        log: snapshot.log.clone(),
        sequence: snapshot.sequence,
        stored_at: snapshot.stored_at,
        own_last: snapshot.own_last,
    };
    let header = rmp_serde::to_vec_named(&header).map_err(|error| error.to_string())?;
    let state = rmp_serde::to_vec_named(&snapshot.state).map_err(|error| error.to_string())?;
    let state =
        zstd::encode_all(state.as_slice(), ZSTD_LEVEL).map_err(|error| error.to_string())?;
    let length = u32::try_from(header.len()).map_err(|error| error.to_string())?;
    let mut bytes = [MAGIC, &length.to_be_bytes(), &header, &state].concat();
    let checksum = blake3::hash(&bytes);
    bytes.extend_from_slice(checksum.as_bytes());
    Ok(bytes)
}

fn read<F: Fold>(path: &Path, build: &str) -> Result<Option<Snapshot<F>>, String> {
    match std::fs::read(path) {
        Ok(bytes) => decode(&bytes, Some(build)).map(Some),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// Decodes a snapshot of `build`, or of any build with the fold's version.
pub(crate) fn decode<F: Fold>(bytes: &[u8], build: Option<&str>) -> Result<Snapshot<F>, String> {
    let (bytes, checksum) = bytes
        .len()
        .checked_sub(CHECKSUM_BYTES)
        .and_then(|at| bytes.split_at_checked(at))
        .ok_or("it is cut off")?;
    if blake3::hash(bytes).as_bytes() != checksum {
        return Err("its checksum is wrong".to_owned());
    }
    let (length, rest) = bytes
        .strip_prefix(MAGIC)
        .and_then(|rest| rest.split_first_chunk::<4>())
        .ok_or("it is of another format")?;
    let (header, state) = usize::try_from(u32::from_be_bytes(*length))
        .ok()
        .and_then(|length| rest.split_at_checked(length))
        .ok_or("its header is cut off")?;
    let header: Header = rmp_serde::from_slice(header).map_err(|error| error.to_string())?;
    let build = build.unwrap_or(&header.build);
    if (header.name.as_str(), header.version, header.build.as_str()) != (F::NAME, F::VERSION, build)
    {
        return Err(format!(
            "it is of {} v{} build {}",
            header.name, header.version, header.build
        ));
    }
    let state = zstd::decode_all(state).map_err(|error| error.to_string())?;
    Ok(Snapshot {
        state: rmp_serde::from_slice(&state).map_err(|error| error.to_string())?,
        log: header.log,
        sequence: header.sequence,
        stored_at: header.stored_at,
        own_last: header.own_last,
    })
}

enum Other {
    Unknown(String),
    WentBack(String),
}

async fn is_of(
    identity: &str,
    (sequence, stored_at): (Sequence, Timestamp),
    log: &Log,
) -> Result<(), Other> {
    // This call also reads the log's identity.
    let head = log.head().await;
    head.map_err(|error| Other::Unknown(error.to_string()))?;
    if identity != log.identity() {
        let why = format!("it is of {}, not of {}", identity, log.identity());
        return Err(Other::Unknown(why));
    }
    let first = log.first();
    if sequence == Sequence(0) && first <= Sequence(1) {
        return Ok(());
    }
    if sequence < first {
        // The message itself is gone: only the next one matters.
        return if sequence.next() == first {
            Ok(())
        } else {
            Err(Other::Unknown(format!("the log begins at event {first}")))
        };
    }
    let imported_to = log.inner.imported_to.load(Ordering::Relaxed);
    let mark = |message: &StreamMessage| {
        let nanos = message.time.unix_timestamp_nanos();
        let headers = Some(&message.headers);
        i128::from(decode::stored_at(imported_to, message.sequence, headers, nanos).as_micros())
    };
    let read = i128::from(stored_at.as_micros());
    let mut rollback = Rollback::default();
    loop {
        let word = log.word(sequence.0, read, mark).await;
        let word = word.map_err(Other::Unknown)?;
        match rollback.hear(word.clone(), Instant::now()) {
            Verdict::Same => return Ok(()),
            Verdict::Unsettled => tokio::time::sleep(ASK_AGAIN).await,
            Verdict::WentBack => {
                return Err(Other::WentBack(match word {
                    Word::Ends { head, .. } => {
                        format!("it is ahead of the log, which ends at {head}")
                    }
                    _ => format!("the log has another event at {sequence}"),
                }));
            }
        }
    }
}
