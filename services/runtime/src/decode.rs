//! Decoding a message of the log stream into an event, or into the reason why it is none.

use std::sync::Arc;

use async_nats::HeaderMap;
use bytes::Bytes;
use dormouse_messages::{
    Body, Envelope, EventType, Prefix, Recorded, Sequence, Text, Timestamp, Writer,
};
pub use dormouse_shell::LogItem;
use serde::Deserialize;

/// The header with the original time of an imported message.
pub(crate) const STORED_AT: &str = "Dormouse-Stored-At";

/// The stream's metadata with the last imported sequence.
pub(crate) const IMPORTED_TO: &str = "dormouse-imported-to";

/// The stream's metadata with the identity of the log that it continues.
pub(crate) const ORIGIN: &str = "dormouse-origin";

#[derive(Debug, Clone)]
pub(crate) struct RawMessage {
    pub sequence: u64,
    pub stored_nanos: i128,
    pub subject: async_nats::Subject,
    pub headers: Option<HeaderMap>,
    pub payload: Bytes,
    pub pending: u64,
}

impl RawMessage {
    pub fn stored_at(&self) -> Timestamp {
        timestamp(self.stored_nanos)
    }
}

pub(crate) fn timestamp(nanos: i128) -> Timestamp {
    Timestamp::from_micros(i64::try_from(nanos / 1_000).unwrap_or(i64::MAX))
}

/// Returns a message's time; up to `imported_to` its original time.
pub(crate) fn stored_at(
    imported_to: u64,
    sequence: u64,
    headers: Option<&HeaderMap>,
    nanos: i128,
) -> Timestamp {
    let original = || {
        let value = headers?.get(STORED_AT)?;
        value.as_str().parse().ok()
    };
    if sequence <= imported_to {
        original().map_or_else(|| timestamp(nanos), Timestamp::from_micros)
    } else {
        timestamp(nanos)
    }
}

/// Decodes a message; up to `imported_to` its original time counts.
pub(crate) fn decode(prefix: &Prefix, imported_to: u64, message: &RawMessage) -> LogItem {
    let sequence = Sequence(message.sequence);
    let stored_at = stored_at(
        imported_to,
        message.sequence,
        message.headers.as_ref(),
        message.stored_nanos,
    );
    let subject = prefix.parse_log(message.subject.as_str());
    let flag = |why: String| LogItem::Flagged {
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
        Err(error) => match newer(&message.payload, subject.writer) {
            Some(envelope) => envelope,
            None => return flag(error.to_string()),
        },
    };
    let mut recorded = Recorded {
        sequence,
        stored_at,
        writer: subject.writer,
        envelope,
    };
    recorded.vouch(subject.first_key);
    match recorded.check_writer(subject.first_key) {
        Ok(()) => LogItem::Event(Arc::new(recorded)),
        Err(error) => flag(error.to_string()),
    }
}

#[derive(Deserialize)]
struct Around {
    id: Text,
    source: Text,
    #[serde(rename = "type")]
    type_name: String,
    subject: Text,
    time: Timestamp,
}

/// A newer build wrote an event of a known type with unreadable data. A service that skipped it would decide
/// on another state, so it becomes an unknown version; nodes and gateways must not stop a service, so theirs
/// are flagged.
fn newer(payload: &[u8], writer: Writer) -> Option<Envelope> {
    if matches!(writer, Writer::Node | Writer::Gateway) {
        return None;
    }
    let around: Around = rmp_serde::from_slice(payload).ok()?;
    let known = EventType::of(&around.type_name)?;
    Some(Envelope {
        id: around.id,
        source: around.source,
        subject: around.subject,
        time: around.time,
        traceparent: None,
        body: Body::Unknown {
            type_name: format!("{}-newer", known.as_str()),
        },
    })
}

/// Position and time in a reply subject
/// (`$JS.ACK[.<domain>.<account>].<stream>.<consumer>.<delivered>.<sequence>.<n>.<nanos>.<pending>[.<token>]`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub sequence: u64,
    /// Count of this consumer's deliveries; a gap means a loss.
    pub delivery: u64,
    pub stored_nanos: i128,
    pub pending: u64,
}

impl Delivery {
    pub fn parse(reply: &str) -> Option<Self> {
        let rest = reply.strip_prefix("$JS.ACK.")?;
        // 7 tokens in the short form, at least 9 in the long one.
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

    fn message(subject: &str, payload: Vec<u8>) -> RawMessage {
        RawMessage {
            sequence: 3,
            stored_nanos: 5_000,
            subject: subject.into(),
            headers: None,
            payload: payload.into(),
            pending: 0,
        }
    }

    fn in_another_form(type_name: &str, writer: Writer) -> Vec<u8> {
        let event = serde_json::json!({
            "specversion": "1.0", "id": "x", "source": format!("/dormouse/{writer}"),
            "type": type_name, "subject": "cluster", "time": "2026-11-21T10:00:00Z",
            "data": {"policy": {"of": "tomorrow"}},
        });
        rmp_serde::to_vec_named(&event).expect("encodes")
    }

    #[test]
    fn a_newer_form_of_a_known_type_is_not_skipped() {
        let type_name = "dormouse.cluster.configured.v1";
        let payload = in_another_form(type_name, Writer::Operator);
        let message = message("dormouse.log.operator.0.cluster.configured", payload);
        let decoded = decode(&Prefix::default(), 0, &message);
        let LogItem::Event(recorded) = decoded else {
            panic!("{decoded:?}")
        };
        let Body::Unknown { type_name } = &recorded.envelope.body else {
            panic!("{recorded:?}")
        };
        assert!(
            dormouse_messages::Event::is_other_version(type_name),
            "{type_name}"
        );
    }

    #[test]
    fn what_a_node_writes_in_another_form_is_flagged() {
        let payload = in_another_form("dormouse.node.joined.v1", Writer::Node);
        let message = message("dormouse.log.node.n0.node.joined", payload);
        let decoded = decode(&Prefix::default(), 0, &message);
        assert!(matches!(decoded, LogItem::Flagged { .. }), "{decoded:?}");
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
            LogItem::Flagged {
                sequence, writer, ..
            } => assert_eq!((sequence, writer), (Sequence(3), Some(Writer::Placer))),
            other => panic!("{other:?}"),
        }
    }
}
