//! Turns ingress messages into events that suffice for deciding.

use dormouse_messages::events::{RawEncoding, SubmissionReceived, SubmissionsRateLimited};
use dormouse_messages::intake::{Arrival, RateLimited};
use dormouse_messages::subject::MEASURED;
use dormouse_messages::{Event, TenantId, Timestamp};
use sha2::{Digest, Sha256};

use crate::measured;
use crate::state::AdmissionState;

/// Identifies an oversized payload.
const CUT_BYTES: usize = 1024;

/// Records a submission.
#[must_use]
pub fn received(
    ingress_sequence: u64,
    published_at: Timestamp,
    tenant: &str,
    verb: &str,
    content_type: Option<&str>,
    payload: &[u8],
) -> Event {
    let kept = if payload.len() > SubmissionReceived::limit_bytes(verb) {
        payload.get(..CUT_BYTES).unwrap_or(payload)
    } else {
        payload
    };
    let (raw, raw_encoding) = match std::str::from_utf8(kept) {
        Ok(text) => (text.to_owned(), RawEncoding::Utf8),
        Err(_) => (hex(kept), RawEncoding::Hex),
    };
    let recognised = match payload.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{' | b'[' | b'"') => "application/json",
        _ => "application/msgpack",
    };
    Event::from(SubmissionReceived {
        ingress_sequence,
        tenant: tenant.to_owned(),
        verb: verb.to_owned(),
        content_type: content_type.unwrap_or(recognised).to_owned(),
        bytes: payload.len() as u64,
        sha256: hex(&Sha256::digest(payload)),
        raw,
        raw_encoding,
        published_at,
        by: None,
    })
}

/// Records a plausible measurement as such, and a submission to a full log without its document; other
/// messages unchanged.
#[must_use]
pub fn recorded(state: &AdmissionState, arrival: &Arrival) -> Event {
    let mut event = arrived(arrival);
    match &mut event {
        Event::SubmissionReceived(it) if it.verb == MEASURED => {
            measured(state, it).unwrap_or(event)
        }
        // A full log has no room for documents that are refused.
        Event::SubmissionReceived(it) if it.verb == "submit" && state.full.is_some() => {
            it.raw.clear();
            event
        }
        _ => event,
    }
}

fn measured(state: &AdmissionState, received: &SubmissionReceived) -> Option<Event> {
    let tenant = TenantId::new(received.tenant.as_str()).ok()?;
    let accepted = measured::accept(state, received, &tenant);
    accepted.ok().map(Event::from)
}

/// Records a message unchanged.
#[must_use]
pub fn arrived(arrival: &Arrival) -> Event {
    let Arrival {
        sequence,
        at,
        tenant,
        verb,
        by,
        content_type,
        payload,
        ..
    } = arrival;
    let content_type = content_type.as_deref();
    let mut event = received(*sequence, *at, tenant, verb, content_type, payload);
    if let Event::SubmissionReceived(event) = &mut event {
        event.by.clone_from(by);
    }
    event
}

/// Records rate-limited submissions.
#[must_use]
pub fn rate_limited(tenant: &str, rate_limited: &RateLimited) -> Event {
    Event::from(SubmissionsRateLimited {
        tenant: tenant.to_owned(),
        first: rate_limited.first,
        last: rate_limited.last,
        count: rate_limited.count,
        since: rate_limited.since,
        until: rate_limited.until,
        max_rate: rate_limited.max_rate,
        verb: rate_limited.measured.then(|| MEASURED.to_owned()),
    })
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String never fails.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::Admission;
    use crate::decode::payload;
    use crate::state::AdmissionState;
    use dormouse_messages::events::{Fill, LogBound, LogFilled};
    use dormouse_messages::{By, Decider, Envelope, Fold, Recorded, Role, Sequence, Writer};

    fn record(bytes: &[u8]) -> SubmissionReceived {
        match received(1, Timestamp::default(), "ads", "submit", None, bytes) {
            Event::SubmissionReceived(event) => *event,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the decision about a message that `by` published.
    fn decided(state: &mut AdmissionState, sequence: u64, verb: &str, raw: &str, by: &By) -> Event {
        let at = Timestamp::default().plus_ms(sequence);
        let arrival = Arrival {
            sequence,
            at,
            tenant: "ads".to_owned(),
            verb: verb.to_owned(),
            by: Some(by.clone()),
            content_type: None,
            traceparent: None,
            payload: raw.as_bytes().to_vec(),
        };
        let mut place = 2 * sequence;
        let mut fold = |state: &mut AdmissionState, event: Event| {
            let writer = Writer::Admission;
            let envelope = Envelope::new("id", writer, at, None, event);
            place += 1;
            state.evolve(&Recorded {
                sequence: Sequence(place),
                stored_at: at,
                writer,
                envelope,
            });
        };
        fold(state, arrived(&arrival));
        let mut proposals = Admission.decide(state, at).proposals;
        let event = proposals.remove(0).event;
        fold(state, event.clone());
        event
    }

    #[test]
    fn what_is_decided_says_who_asked() {
        let alice = By {
            tenant: Some("ads".parse().expect("valid")),
            user: "alice".to_owned(),
            role: Role::Submitter,
        };
        let olga = By::operator("olga");
        let mut state = AdmissionState::default();
        let job = r#"{"name": "a", "command": {"start": ["x"]}, "demand": {"cpu": 1}}"#;
        let cancel = r#"{"job": "a"}"#;
        for (sequence, verb, raw, by, expected) in [
            (1, "submit", job, &alice, "job.admitted"),
            (2, "submit", job, &olga, "job.refused"),
            (
                3,
                "revise",
                r#"{"job": "a", "held": true}"#,
                &olga,
                "job.revised",
            ),
            (4, "cancel", cancel, &alice, "job.cancelled"),
        ] {
            let event = decided(&mut state, sequence, verb, raw, by);
            assert_eq!((event.subject_name(), event.by()), (expected, Some(by)));
        }
    }

    #[test]
    fn a_job_is_requeued_by_one_event_unless_it_is_on_hold() {
        let olga = By::operator("olga");
        let mut state = AdmissionState::default();
        let job = r#"{"name": "a", "command": {"start": ["x"]}, "demand": {"cpu": 1}}"#;
        for (sequence, verb, raw, expected) in [
            (1, "submit", job, "job.admitted"),
            (
                2,
                "revise",
                r#"{"job": "a", "requeue": true}"#,
                "job.requeued",
            ),
            (
                3,
                "revise",
                r#"{"job": "a", "requeue": true, "weight": 2}"#,
                "bad_document",
            ),
            (4, "revise", r#"{"job": "a", "held": true}"#, "job.revised"),
            (5, "revise", r#"{"job": "a", "requeue": true}"#, "on_hold"),
        ] {
            let found = match decided(&mut state, sequence, verb, raw, &olga) {
                Event::JobRefused(event) => event.code.clone(),
                event => event.subject_name().to_owned(),
            };
            assert_eq!(found, expected, "{raw}");
        }
    }

    #[test]
    fn a_full_log_takes_no_job_and_no_document_and_every_other_message() {
        let olga = By::operator("olga");
        let mut state = AdmissionState::default();
        let fill = |state: &mut AdmissionState, fill| {
            let event = Event::from(LogFilled {
                fill,
                bytes: 90 << 20,
                most_bytes: 100 << 20,
                bound: LogBound::Stream,
            });
            let (writer, at) = (Writer::Archiver, Timestamp::default());
            state.evolve(&Recorded {
                sequence: Sequence(1),
                stored_at: at,
                writer,
                envelope: Envelope::new("filled", writer, at, None, event),
            });
        };
        let job = |name: &str| {
            format!(
                r#"{{"name": "{name}", "command": {{"start": ["x"]}}, "demand": {{"cpu": 1}}}}"#
            )
        };
        let said = |state: &mut AdmissionState, sequence, verb, raw: &str| match decided(
            state, sequence, verb, raw, &olga,
        ) {
            Event::JobRefused(event) => event.reason.clone(),
            event => event.subject_name().to_owned(),
        };
        assert_eq!(said(&mut state, 1, "submit", &job("a")), "job.admitted");
        fill(&mut state, Fill::Full);
        assert_eq!(state.stand("ads").1.submissions, Some(5));
        let reason = said(&mut state, 2, "submit", &job("b"));
        assert!(reason.contains("90 % of its 100 MiB"), "{reason}");
        let arrival = Arrival {
            sequence: 3,
            at: Timestamp::default(),
            tenant: "ads".to_owned(),
            verb: "submit".to_owned(),
            by: None,
            content_type: None,
            traceparent: None,
            payload: job("c").into_bytes(),
        };
        let Event::SubmissionReceived(cut) = recorded(&state, &arrival) else {
            panic!("a submission");
        };
        assert_eq!((cut.raw.as_str(), cut.bytes), ("", job("c").len() as u64));
        assert_eq!(
            said(&mut state, 4, "cancel", r#"{"job": "a"}"#),
            "job.cancelled"
        );
        fill(&mut state, Fill::Filling);
        assert_eq!(state.stand("ads").1.submissions, None);
        assert_eq!(said(&mut state, 5, "submit", &job("d")), "job.admitted");
        // This submission came while the log was full.
        let refused = crate::limits::check_sender(&state, &"ads".parse().expect("valid"), &cut);
        assert!(refused.is_err_and(|it| it.reason.contains("when this was submitted")));
    }

    #[test]
    fn any_bytes_read_back() {
        for bytes in [&b"{}"[..], b"", b"\xff\x00\x80", "ä".as_bytes()] {
            assert_eq!(payload(&record(bytes)).as_deref(), Some(bytes));
        }
    }

    #[test]
    fn a_large_payload_is_cut_and_known_to_be() {
        let large = vec![b'x'; SubmissionReceived::RAW_LIMIT_BYTES + 1];
        let event = record(&large);
        assert_eq!(event.raw.len(), CUT_BYTES);
        assert_eq!(payload(&event), None);
        assert_eq!(event.bytes, large.len() as u64);
    }
}
