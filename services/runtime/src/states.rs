//! Folded states on the broker. A process starts from the newest one instead of event 1, since the log's
//! beginning may be trimmed. The archiver writes them after each segment.
//!
//! `<prefix>.states.<name>-v<version>.head` describes the newest state of a fold's version. Its bytes are those
//! of a snapshot file, in pieces at `….<sequence>.<number>`. The pieces of the state before stay for readers
//! under way.

use std::time::Duration;

use bytes::Bytes;
use dormouse_messages::{Fold, NewerFormat, Sequence, Timestamp};
use dormouse_shell::Snapshot;
use futures::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};

use crate::decode::LogItem;
use crate::error::LogError;
use crate::log::Log;
use crate::pieces::{IN_FLIGHT, PieceError, Pieces, pieces};
use crate::retry::retry;
use crate::snapshot::{self, Snapshots};

/// Covers a change of the broker's leader, and the archiver's first states of a new version.
const PATIENCE: Duration = Duration::from_secs(60);

const AGAIN: Duration = Duration::from_millis(500);

/// Number of events that are folded sooner than a state is fetched.
const NEAR: u64 = 20_000;

/// The states of a log.
#[derive(Debug, Clone)]
pub struct States {
    log: Log,
    pieces: Pieces,
}

/// The description of a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    log: String,
    sequence: Sequence,
    pieces: usize,
    bytes: usize,
    /// The sequence of the state before, whose pieces stay.
    before: Option<Sequence>,
}

/// A failed start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("the log could not be read to event {0}; try again")]
    CutShort(Sequence),
    #[error(
        "the log begins at event {first}, and the broker has no state of {name} (version {version}) that reaches it: {why}. The archiver of this build writes one: start `dormouse serve archiver`, then this service again"
    )]
    NoState {
        name: &'static str,
        version: u32,
        first: Sequence,
        why: String,
    },
}

impl Log {
    /// Returns the folded states on the broker.
    #[must_use]
    pub fn states(&self) -> States {
        States {
            log: self.clone(),
            pieces: Pieces::new(self.clone(), self.prefix().states_stream()),
        }
    }

    /// Returns a state of `F` from which the log can be followed: that of `snapshots`, a much newer one on the
    /// broker, or nothing folded. Its `own_last` is 0 unless a snapshot knows it.
    ///
    /// # Errors
    /// When the broker does not answer, or the log is trimmed and no state reaches its first event.
    pub async fn start<F: Fold>(
        &self,
        snapshots: Option<&Snapshots>,
    ) -> Result<Snapshot<F>, StartError> {
        let kept = match snapshots {
            Some(snapshots) => snapshots.load::<F>(self).await,
            None => None,
        };
        self.start_after(kept).await
    }

    /// Returns the state of `F` at the log's head.
    ///
    /// # Errors
    /// Those of [`Log::start`], or when the log could not be read to its head.
    pub async fn folded<F: Fold>(&self) -> Result<Snapshot<F>, StartError> {
        let mut snapshot = self.start::<F>(None).await?;
        let head = self.head().await?;
        let mut items = self.read(snapshot.sequence.next(), head).await?;
        while let Some(item) = items.recv().await {
            match item {
                LogItem::Event(recorded) => {
                    snapshot.state.evolve(&recorded);
                    (snapshot.sequence, snapshot.stored_at) =
                        (recorded.sequence, recorded.stored_at);
                }
                LogItem::Flagged { .. } => {}
                LogItem::CaughtUp(_) => return Ok(snapshot),
            }
        }
        Err(StartError::CutShort(head))
    }

    /// Does the same as [`Log::start`] with a snapshot that was loaded.
    ///
    /// # Errors
    /// Those of [`Log::start`].
    pub async fn start_after<F: Fold>(
        &self,
        kept: Option<Snapshot<F>>,
    ) -> Result<Snapshot<F>, StartError> {
        let folded = kept.as_ref().map_or(Sequence(0), |kept| kept.sequence);
        let again = |error: &StartError| {
            matches!(
                error,
                StartError::Log(LogError::Request { .. }) | StartError::NoState { .. }
            )
        };
        let newest = retry(AGAIN, PATIENCE, again, || self.newest::<F>(folded)).await?;
        Ok(newest.or(kept).unwrap_or_else(|| nothing_folded(self)))
    }

    /// Returns a state from which the log can be followed; `None` if the one after `folded` is near enough.
    async fn newest<F: Fold>(&self, folded: Sequence) -> Result<Option<Snapshot<F>>, StartError> {
        self.head().await?;
        let first = self.first();
        if first > Sequence(1) {
            self.check_format().await?;
        }
        let reaches = |folded: Sequence| folded.next() >= first;
        let beyond = if reaches(folded) { NEAR } else { 0 };
        let wanted = Sequence(folded.0 + beyond);
        let why = match self.states().newer_than::<F>(wanted).await {
            Ok(Some(newest)) if reaches(newest.sequence) => return Ok(Some(newest)),
            Ok(Some(newest)) => format!("the newest is that after event {}", newest.sequence),
            Ok(None) => format!("none is newer than that after event {wanted}"),
            Err(why) => why,
        };
        if reaches(folded) {
            tracing::debug!(name = F::NAME, why, "no state of the broker is used");
            return Ok(None);
        }
        Err(StartError::NoState {
            name: F::NAME,
            version: F::VERSION,
            first,
            why,
        })
    }
}

