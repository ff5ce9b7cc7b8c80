//! A committed sample of every event version must decode in every later build.
//!
//! `fixtures/<type>.json` is a line of an export, `fixtures/<type>.msgpack.hex` the bytes on the log.
//! `UPDATE_FIXTURES=1 cargo test` adds samples of new types and versions and never changes a file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Once;

use crate::common::{LOG, samples};
use dormouse_messages::{Body, Envelope, Event, Recorded};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn hex(bytes: &[u8]) -> String {
    let line = |chunk: &[u8]| chunk.iter().map(|byte| format!("{byte:02x}")).collect();
    let lines: Vec<String> = bytes.chunks(40).map(line).collect();
    lines.join("\n") + "\n"
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    let byte = |pair: &[u32]| u8::try_from(pair[0] * 16 + pair[1]).expect("two digits");
    digits.chunks(2).map(byte).collect()
}

fn write_missing() {
    for sample in samples() {
        let Some(event) = sample.event() else {
            continue;
        };
        let json = folder().join(format!("{}.json", event.type_name()));
        let msgpack = folder().join(format!("{}.msgpack.hex", event.type_name()));
        if !json.exists() {
            let line = sample.to_json(LOG).expect("encodes");
            std::fs::write(json, line + "\n").expect("the fixture is written");
        }
        if !msgpack.exists() {
            let bytes = sample.envelope.to_msgpack().expect("encodes");
            std::fs::write(msgpack, hex(&bytes)).expect("the fixture is written");
        }
    }
}

fn fixtures(ending: &str) -> Vec<(String, String)> {
    static UPDATED: Once = Once::new();
    UPDATED.call_once(|| {
        if std::env::var_os("UPDATE_FIXTURES").is_some() {
            write_missing();
        }
    });
    let entries = std::fs::read_dir(folder()).expect("the fixtures are there");
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.expect("an entry").path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .expect("a name");
        if let Some(type_name) = name.strip_suffix(ending) {
            let text = std::fs::read_to_string(&path).expect("a text file");
            found.push((type_name.to_owned(), text));
        }
    }
    found.sort();
    found
}

#[test]
fn every_sample_decodes_in_both_codecs() {
    let (lines, bytes) = (fixtures(".json"), fixtures(".msgpack.hex"));
    assert_eq!(
        lines.len(),
        bytes.len(),
        "each sample is there in both codecs"
    );
    for ((type_name, line), (other_name, hex)) in lines.iter().zip(&bytes) {
        assert_eq!(type_name, other_name);
        let (log, recorded) = Recorded::from_json(line.trim_end())
            .unwrap_or_else(|error| panic!("{type_name} no longer decodes from JSON: {error}"));
        let envelope = Envelope::from_msgpack(&unhex(hex))
            .unwrap_or_else(|error| panic!("{type_name} no longer decodes: {error}"));
        assert_eq!(recorded.envelope, envelope, "{type_name}");
        assert_eq!(log, LOG);
        let event = recorded.event();
        let event = event.unwrap_or_else(|| panic!("{type_name} is no longer registered"));
        assert_eq!(event.type_name(), type_name);
    }
}

#[test]
fn every_registered_type_has_a_sample() {
    let missing = |known: &BTreeSet<String>| -> Vec<String> {
        let names = Event::TYPES.iter().map(|name| format!("dormouse.{name}"));
        names.filter(|name| !known.contains(name)).collect()
    };
    let known: BTreeSet<String> = fixtures(".json")
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let none: Vec<String> = Vec::new();
    assert_eq!(
        missing(&known),
        none,
        "run with UPDATE_FIXTURES=1 and commit them"
    );
    // The check itself can fail.
    let mut fewer = known;
    fewer.remove("dormouse.progress.v1");
    assert_eq!(missing(&fewer), ["dormouse.progress.v1"]);
}

#[test]
fn a_committed_sample_means_what_it_meant() {
    // A new field gets its default when old bytes are read.
    let lines = fixtures(".json");
    for sample in samples() {
        let Body::Event(event) = &sample.envelope.body else {
            continue;
        };
        let line = lines.iter().find(|(name, _)| name == event.type_name());
        let (_, line) = line.expect("has a fixture");
        let (_, committed) = Recorded::from_json(line.trim_end()).expect("decodes");
        assert_eq!(committed, sample);
    }
}

#[test]
fn a_sample_without_a_required_field_is_refused() {
    let line = fixtures(".json")
        .into_iter()
        .find(|(name, _)| name == "dormouse.job.released.v1")
        .map(|(_, line)| line)
        .expect("has a fixture");
    let broken = line.replace("\"job\":", "\"jobs\":");
    let error = Recorded::from_json(broken.trim_end()).expect_err("a field is missing");
    assert!(error.to_string().contains("job"), "{error}");
}
