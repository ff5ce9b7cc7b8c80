//! What a follower of the log is given.

use std::sync::Arc;

use dormouse_messages::{Recorded, Sequence, Timestamp, Writer};

/// What a follower of the log is given.
#[derive(Debug, Clone)]
pub enum Followed {
    /// The next event. Its body is `Body::Unknown` where this build does not know the type.
    Event(Arc<Recorded>),
    /// A message that is no event, or one that its writer may not write. Readers count it and
    /// go on.
    Flagged {
        /// Its place.
        sequence: Sequence,
        /// The broker's time.
        stored_at: Timestamp,
        /// Whose subject it was stored under, where that can be told.
        writer: Option<Writer>,
        /// What is wrong with it.
        why: String,
    },
    /// Everything up to here was the whole log at some moment since the last of these.
    CaughtUp(Sequence),
}
