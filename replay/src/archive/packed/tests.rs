//! Events round-trip, also between builds, and damage is an error.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;

use dormouse_messages::{Body, Recorded, Timestamp};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use super::cursor::{Cursor, Tables};
use super::reader::ValueReader;
use super::writer::ValueWriter;
use super::*;
use crate::random::Random;

fn samples() -> Vec<Recorded> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../messages/tests/fixtures");
    let files = std::fs::read_dir(folder).expect("the fixtures are there");
    let paths = files.map(|file| file.expect("an entry").path());
    let lines = paths.filter(|path| path.extension().is_some_and(|ending| ending == "json"));
    lines
        .map(|path| {
            let line = std::fs::read_to_string(path).expect("reads");
            Recorded::from_json(&line).expect("decodes").1
        })
        .collect()
}

fn block(events: &[Recorded]) -> Vec<u8> {
    let mut archive = Vec::new();
    let mut writer = BlockWriter::new(&mut archive).expect("starts");
    for recorded in events {
        writer.write(recorded).expect("writes");
    }
    writer.finish().expect("ends");
    let (head, rest) = archive.split_first_chunk().expect("a head");
    let head = BlockHead::read(head).expect("a head");
    assert_eq!(head.events, events.len());
    assert_eq!(rest.len(), head.packed + BlockHead::BYTES);
    zstd::bulk::decompress(&rest[..head.packed], head.unpacked).expect("unpacks")
}

fn decoded(block: &[u8], events: usize) -> (Vec<Recorded>, Result<(), String>) {
    let mut read = Vec::new();
    let result = decode_block(block, events, |recorded| {
        read.push(recorded);
        true
    });
    (read, result)
}

#[test]
fn every_event_reads_back_to_the_last_bit() {
    let mut events = samples();
    assert!(events.len() > 30, "{}", events.len());
    events.extend(events.clone());
    let (read, result) = decoded(&block(&events), events.len());
    assert_eq!(result, Ok(()));
    assert_eq!(read, events);
    let lines = |events: &[Recorded]| -> Vec<String> {
        let line = |event: &Recorded| event.to_json("log").expect("encodes");
        events.iter().map(line).collect()
    };
    assert_eq!(lines(&read), lines(&events));
}

#[test]
fn places_and_times_are_kept_whatever_they_are() {
    let extremes = [(0, 0, 1), (u64::MAX, i64::MIN, i64::MAX), (7, i64::MAX, -1)];
    let mut events = samples();
    events.truncate(extremes.len());
    for (event, (sequence, stored_at, time)) in events.iter_mut().zip(extremes) {
        event.sequence.0 = sequence;
        event.stored_at = Timestamp::from_micros(stored_at);
        event.envelope.time = Timestamp::from_micros(time);
        event.envelope.traceparent = Some("00-1-2-01".to_owned());
    }
    let (read, result) = decoded(&block(&events), events.len());
    assert_eq!((result, read), (Ok(()), events));
}

#[test]
fn an_event_that_this_build_does_not_know_is_skipped() {
    let mut events = samples();
    events.truncate(3);
    let known = events[1].event().expect("known").type_name();
    let renamed = known.replace(".v1", ".v9");
    let mut other = block(&events);
    let at = other
        .windows(known.len())
        .position(|name| name == known.as_bytes());
    let at = at.expect("its type's name");
    other[at..at + known.len()].copy_from_slice(renamed.as_bytes());
    let (read, result) = decoded(&other, events.len());
    assert_eq!(result, Ok(()));
    assert_eq!((&read[0], &read[2]), (&events[0], &events[2]));
    let unknown = Body::Unknown { type_name: renamed };
    assert_eq!(read[1].envelope.body, unknown);
    let (again, result) = decoded(&block(&read), read.len());
    assert_eq!((result, again), (Ok(()), read));
}

fn reread<T: Serialize + ?Sized, U: DeserializeOwned>(value: &T) -> Result<U, String> {
    let mut writer = ValueWriter::default();
    value.serialize(&mut writer).expect("encodes");
    let mut bytes = vec![0];
    writer.put_tables(&mut bytes);
    bytes.extend_from_slice(&writer.out);
    let mut cursor = Cursor::new(&bytes);
    let tables = cursor.tables().expect("tables");
    let mut reader = ValueReader::new(cursor, &tables);
    let value = U::deserialize(&mut reader).map_err(|error| error.to_string());
    assert!(value.is_err() || reader.cursor.is_at_end());
    value
}

