//! A slice of a log for others: new names that keep the old order, and nothing of what jobs are
//! made of.
//!
//! 1. The whole log is read for its names ([`names`]).
//! 2. Every event is written again under the new ones ([`event`]). Only what is known to tell nothing
//!    passes ([`vocabulary`]): numbers, times, ids under new names, and the words of the events' types.
//!    Documents are remade from what was admitted, with their hashes.
//! 3. The services decide again from the renamed events, and what they say in words is taken
//!    ([`remake`]). So the slice verifies like any other. Of a submission that was refused the document
//!    is not known: it is refused as one that cannot be read.

mod event;
mod names;
mod remake;
mod vocabulary;

use std::sync::Arc;

use dormouse_messages::{CodecError, Recorded};

use event::Renamer;
pub use names::Seen;
use remake::Remaker;

/// Makes a log anonymous, event by event, from its first one on.
pub struct Anonymiser {
    renamer: Renamer,
    remaker: Remaker,
}

impl Anonymiser {
    /// With the names of the whole log.
    #[must_use]
    pub fn new(mut seen: Seen) -> Self {
        let documents = std::mem::take(&mut seen.documents);
        Self {
            renamer: Renamer::new(seen.names(), documents),
            remaker: Remaker::default(),
        }
    }

    /// The next event, as it stands in the slice; nothing of one that is left out.
    ///
    /// # Errors
    /// When it cannot be written or read.
    pub fn read(&mut self, recorded: &Recorded) -> Result<Option<Arc<Recorded>>, CodecError> {
        let Some(renamed) = self.renamer.rename(recorded)? else {
            return Ok(None);
        };
        let remade = Arc::new(self.remaker.remake(renamed)?);
        Ok(Some(remade))
    }
}
