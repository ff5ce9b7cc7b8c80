//! From a message of the log stream to an event, or to the reason why it is none.

use std::sync::Arc;

use bytes::Bytes;
use dormouse_messages::{Envelope, Prefix, Recorded, Sequence, Timestamp};
pub use dormouse_shell::Followed;

use crate::import::stored_at;

/// A message as the broker delivers it.
#[derive(Debug, Clone)]
pub(crate) struct RawMessage {
    pub sequence: u64,
    pub stored_nanos: i128,
    pub subject: async_nats::Subject,
    pub headers: Option<async_nats::HeaderMap>,
    pub payload: Bytes,
    /// How many messages the broker had behind this one.
    pub pending: u64,
}

impl RawMessage {
    /// The broker's time.
    pub fn stored_at(&self) -> Timestamp {
        timestamp(self.stored_nanos)
    }
}

/// The broker's nanoseconds as a time.
pub(crate) fn timestamp(nanos: i128) -> Timestamp {
    Timestamp::from_micros(i64::try_from(nanos / 1_000).unwrap_or(i64::MAX))
}

/// Decodes one message of the log; up to `imported_to` its original time counts.
pub(crate) fn decode(prefix: &Prefix, imported_to: u64, message: &RawMessage) -> Followed {
    let sequence = Sequence(message.sequence);
    let stored_at = stored_at(
        imported_to,
        message.sequence,
        message.headers.as_ref(),
        message.stored_nanos,
    );
    let subject = prefix.parse_log(message.subject.as_str());
    let flag = |why: String| Followed::Flagged {
        sequence,
        stored_at,
        writer: subject.map(|subject| subject.writer),
        why,
    };
    let Some(subject) = subject else {
        return flag(format!("{} is not a subject of the log", message.subject));
    };
    let envelope = match Envelope::from_msgpack(&message.payload) {
        Ok(envelope) => envelope,
        Err(error) => return flag(error.to_string()),
    };
    let recorded = Recorded {
        sequence,
        stored_at,
        writer: subject.writer,
        envelope,
    };
    match recorded.check_writer(subject.first_key) {
        Ok(()) => Followed::Event(Arc::new(recorded)),
        Err(error) => flag(error.to_string()),
    }
}

/// The place and time in a delivered message's reply subject
/// (`$JS.ACK[.<domain>.<account>].<stream>.<consumer>.<delivered>.<sequence>.<n>.<nanos>.<pending>[.<token>]`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub sequence: u64,
    /// Counts this consumer's deliveries: a gap means that one was lost.
    pub delivery: u64,
    pub stored_nanos: i128,
    pub pending: u64,
}

impl Delivery {
    /// Reads a reply subject; `None` if it is not one of a consumer's.
    pub fn parse(reply: &str) -> Option<Self> {
        let rest = reply.strip_prefix("$JS.ACK.")?;
        // The short form has 7 tokens here, the long one 9 or more.
        let skip = if rest.split('.').nth(7).is_some() {
            5
        } else {
            3
        };
        let mut tokens = rest.split('.').skip(skip);
        Some(Self {
            sequence: tokens.next()?.parse().ok()?,
            delivery: tokens.next()?.parse().ok()?,
            stored_nanos: tokens.next()?.parse().ok()?,
            pending: tokens.next()?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_messages::Writer;

    #[test]
    fn both_forms_of_the_reply_subject_are_read() {
        let delivery = Delivery {
            sequence: 9,
            delivery: 4,
            stored_nanos: 1_700,
            pending: 2,
        };
        let short = "$JS.ACK.DORMOUSE_LOG.abc.1.9.4.1700.2";
        let long = "$JS.ACK._.hash.DORMOUSE_LOG.abc.1.9.4.1700.2.token";
        assert_eq!(Delivery::parse(short), Some(delivery));
        assert_eq!(Delivery::parse(long), Some(delivery));
        assert_eq!(Delivery::parse("_INBOX.x"), None);
    }

    #[test]
    fn garbage_is_flagged_with_its_writer() {
        let message = RawMessage {
            sequence: 3,
            stored_nanos: 5_000,
            subject: "dormouse.log.placer.0.node.lost".into(),
            headers: None,
            payload: Bytes::from_static(b"\xc1"),
            pending: 0,
        };
        match decode(&Prefix::default(), 0, &message) {
            Followed::Flagged {
                sequence, writer, ..
            } => assert_eq!((sequence, writer), (Sequence(3), Some(Writer::Placer))),
            other => panic!("{other:?}"),
        }
    }
}
