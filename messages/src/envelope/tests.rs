//! Envelopes in both codecs, unknown and misplaced types, and writers.

use super::*;
use crate::events::JobReleased;

fn released() -> Recorded {
    let job = "ads/lr".parse().expect("valid");
    let event = Event::from(JobReleased {
        job,
        turn: None,
        passed_over: Vec::new(),
        basis: None,
    });
    let time = Timestamp::from_micros(1_000_000);
    Recorded {
        sequence: Sequence(7),
        stored_at: time.plus_ms(4),
        writer: Writer::Admission,
        envelope: Envelope::new("id-1".to_owned(), Writer::Admission, time, None, event),
    }
}

#[test]
fn both_codecs_read_back() {
    let recorded = released();
    let bytes = recorded.envelope.to_msgpack().expect("encodes");
    assert_eq!(
        Envelope::from_msgpack(&bytes).expect("decodes"),
        recorded.envelope
    );
    let line = recorded.to_json("log-1").expect("encodes");
    let (log, back) = Recorded::from_json(&line).expect("decodes");
    assert_eq!((log.as_str(), back), ("log-1", recorded));
}

#[test]
fn a_number_reads_back_to_the_last_bit() {
    // Once broke the verification of an exported log.
    let gap = 2.155_380_391_424_781_8e-16_f64;
    let text = serde_json::to_string(&gap).expect("encodes");
    let back: f64 = serde_json::from_str(&text).expect("decodes");
    assert_eq!(back.to_bits(), gap.to_bits());
}

#[test]
fn type_after_data_takes_a_second_pass() {
    let line = r#"{"data":{"job":"ads/lr","later":1},"specversion":"1.0","id":"x","source":"/dormouse/admission","time":"2026-11-21T10:00:00Z","type":"dormouse.job.released.v1","sequence":"7","storedat":"2026-11-21T10:00:00Z"}"#;
    let (_, recorded) = Recorded::from_json(line).expect("decodes");
    assert!(matches!(recorded.event(), Some(Event::JobReleased(_))));
}

#[test]
fn unknown_types_are_kept_apart_from_unknown_versions() {
    let line = r#"{"specversion":"1.0","id":"x","source":"/dormouse/admission","type":"dormouse.job.promoted.v1","time":"2026-11-21T10:00:00Z","data":{"a":[1]},"sequence":"7","storedat":"2026-11-21T10:00:00Z"}"#;
    let (_, recorded) = Recorded::from_json(line).expect("decodes");
    assert_eq!(recorded.event(), None);
    assert!(!Event::is_other_version("dormouse.job.promoted.v1"));
    assert!(Event::is_other_version("dormouse.job.released.v2"));
    assert!(!Event::is_other_version("dormouse.job.released.v1"));
}

#[test]
fn the_wrong_writer_is_found() {
    let mut recorded = released();
    recorded.writer = Writer::Optimizer;
    assert!(recorded.check_writer("0").is_err());
    let type_name = "dormouse.job.released.v2".to_owned();
    recorded.envelope.body = Body::Unknown { type_name };
    assert!(recorded.check_writer("0").is_err());
    recorded.writer = Writer::Admission;
    assert!(recorded.check_writer("0").is_ok());
}

#[test]
fn a_new_type_of_a_decider_asks_for_a_newer_build_and_that_of_a_node_does_not() {
    let mut recorded = released();
    assert_eq!(recorded.too_new(), None);
    let type_name = "dormouse.job.promoted.v1".to_owned();
    recorded.envelope.body = Body::Unknown { type_name };
    assert_eq!(recorded.too_new(), Some("dormouse.job.promoted.v1"));
    recorded.writer = Writer::Node;
    assert_eq!(recorded.too_new(), None);
}

#[test]
fn an_operator_is_whom_the_subject_names() {
    let mut recorded = released();
    recorded.writer = Writer::Operator;
    let node: NodeId = "n0".parse().expect("valid");
    let restored = Event::from(crate::events::NodeRestored { node });
    let time = recorded.envelope.time;
    recorded.envelope = Envelope::new("id", Writer::Operator, time, None, restored);
    assert!(recorded.check_writer("0").is_ok() && recorded.by().is_none());
    // The name is only in the subject.
    assert!(recorded.check_writer("olga").is_err());
    let plain = recorded.clone();
    recorded.vouch("olga");
    assert!(recorded.check_writer("olga").is_ok());
    assert_eq!(recorded.by(), Some(By::operator("olga")));
    let line = recorded.to_json("log-1").expect("encodes");
    assert_eq!(Recorded::from_json(&line).expect("decodes").1, recorded);
    // Another user's name fails under every subject.
    recorded.vouch("otto");
    assert!(recorded.check_writer("otto").is_err());
    recorded.vouch("0");
    assert!(recorded.check_writer("0").is_err());
    let mut plain = plain;
    plain.vouch("0");
    assert!(plain.check_writer("0").is_ok() && plain.by().is_none());
}

#[test]
fn a_node_stops_nobody_with_a_version_of_its_own() {
    let mut recorded = released();
    recorded.writer = Writer::Node;
    recorded.envelope.source = Writer::Node.source("n0").into();
    let type_name = "dormouse.container.exited.v2".to_owned();
    recorded.envelope.body = Body::Unknown { type_name };
    let error = recorded.check_writer("n0").expect_err("flagged");
    assert!(error.to_string().contains("upgraded after"), "{error}");
    let type_name = "dormouse.container.dreamt.v1".to_owned();
    recorded.envelope.body = Body::Unknown { type_name };
    assert!(recorded.check_writer("n0").is_ok());
}

/// A key could otherwise fill every log clock with sources.
#[test]
fn a_node_and_a_gateway_have_one_source_each() {
    let mut recorded = released();
    recorded.writer = Writer::Node;
    let type_name = "dormouse.container.dreamt.v1".to_owned();
    recorded.envelope.body = Body::Unknown { type_name };
    for source in [
        "/dormouse/node/n1",
        "/dormouse/node/n0/1",
        "/dormouse/node",
        "x",
    ] {
        recorded.envelope.source = source.into();
        assert!(recorded.check_writer("n0").is_err(), "{source}");
    }
    let node: NodeId = "n0".parse().expect("valid");
    let reason = String::new();
    let event = crate::events::NodeFenced {
        node,
        incarnation: 1,
        reason,
    };
    let time = recorded.envelope.time;
    recorded.envelope = Envelope::new("id", Writer::Node, time, None, event.into());
    assert!(recorded.check_writer("n0").is_ok());
    recorded.envelope.source = "/dormouse/node/n0-1".into();
    assert!(recorded.check_writer("n0").is_err());
    let gateway = "g0".parse().expect("valid");
    let event = crate::events::GatewayLeft { gateway };
    recorded.writer = Writer::Gateway;
    recorded.envelope = Envelope::new("id", Writer::Gateway, time, None, event.into());
    assert!(recorded.check_writer("g0").is_ok());
    recorded.envelope.source = "/dormouse/gateway/g1".into();
    assert!(recorded.check_writer("g0").is_err());
}

#[test]
fn garbage_is_an_error() {
    for bytes in [&b""[..], b"\xc1", b"{}", b"\x80", b"\x81\xa1a\x01"] {
        assert!(Envelope::from_msgpack(bytes).is_err());
    }
}
