//! Makes a lost log again: the end of the archive as the log of an empty broker.

use std::fs::File;

use dormouse_messages::{Recorded, Sequence};
use dormouse_replay::LogFileError;
use dormouse_replay::log_file::{Decoding, Row};
use dormouse_runtime::Log;

use crate::error::ArchiveError;
use crate::folds::Folds;
use crate::history::Start;
use crate::store::Archive;

impl Archive {
    /// Imports the newest events into the empty `log`, which goes on under the archived log's identity, and puts
    /// the newest states on its broker. Returns the number of events.
    ///
    /// # Errors
    /// The archive is empty, damaged or does not answer, or the broker's log is not empty.
    pub async fn restore(&self, log: &Log, build: &str) -> Result<u64, ArchiveError> {
        let newest = self.newest().await?;
        let newest = newest.ok_or_else(|| ArchiveError::Empty {
            place: self.place(),
        })?;
        let newest = newest.manifest;
        // Events behind the states stay on the broker, for decisions and checks that look back.
        let start = match newest.number {
            1 => Start::default(),
            number => {
                let before = self.manifest(number - 1).await?.manifest;
                Start::after(self.folds_at(&before).await?.states, &before)
            }
        };
        let mut files = Vec::new();
        for number in start.number.max(1)..=newest.number {
            let manifest = self.manifest(number).await?.manifest;
            files.push(self.segment(&manifest).await?);
        }
        let from = start.from();
        let rows = files.iter().flat_map(|file| rows(file.path(), from));
        let imported = log.import(rows, Some(&newest.log)).await?;
        let folds: Folds = self.folds_at(&newest).await?;
        folds.publish(log, build).await?;
        Ok(imported)
    }
}

/// Returns the events of a segment's file; the import fills the places of other messages.
fn rows(
    path: &std::path::Path,
    from: Sequence,
) -> impl Iterator<Item = Result<Recorded, LogFileError>> + use<> {
    let opened = File::open(path).map_err(|source| LogFileError::File {
        path: path.to_owned(),
        source,
    });
    let (rows, failed) = match opened.and_then(|file| Decoding::start(path, file)) {
        Ok(rows) => (Some(rows), None),
        Err(error) => (None, Some(Err(error))),
    };
    let rows = rows.into_iter().flatten().filter_map(move |row| match row {
        Ok(Row::Event(recorded)) => (recorded.sequence >= from).then_some(Ok(recorded)),
        Ok(Row::Flagged(_)) => None,
        Err(error) => Some(Err(error)),
    });
    failed.into_iter().chain(rows)
}
