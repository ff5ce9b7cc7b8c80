//! Decoders never panic on random bytes, damaged events or other values, and re-encode whatever they accept.

use crate::common::{LOG, samples};
use dormouse_messages::{Amounts, ContainerId, Envelope, JobId, Prefix, Recorded, Timestamp};
use proptest::prelude::*;
use serde_json::Value;

/// Damage to an encoded event: place (fraction of the length), kind, byte.
type Damage = (f64, u8, u8);

fn damage(bytes: &mut Vec<u8>, damages: &[Damage]) {
    for (place, what, byte) in damages {
        if bytes.is_empty() {
            return;
        }
        let index = ((bytes.len() as f64) * place) as usize % bytes.len();
        match what % 5 {
            0 => bytes[index] = *byte,
            1 => bytes.truncate(index),
            2 => bytes.insert(index, *byte),
            3 => drop(bytes.remove(index)),
            _ => bytes[index] ^= 1 << (byte % 8),
        }
    }
}

fn damages() -> impl Strategy<Value = Vec<Damage>> {
    prop::collection::vec((0.0f64..1.0, any::<u8>(), any::<u8>()), 1..6)
}

/// Replaces a leaf of an event. Strings stay strings, so that many results still decode.
fn other(value: &Value, number: u64, text: &str) -> Value {
    match value {
        Value::String(old) if old.contains('T') && old.ends_with('Z') => {
            let micros = i64::try_from(number >> 12).unwrap_or(0);
            Value::String(Timestamp::from_micros(micros).to_string())
        }
        Value::String(_) => Value::String(text.to_owned()),
        Value::Number(old) if old.is_f64() => Value::from(number as f64 / 1e3 - 1e3),
        Value::Number(_) => Value::from(number % 5_000_000_000),
        Value::Bool(_) => Value::Bool(number.is_multiple_of(2)),
        Value::Array(items) => Value::Array(
            items
                .iter()
                .cycle()
                .take(number as usize % 4)
                .cloned()
                .collect(),
        ),
        other => other.clone(),
    }
}

/// Changes the leaf at `place` in the event's data.
fn change(value: &mut Value, place: f64, number: u64, text: &str) {
    let size = match value {
        Value::Object(fields) if !fields.is_empty() => fields.len(),
        Value::Array(items) if !items.is_empty() && place < 0.8 => items.len(),
        leaf => return *leaf = other(leaf, number, text),
    };
    let scaled = place * size as f64;
    let (index, rest) = ((scaled as usize).min(size - 1), scaled.fract());
    match value {
        Value::Object(fields) => {
            let key = fields.keys().nth(index).cloned().unwrap_or_default();
            // Sometimes removes a field, optional or required.
            if number.is_multiple_of(17) {
                fields.remove(&key);
            } else if let Some(field) = fields.get_mut(&key) {
                change(field, rest, number, text);
            }
        }
        Value::Array(items) => change(&mut items[index], rest, number, text),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Envelope::from_msgpack(&bytes);
        let _ = Recorded::from_json(&String::from_utf8_lossy(&bytes));
        let text = String::from_utf8_lossy(&bytes);
        let _ = (text.parse::<JobId>(), text.parse::<ContainerId>(), text.parse::<Amounts>());
        let _ = (text.parse::<Timestamp>(), text.parse::<Prefix>());
        let _ = (Prefix::default().parse_log(&text), Prefix::default().parse_ingress(&text));
    }

    #[test]
    fn damaged_events_never_panic(which in 0usize..30, damages in damages()) {
        let samples = samples();
        let sample = &samples[which % samples.len()];
        let mut bytes = sample.envelope.to_msgpack().expect("encodes");
        damage(&mut bytes, &damages);
        if let Ok(envelope) = Envelope::from_msgpack(&bytes) {
            // A decoded event can be encoded and decoded again.
            let again = envelope.to_msgpack().expect("encodes");
            prop_assert!(Envelope::from_msgpack(&again).is_ok());
        }
        let mut line = sample.to_json(LOG).expect("encodes").into_bytes();
        damage(&mut line, &damages);
        let _ = Recorded::from_json(&String::from_utf8_lossy(&line));
    }

    #[test]
    fn events_with_other_values_read_back(
        which in 0usize..30,
        changes in prop::collection::vec((0.0f64..1.0, any::<u64>(), "[a-z0-9-]{1,9}(/[a-z0-9-]{1,9})?"), 0..4),
    ) {
        let samples = samples();
        let sample = &samples[which % samples.len()];
        let line = sample.to_json(LOG).expect("encodes");
        let mut value: Value = serde_json::from_str(&line).expect("JSON");
        for (place, number, text) in &changes {
            change(&mut value["data"], *place, *number, text);
        }
        if let Ok((_, recorded)) = Recorded::from_json(&value.to_string()) {
            let again = recorded.to_json(LOG).expect("encodes");
            let (_, back) = Recorded::from_json(&again).expect("reads back");
            prop_assert_eq!(&back, &recorded);
            let bytes = recorded.envelope.to_msgpack().expect("encodes");
            prop_assert_eq!(&Envelope::from_msgpack(&bytes).expect("reads back"), &recorded.envelope);
        } else {
            prop_assert!(!changes.is_empty(), "an unchanged event decodes");
        }
    }
}

#[test]
fn deep_nesting_is_an_error_and_not_a_crash() {
    for byte in [0x91, 0x81, 0xdc] {
        let mut bytes = samples()[0].envelope.to_msgpack().expect("encodes");
        bytes.extend(std::iter::repeat_n(byte, 200_000));
        let _ = Envelope::from_msgpack(&bytes);
        // A map with one unknown field of endless nesting.
        let mut nested = vec![0x81, 0xa1, b'x'];
        nested.extend(std::iter::repeat_n(byte, 200_000));
        assert!(Envelope::from_msgpack(&nested).is_err());
    }
    let nested = format!("{{\"x\":{}", "[".repeat(200_000));
    assert!(Recorded::from_json(&nested).is_err());
}
