//! Items of a followed log.

use std::sync::Arc;

use dormouse_messages::{Recorded, Sequence, Timestamp, Writer};

/// An item of a followed log.
#[derive(Debug, Clone)]
pub enum LogItem {
    /// `Body::Unknown` if this build does not know the type.
    Event(Arc<Recorded>),
    /// A non-event, or an event that its writer may not write.
    Flagged {
        sequence: Sequence,
        stored_at: Timestamp,
        writer: Option<Writer>,
        why: String,
    },
    /// Everything up to here was once the whole log since the last `CaughtUp`.
    CaughtUp(Sequence),
}