fn nothing_folded<F: Fold>(log: &Log) -> Snapshot<F> {
    Snapshot {
        state: F::default(),
        log: log.identity(),
        sequence: Sequence(0),
        stored_at: Timestamp::default(),
        own_last: Sequence(0),
    }
}

impl States {
    fn subject<F: Fold>(&self, rest: &str) -> String {
        self.log.prefix().state(F::NAME, F::VERSION, rest)
    }

    fn piece<F: Fold>(&self, sequence: Sequence, number: impl std::fmt::Display) -> String {
        self.subject::<F>(&format!("{sequence}.{number}"))
    }

    async fn head<F: Fold>(&self) -> Result<Option<Head>, String> {
        match self.pieces.get(&self.subject::<F>("head")).await {
            Ok((bytes, _)) => {
                let head: Head = serde_json::from_slice(&bytes).map_err(|it| it.to_string())?;
                Ok(Some(head).filter(|head| head.log == self.log.identity()))
            }
            Err(PieceError::Absent) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn newer_than<F: Fold>(&self, folded: Sequence) -> Result<Option<Snapshot<F>>, String> {
        let Some(head) = self.head::<F>().await? else {
            return Ok(None);
        };
        if head.sequence <= folded {
            return Ok(None);
        }
        let subjects = (0..head.pieces).map(|number| self.piece::<F>(head.sequence, number));
        let read = stream::iter(subjects).map(|subject| async move {
            let (piece, _) = self
                .pieces
                .get(&subject)
                .await
                .map_err(|error| error.to_string())?;
            Ok::<Bytes, String>(piece)
        });
        let mut bytes = Vec::with_capacity(head.bytes.min(1 << 30));
        let mut read = read.buffered(IN_FLIGHT);
        while let Some(piece) = read.try_next().await? {
            bytes.extend_from_slice(&piece);
        }
        let decoding = tokio::task::spawn_blocking(move || snapshot::decode::<F>(&bytes, None));
        let decoded = decoding.await.map_err(|error| error.to_string())?;
        decoded.map(Some)
    }

    /// Returns the log's newest format, if a state's writer has named it.
    pub(crate) async fn format(&self) -> Option<NewerFormat> {
        let (bytes, _) = self
            .pieces
            .get(&self.log.prefix().state_format())
            .await
            .ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Names the log's format for those who start when its upgrade is trimmed.
    ///
    /// # Errors
    /// When the broker refuses or does not answer.
    pub async fn put_format(&self, format: &NewerFormat) -> Result<(), LogError> {
        let bytes = serde_json::to_vec(format).unwrap_or_default();
        let subject = self.log.prefix().state_format();
        let put = self.pieces.put(&subject, bytes.into()).await;
        put.map_err(|error| LogError::request("write the format", "the states", error.to_string()))
    }

    /// Writes a state for those who start, unless there is a newer one.
    ///
    /// # Errors
    /// When the broker refuses, has no room, or does not answer.
    pub async fn put<F: Fold>(&self, snapshot: &Snapshot<F>, build: &str) -> Result<(), LogError> {
        let failed = |why| LogError::request("write the state", F::NAME, why);
        let sequence = snapshot.sequence;
        let before = self.head::<F>().await.map_err(failed)?;
        if before.as_ref().is_some_and(|it| it.sequence >= sequence) {
            return Ok(());
        }
        let bytes = Bytes::from(snapshot::encode(snapshot, build).map_err(failed)?);
        let sent = pieces(&bytes).enumerate();
        let sent: Vec<(String, Bytes)> = sent
            .map(|(number, piece)| (self.piece::<F>(sequence, number), piece))
            .collect();
        let head = Head {
            log: snapshot.log.clone(),
            sequence,
            pieces: sent.len(),
            bytes: bytes.len(),
            before: before.as_ref().map(|it| it.sequence),
        };
        let put = async {
            let sent = stream::iter(sent.into_iter().map(Ok));
            sent.try_for_each_concurrent(IN_FLIGHT, |(subject, piece)| async move {
                self.pieces.put(&subject, piece).await
            })
            .await?;
            let head = serde_json::to_vec(&head).unwrap_or_default();
            self.pieces
                .put(&self.subject::<F>("head"), head.into())
                .await?;
            match before.and_then(|it| it.before) {
                Some(old) => self.pieces.purge(&self.piece::<F>(old, "*")).await,
                None => Ok(()),
            }
        };
        put.await.map_err(|error| failed(error.to_string()))
    }
}
