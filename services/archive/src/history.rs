//! Reads the archive as a log, from the nearest states.

use dormouse_messages::{Sequence, Timestamp};
use dormouse_replay::history::slice::States;
use dormouse_replay::log_file::{Decoding, Row};

use crate::error::ArchiveError;
use crate::folds::Folds;
use crate::manifest::Manifest;
use crate::store::Archive;

/// A place to read from: the states there, and the number of the segment with the next event; by default the
/// log's beginning.
#[derive(Debug, Clone, Default)]
pub struct Start {
    /// Absent at the beginning.
    pub states: Option<States>,
    pub number: u64,
}

impl Start {
    /// Returns the place after a segment's states.
    #[must_use]
    pub fn after(states: States, manifest: &Manifest) -> Self {
        // Events between `asof` and the segment's end are in the segment itself.
        let number = if manifest.asof < manifest.last {
            manifest.number
        } else {
            manifest.number + 1
        };
        Self {
            states: Some(states),
            number,
        }
    }

    /// Returns the first event to read.
    #[must_use]
    pub fn from(&self) -> Sequence {
        let states = self.states.as_ref();
        states.map_or(Sequence(1), |states| states.fork.sequence.next())
    }
}

impl Archive {
    /// Returns the archived log's identity.
    ///
    /// # Errors
    /// The archive is empty or damaged, or does not answer.
    pub async fn log(&self) -> Result<String, ArchiveError> {
        let newest = self.newest().await?;
        let newest = newest.ok_or_else(|| ArchiveError::Empty {
            place: self.place(),
        })?;
        Ok(newest.manifest.log)
    }

    /// Returns the newest states that are not after event `to` or time `until`.
    ///
    /// # Errors
    /// The archive is damaged or does not answer, or its states are of another build.
    pub async fn start(
        &self,
        to: Option<Sequence>,
        until: Option<Timestamp>,
    ) -> Result<Start, ArchiveError> {
        let fits = |manifest: &Manifest| {
            to.is_none_or(|to| manifest.asof <= to)
                && until.is_none_or(|until| manifest.asof_time <= until)
        };
        // Segments up to `low` fit, those from `high` on do not.
        let (mut low, mut high) = (0, self.newest_number().await? + 1);
        let mut nearest = None;
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let sealed = self.manifest(middle).await?;
            if fits(&sealed.manifest) {
                low = middle;
                nearest = Some(sealed.manifest);
            } else {
                high = middle;
            }
        }
        let Some(manifest) = nearest else {
            return Ok(Start::default());
        };
        Ok(Start::after(self.states(&manifest).await?, &manifest))
    }

    /// Returns a segment's states: those of the archive, or folded again from older ones if a former build's
    /// have other shapes.
    ///
    /// # Errors
    /// The archive is damaged or does not answer.
    pub async fn folds_at(&self, manifest: &Manifest) -> Result<Folds, ArchiveError> {
        let mut number = manifest.number;
        let (mut folds, start) = loop {
            if number == 0 {
                break (Folds::default(), Start::default());
            }
            let before = self.manifest(number).await?.manifest;
            match self.folds(&before).await {
                Ok(folds) => {
                    let start = Start::after(folds.states.clone(), &before);
                    break (folds, start);
                }
                Err(ArchiveError::States(error)) => {
                    tracing::info!(number, %error, "older states are folded again");
                    number -= 1;
                }
                Err(error) => return Err(error),
            }
        };
        if folds.sequence() < manifest.asof {
            let each = |row: Row| {
                let is_within = row.sequence() <= manifest.asof;
                if is_within {
                    folds.read(&row);
                }
                Ok::<_, ArchiveError>(is_within)
            };
            self.read(&start, each).await?;
            folds.states.fork.sequence = manifest.asof;
        }
        Ok(folds)
    }

    /// Passes each row from `start` to `each` until `each` returns false. Returns the sequence after the last
    /// one passed.
    ///
    /// # Errors
    /// The archive is damaged or does not answer, or `each` fails.
    pub async fn read<E: From<ArchiveError>>(
        &self,
        start: &Start,
        mut each: impl FnMut(Row) -> Result<bool, E>,
    ) -> Result<Sequence, E> {
        let (mut next, newest) = (start.from(), self.newest_number().await?);
        for number in start.number.max(1)..=newest {
            let sealed = self.manifest(number).await?;
            if sealed.manifest.last < next {
                continue;
            }
            let file = self.segment(&sealed.manifest).await?;
            let open = std::fs::File::open(file.path()).map_err(ArchiveError::from)?;
            for row in Decoding::start(file.path(), open).map_err(ArchiveError::from)? {
                let row = row.map_err(ArchiveError::from)?;
                if row.sequence() < next {
                    continue;
                }
                next = row.sequence().next();
                if !each(row)? {
                    return Ok(next);
                }
            }
        }
        Ok(next)
    }
}
