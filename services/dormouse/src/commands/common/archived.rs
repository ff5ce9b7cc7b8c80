//! Reads the trimmed beginning of a cluster's log from its archive.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use dormouse_archive::{Archive, Start};
use dormouse_messages::{Event, Recorded, Sequence, Writer};
use dormouse_replay::log_file::Row;
use dormouse_runtime::{Log, LogError};

use crate::cli::log_range::LogFileArg;

/// The archive of the cluster's log, and the place in it to read from.
pub struct Beginning {
    place: String,
    options: Option<PathBuf>,
    pub start: Start,
}

impl Beginning {
    /// Returns the place of the log's beginning, if the log is trimmed.
    ///
    /// # Errors
    /// When the broker does not answer, or the log names no archive.
    pub async fn of(log: &Log, arguments: &LogFileArg) -> anyhow::Result<Option<Box<Self>>> {
        log.head().await?;
        if log.first() <= Sequence(1) {
            return Ok(None);
        }
        let archived = log.last_event_of(Writer::Archiver, "log.archived").await?;
        let Some(Event::LogArchived(archived)) = archived else {
            return Err(LogError::Trimmed { first: log.first() }.into());
        };
        Ok(Some(Box::new(Self {
            place: archived.place.clone(),
            options: arguments.options.archive_options.clone(),
            start: Start::default(),
        })))
    }

    /// Opens the archive.
    ///
    /// # Errors
    /// When it cannot be read from here.
    pub fn open(&self) -> anyhow::Result<Archive> {
        let opened = || {
            let place = self.place.parse().map_err(anyhow::Error::msg)?;
            Ok::<_, anyhow::Error>(Archive::open(&place, self.options.as_deref())?)
        };
        opened().with_context(|| {
            format!(
                "the log's beginning is in its archive {}, which cannot be read from here; run the command on the archiver's machine, or give --archive",
                self.place
            )
        })
    }
}

/// Calls `each` with an archive's events until it breaks or `to` is passed. Returns the next event otherwise.
///
/// # Errors
/// The archive is damaged or does not answer, or `each` fails.
pub async fn read_archive(
    archive: &Archive,
    start: &Start,
    from: u64,
    to: Option<u64>,
    mut each: impl FnMut(&Arc<Recorded>) -> anyhow::Result<ControlFlow<()>>,
) -> anyhow::Result<Option<u64>> {
    let (wanted, mut is_done) = (from..=to.unwrap_or(u64::MAX), false);
    let read = archive.read(start, |row| {
        is_done = match row {
            Row::Event(recorded) if wanted.contains(&recorded.sequence.0) => {
                each(&Arc::new(recorded))?.is_break()
            }
            row => row.sequence().0 > *wanted.end(),
        };
        Ok::<_, anyhow::Error>(!is_done)
    });
    let next = read.await?.0;
    Ok((!is_done && next <= *wanted.end()).then_some(next.max(from)))
}