fn same<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: T) {
    assert_eq!(reread::<T, T>(&value), Ok(value));
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Shape {
    Point,
    Round(f64),
    Long(u8, String),
    Square { side: u64 },
}

#[test]
fn values_of_every_kind_read_back() {
    for number in [0, 127, 128, 300, u64::MAX] {
        same(number);
    }
    for number in [0, -1, -128, i64::MIN, i64::MAX] {
        same(number);
    }
    same((true, false, 'ö', Some(1.5_f32), None::<u8>, ()));
    same(BTreeMap::from([
        ("a".to_owned(), vec![1, 2]),
        (String::new(), vec![]),
    ]));
    same(vec![
        Shape::Point,
        Shape::Round(0.5),
        Shape::Long(1, "x".repeat(200)),
        Shape::Square { side: 3 },
    ]);
    same(vec![Timestamp::from_micros(-1), Timestamp::default()]);
    // More words than one-byte tags, three times each.
    let words = (0..900).map(|number| format!("word {}", number % 300));
    same(words.collect::<Vec<_>>());
    let read: f64 = reread(&-0.0_f64).expect("reads");
    assert_eq!(read.to_bits(), (-0.0_f64).to_bits());
    let read: f64 = reread(&f64::from_bits(0x7ff8_0000_0000_0001)).expect("reads");
    assert_eq!(read.to_bits(), 0x7ff8_0000_0000_0001);
    assert!(reread::<_, u8>(&300).is_err());
    assert!(reread::<_, (u8, u8)>(&[1, 2, 3]).is_err());
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Earlier {
    first: u32,
    second: String,
    gone: Vec<Timestamp>,
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Later {
    #[serde(default)]
    new: Option<u32>,
    second: String,
    #[serde(default)]
    more: Vec<u8>,
    first: u32,
}

#[test]
fn a_later_build_reads_what_an_earlier_one_wrote_and_the_other_way_round() {
    let earlier = Earlier {
        first: 1,
        second: "two".to_owned(),
        gone: vec![Timestamp::default()],
    };
    let later: Vec<Later> = reread(&[&earlier, &earlier]).expect("reads");
    let expected = Later {
        new: None,
        second: "two".to_owned(),
        more: Vec::new(),
        first: 1,
    };
    assert_eq!(later[1], expected);
    let error = reread::<_, Earlier>(&expected).expect_err("a field is missing");
    assert!(error.contains("missing field `gone`"), "{error}");
    let (one, other): (Later, Earlier) = reread(&(&earlier, &earlier)).expect("reads");
    assert_eq!((one, other), (expected, earlier));
}

#[test]
fn an_unknown_field_is_named_where_none_is_allowed() {
    #[derive(Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "it is not read")]
    struct Strict {
        first: u32,
    }
    let value = BTreeMap::from([("first", 1), ("second", 2)]);
    let error = reread::<_, Strict>(&value).expect_err("a field too many");
    assert!(error.contains("unknown field `second`"), "{error}");
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    let events = samples();
    let whole = block(&events);
    let mut random = Random::new(7);
    let mut below = |end: usize| (random.next() % end as u64) as usize;
    let mut wrong = 0;
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..=below(3) {
            let place = below(bytes.len());
            match below(4) {
                0 => bytes.truncate(place + 1),
                1 => bytes.insert(place, below(256) as u8),
                2 => bytes[place] ^= 1 << below(8),
                _ => bytes[place] = below(256) as u8,
            }
        }
        let (read, result) = decoded(&bytes, events.len());
        assert!(read.len() <= events.len());
        wrong += usize::from(result.is_err());
    }
    assert!(wrong > 10_000, "{wrong}");
    let deep = [tag::LIST, 1].repeat(100_000);
    let tables = Tables::default();
    let mut reader = ValueReader::new(Cursor::new(&deep), &tables);
    assert!(IgnoredAny::deserialize(&mut reader).is_err());
}
