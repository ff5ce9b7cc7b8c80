//! Checks a whole archive: the chain of digests, every object, every event's place, every decision, every
//! state.

use std::sync::Arc;

use dormouse_messages::Sequence;
use dormouse_replay::log_file::{Decoding, Row};
use dormouse_replay::{Report, Verifier};
use serde::{Deserialize, Serialize};

use crate::error::ArchiveError;
use crate::folds::Folds;
use crate::manifest::Manifest;
use crate::segment::Folding;
use crate::store::Archive;

/// The result of a verification.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Verification {
    pub place: String,
    pub log: String,
    pub segments: u64,
    pub first: Sequence,
    pub last: Sequence,
    pub bytes: u64,
    /// SHA-256 of the newest manifest: one digest for all before.
    pub digest: String,
    /// States that this build cannot read, since it has other shapes.
    pub unread_states: u64,
    #[serde(flatten)]
    pub decisions: Report,
}

/// A segment that was checked, for progress.
#[derive(Debug, Clone, Copy)]
pub struct Checked {
    pub number: u64,
    pub of: u64,
    pub events: u64,
}

impl Archive {
    /// Checks the whole archive; `each` hears of each segment.
    ///
    /// # Errors
    /// The archive is empty, damaged or does not answer.
    pub async fn verify(
        &self,
        mut each: impl FnMut(Checked),
    ) -> Result<Verification, ArchiveError> {
        let of = self.newest_number().await?;
        if of == 0 {
            return Err(ArchiveError::Empty {
                place: self.place(),
            });
        }
        let mut found = Verification {
            place: self.place(),
            segments: of,
            first: Sequence(1),
            ..Verification::default()
        };
        let mut walk = Walk {
            verifier: Verifier::default(),
            folds: Folds::default(),
            next: Sequence(1),
        };
        let mut previous = None;
        for number in 1..=of {
            let sealed = self.manifest(number).await?;
            let manifest = sealed.manifest;
            self.follows(&manifest, previous.as_ref(), walk.next)?;
            if number == 1 {
                found.log.clone_from(&manifest.log);
            }
            let file = self.segment(&manifest).await?;
            let checked = tokio::task::spawn_blocking({
                let manifest = manifest.clone();
                move || {
                    let at_asof = walk.read(&manifest, &file)?;
                    Ok::<_, ArchiveError>((walk, at_asof))
                }
            });
            let (walked, at_asof) = checked.await.map_err(|_| ArchiveError::Panicked)??;
            walk = walked;
            match self.folds(&manifest).await {
                Ok(folds) if folds.encode()? == at_asof.encode()? => {}
                Ok(_) => {
                    return Err(self.changed(number, "its states are not those of its events"));
                }
                Err(ArchiveError::States(_)) => found.unread_states += 1,
                Err(error) => return Err(error),
            }
            found.last = manifest.last;
            let states = manifest.states.iter().map(|state| state.object.bytes);
            found.bytes += manifest.segment.bytes + states.sum::<u64>();
            each(Checked {
                number,
                of,
                events: manifest.events,
            });
            previous = Some(sealed.digest);
        }
        found.digest = previous.unwrap_or_default();
        let verifier = walk.verifier;
        let finishing = tokio::task::spawn_blocking(move || verifier.finish());
        found.decisions = finishing.await.map_err(|_| ArchiveError::Panicked)?;
        Ok(found)
    }

    fn follows(
        &self,
        manifest: &Manifest,
        previous: Option<&String>,
        next: Sequence,
    ) -> Result<(), ArchiveError> {
        if manifest.previous.as_ref() != previous {
            let why =
                "it does not name the digest of the manifest before: one of the two was changed";
            return Err(self.changed(manifest.number, why));
        }
        if manifest.first != next || manifest.last < manifest.first {
            let why = format!("it begins at event {}, not at {next}", manifest.first);
            return Err(self.changed(manifest.number, &why));
        }
        Ok(())
    }

    fn changed(&self, number: u64, why: &str) -> ArchiveError {
        ArchiveError::Damaged {
            place: self.place(),
            object: format!("manifest {number}"),
            why: why.to_owned(),
        }
    }
}

struct Walk {
    verifier: Verifier,
    folds: Folds,
    next: Sequence,
}

impl Walk {
    /// Reads a segment; returns the states after the manifest's `asof`.
    fn read(
        &mut self,
        manifest: &Manifest,
        file: &tempfile::NamedTempFile,
    ) -> Result<Folds, ArchiveError> {
        let mut folding = Folding::new(std::mem::take(&mut self.folds), manifest.asof);
        let open = std::fs::File::open(file.path())?;
        for row in Decoding::start(file.path(), open)? {
            let row = row?;
            if row.sequence() != self.next {
                return Err(ArchiveError::Gap(self.next));
            }
            self.next = self.next.next();
            folding.read(&row);
            if let Row::Event(recorded) = row {
                self.verifier.read(&Arc::new(recorded));
            }
        }
        if self.next != manifest.last.next() {
            return Err(ArchiveError::Gap(self.next));
        }
        let (folds, at_asof) = folding.finish();
        self.folds = folds;
        Ok(at_asof)
    }
}
