//! Anonymises a log: new names keep the old order, and job contents are left out.
//!
//! 1. [`names`] reads the whole log for its names.
//! 2. [`event`] rewrites every event; [`vocabulary`] tells which texts may pass.
//! 3. [`remake`] lets the services decide again and takes over their messages. A refused submission's
//!    document is unknown, and is refused as unreadable.

mod event;
mod names;
mod remake;
mod vocabulary;

use std::sync::Arc;

use dormouse_messages::{CodecError, Recorded};

use event::Renamer;
pub use names::Seen;
use remake::Remaker;

/// Anonymises a log event by event, from the first one on.
pub struct Anonymiser {
    renamer: Renamer,
    remaker: Remaker,
}

impl Anonymiser {
    /// Takes the names of the whole log.
    #[must_use]
    pub fn new(mut seen: Seen) -> Self {
        let documents = std::mem::take(&mut seen.documents);
        Self {
            renamer: Renamer::new(seen.names(), documents),
            remaker: Remaker::default(),
        }
    }

    /// Anonymises the next event; `None` if it is left out.
    ///
    /// # Errors
    /// The event cannot be written or read.
    pub fn read(&mut self, recorded: &Recorded) -> Result<Option<Arc<Recorded>>, CodecError> {
        let Some(renamed) = self.renamer.rename(recorded)? else {
            return Ok(None);
        };
        let remade = Arc::new(self.remaker.remake(renamed)?);
        Ok(Some(remade))
    }
}
