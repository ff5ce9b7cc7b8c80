//! Decodes a message's document, or refuses it with the place of the problem and the remedy.

use dormouse_messages::events::{RawEncoding, SubmissionReceived};
use dormouse_messages::ids::IdError;
use dormouse_messages::subject::MEASURED;
use dormouse_messages::{JobId, TenantId, sanitize, suggest};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::refusal::Refusal;

const MAPS: [(&str, &str); 9] = [
    ("command", "{start: [python3, train.py]}"),
    ("containers", "{min: 1, max: 4}"),
    ("demand", "{cpu: 1, memory: 1Gi}"),
    ("checkpoint", "{mode: exit, grace_s: 60}"),
    ("tasks", "{count: 100, concurrency: 8}"),
    ("env", "{BATCH: 512}"),
    ("warning", "{signal: SIGUSR1, before_s: 60}"),
    ("service", "{objective: {latency_ms: 128, percentile: 99}}"),
    ("roles", "{ps: {count: 1, demand: {cpu: 1, memory: 2Gi}}}"),
];

/// Returns a submission's document as JSON; `None` if unreadable.
#[must_use]
pub fn document(received: &SubmissionReceived) -> Option<Value> {
    decode(received).ok()
}

/// Decodes a payload of any verb.
pub fn decode<T: DeserializeOwned>(received: &SubmissionReceived) -> Result<T, Refusal> {
    let Some(bytes) = payload(received) else {
        return Err(Refusal::new(
            "too_large",
            format!(
                "the document has {} bytes; the most is {}: {}",
                received.bytes,
                SubmissionReceived::limit_bytes(&received.verb),
                match received.verb.as_str() {
                    MEASURED => "give fewer bounds",
                    _ => "move data into files and name them",
                }
            ),
        ));
    };
    let json = received.content_type.contains("json");
    let value: Option<Value> = if json {
        serde_json::from_slice(&bytes).ok()
    } else {
        rmp_serde::from_slice(&bytes).ok()
    };
    if let Some(refusal) = value.as_ref().and_then(list_for_a_map) {
        return Err(refusal);
    }
    if json {
        decode_json(&bytes)
    } else {
        decode_msgpack(&bytes, value.is_some())
    }
}

/// Returns the payload; `None` if cut off or malformed.
pub fn payload(received: &SubmissionReceived) -> Option<Vec<u8>> {
    let bytes = match received.raw_encoding {
        RawEncoding::Utf8 => received.raw.clone().into_bytes(),
        RawEncoding::Hex => unhex(&received.raw)?,
    };
    (bytes.len() as u64 == received.bytes).then_some(bytes)
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

fn decode_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let mut document = serde_json::Deserializer::from_slice(bytes);
    let decoded: T = serde_path_to_error::deserialize(&mut document).map_err(|error| {
        let place = error.path().to_string();
        let error = error.into_inner();
        let text = error.to_string();
        if !error.is_data() {
            return unreadable("JSON", &text);
        }
        // Positions refer to bytes that no person wrote.
        let text = text
            .rsplit_once(" at line ")
            .map_or(&*text, |(text, _)| text);
        wrong_shape(&place, text)
    })?;
    match document.end() {
        Ok(()) => Ok(decoded),
        Err(error) => Err(unreadable("JSON", &error.to_string())),
    }
}

fn decode_msgpack<T: DeserializeOwned>(bytes: &[u8], readable: bool) -> Result<T, Refusal> {
    let mut document = rmp_serde::Deserializer::from_read_ref(bytes);
    serde_path_to_error::deserialize(&mut document).map_err(|error| {
        let place = error.path().to_string();
        let text = error.into_inner().to_string();
        if readable {
            wrong_shape(&place, &text)
        } else {
            unreadable("MessagePack", &text)
        }
    })
}

/// A list's values would bind by position.
fn list_for_a_map(document: &Value) -> Option<Refusal> {
    let wrong = |place: &str, example: &str| {
        let reason = format!("{place} is a list; it must be a map such as {example}");
        Some(Refusal::new("malformed", reason))
    };
    if document.is_array() {
        return wrong(
            "the document",
            "{command: {start: [python3, train.py]}, demand: {cpu: 1, memory: 1Gi}}",
        );
    }
    let listed = |field: &str| document.get(field).is_some_and(Value::is_array);
    if let Some((field, example)) = MAPS.iter().find(|(field, _)| listed(field)) {
        return wrong(field, example);
    }
    let mounts = document.get("mounts")?.as_array()?;
    if mounts.iter().any(Value::is_array) {
        wrong("an entry of mounts", "{source: /data, target: /data}")
    } else {
        None
    }
}

fn unreadable(format: &str, error: &str) -> Refusal {
    Refusal::new(
        "malformed",
        format!("not a valid {format} document: {error}"),
    )
}

fn wrong_shape(place: &str, error: &str) -> Refusal {
    let error = &sanitize::in_words(error);
    let quoted = |prefix: &str| {
        let rest = error.split_once(prefix)?.1;
        rest.split_once('`').map(|(name, _)| name.to_owned())
    };
    let unknown = quoted("unknown field `");
    let error = match place {
        "." => error.to_owned(),
        place if unknown.as_deref() == Some(place) => error.to_owned(),
        place => format!("{place}: {error}"),
    };
    let meant = suggest::of_error(&error);
    if unknown.is_some() {
        let meant = meant.map_or_else(String::new, |meant| format!("did you mean {meant}? "));
        let error = match error.split_once(", expected") {
            // Before the long list of alternatives.
            Some((what, rest)) if !meant.is_empty() => {
                format!("{what}; {meant}Expected{rest}")
            }
            _ => error,
        };
        return Refusal::new("unknown_field", format!("{error}; correct or remove it"));
    }
    if let Some(variant) = quoted("unknown variant `") {
        let meant = suggest::hint(meant.as_deref());
        return Refusal::new(
            "unknown_value",
            format!("{error} (found `{variant}`){meant}"),
        );
    }
    if let Some(field) = quoted("missing field `") {
        let example = MAPS.iter().find(|(name, _)| *name == place);
        let example = example.map_or_else(String::new, |(name, example)| {
            format!(", such as {name}: {example}")
        });
        return Refusal::new("missing_field", format!("{error}; add `{field}`{example}"));
    }
    let error = match LISTS.iter().find(|(name, _)| place.ends_with(name)) {
        Some((_, example)) => error.replace(
            "expected a list",
            &format!("expected a list such as {example}"),
        ),
        None => error,
    };
    let error = match seconds(place, &error) {
        Some(seconds) => format!("{error}; it is in seconds: {seconds}"),
        None => error,
    };
    let quotes = unquoted(&error).map_or_else(String::new, |word| {
        format!("; YAML reads it as text when it is quoted: \"{word}\"")
    });
    Refusal::new("malformed", format!("{error}{quotes}"))
}

const LISTS: [(&str, &str); 4] = [
    ("start", "[python3, train.py]"),
    ("resume", "[python3, train.py]"),
    ("depends_on", "[prepare, lab/download]"),
    ("tolerations", "[spot]"),
];

/// Reads a time such as `4h`.
fn seconds(place: &str, error: &str) -> Option<u64> {
    let written = error
        .split_once("string \"")
        .filter(|_| place.ends_with("_s"))?;
    let (written, _) = written.1.split_once('"')?;
    let (number, unit) = written.split_at(written.find(|c: char| !c.is_ascii_digit())?);
    let each = match unit.trim() {
        "s" | "sec" | "seconds" => 1,
        "m" | "min" | "minutes" => 60,
        "h" | "hours" => 3600,
        "d" | "days" => 86_400,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(each)
}

/// Returns the unquoted value: `8` in `[sleep, 8]`.
fn unquoted(error: &str) -> Option<&str> {
    if !error.contains("expected a string") {
        return None;
    }
    let kinds = ["integer `", "floating point `", "boolean `"];
    let rest = kinds.iter().find_map(|kind| error.split_once(kind));
    Some(rest?.1.split_once('`')?.0)
}

/// Strips the tenant's prefix.
pub(crate) fn full_name(tenant: &TenantId, text: &str) -> Result<JobId, IdError> {
    let name = text.strip_prefix(&format!("{tenant}/")).unwrap_or(text);
    JobId::new(tenant, name)
}

#[cfg(test)]
mod tests {
    use dormouse_messages::job::JobDocument;
    use dormouse_messages::{Event, Timestamp};

    use super::*;
    use crate::intake;

    /// Returns the refusals of a JSON text and of the equal MessagePack.
    fn reasons(json: &str) -> Vec<String> {
        let value: Option<serde_json::Value> = serde_json::from_str(json).ok();
        let packed = value.map(|value| rmp_serde::to_vec_named(&value).expect("encodes"));
        let payloads = [Some(json.as_bytes().to_vec()), packed];
        let reason = |payload: Vec<u8>| {
            let Event::SubmissionReceived(received) =
                intake::received(1, Timestamp::default(), "ads", "submit", None, &payload)
            else {
                panic!("a submission");
            };
            let decoded: Result<JobDocument, Refusal> = decode(&received);
            decoded.expect_err("wrong").reason
        };
        payloads.into_iter().flatten().map(reason).collect()
    }

    #[test]
    fn a_refusal_names_the_place_in_the_document() {
        let all = |json: &str, beginning: &str, place: &str| {
            for reason in reasons(json) {
                assert!(reason.starts_with(beginning), "{reason}");
                assert!(reason.contains(place), "{reason}");
                assert!(!reason.contains("column"), "{reason}");
            }
        };
        all(
            r#"{"colour": 1}"#,
            "unknown field `colour`, expected",
            "remove it",
        );
        all(
            r#"{"containers": {"mim": 1}}"#,
            "containers.mim: unknown field `mim`",
            "`min`",
        );
        all(
            r#"{"containers": {"min": "four at line 3"}}"#,
            "containers.min: ",
            "expected a whole number",
        );
        all(
            r#"{"command": {"start": ["sh", 4]}}"#,
            "command.start[1]: ",
            "expected a string",
        );
        all(
            r#"{"containers": 3}"#,
            "containers: ",
            "expected a map such as {min: 1, max: 4}",
        );
        all(
            r#"{"weight": 1.5}"#,
            "weight: invalid type: floating point `1.5`, expected a whole number",
            "0 or more",
        );
        all(
            r#"{"roles": {"ps": {"count": 1}}}"#,
            "roles.ps: missing field `demand`",
            "add `demand`",
        );
    }

    #[test]
    fn a_refusal_says_what_may_be_meant() {
        for (json, meant) in [
            (r#"{"demnd": {"cpu": 1}}"#, "did you mean demand?"),
            (r#"{"gpus": 2}"#, "did you mean demand: {gpu: 1}?"),
            (
                r#"{"replicas": 2}"#,
                "did you mean containers: {min: 1, max: 4}?",
            ),
            (
                r#"{"checkpoint": {"signl": "SIGHUP"}}"#,
                "did you mean signal?",
            ),
            (r#"{"kind": "trainning"}"#, "did you mean training?"),
            (
                r#"{"command": {"resume": ["sleep", "8"]}}"#,
                "add `start`, such as command: {start: [python3, train.py]}",
            ),
            (r#"{"command": {"start": ["sleep", 8]}}"#, "quoted: \"8\""),
            (
                r#"{"command": {"start": "train"}}"#,
                "a list such as [python3, train.py]",
            ),
            (
                r#"{"depends_on": "a"}"#,
                "a list such as [prepare, lab/download]",
            ),
            (r#"{"time_limit_s": "4h"}"#, "it is in seconds: 14400"),
            (
                r#"{"command": {"start": ["echo", true]}}"#,
                "quoted: \"true\"",
            ),
        ] {
            for reason in reasons(json) {
                assert!(reason.contains(meant), "{json}: {reason}");
            }
        }
        for reason in reasons(r#"{"colour": 1}"#) {
            assert!(!reason.contains("did you mean"), "{reason}");
        }
    }

    #[test]
    fn a_list_in_place_of_a_map_is_refused_by_name() {
        for (json, place) in [
            ("[1, 2]", "the document is a list"),
            (r#"{"containers": [1, 4]}"#, "containers is a list"),
            (r#"{"command": ["sh"]}"#, "command is a list"),
            (
                r#"{"mounts": [["/a", "/b"]]}"#,
                "an entry of mounts is a list",
            ),
        ] {
            for reason in reasons(json) {
                assert!(reason.starts_with(place), "{reason}");
                assert!(reason.contains("must be a map such as {"), "{reason}");
            }
        }
    }

    #[test]
    fn what_a_refusal_repeats_is_bounded_and_printable() {
        let name = "\\u001b[2J".repeat(10_000);
        for json in [
            format!(r#"{{"weight": "{name}"}}"#),
            format!(r#"{{"{name}": 1}}"#),
            format!(r#"{{"executor": "{name}"}}"#),
        ] {
            for reason in reasons(&json) {
                assert!(reason.chars().count() < 2_000, "{}", reason.len());
                assert!(!reason.contains(char::is_control), "{reason:?}");
            }
        }
    }

    #[test]
    fn what_is_not_json_names_the_position() {
        let twice =
            r#"{"executor": "plain", "command": {"start": ["true"]}, "demand": {"cpu": 1}} {}"#;
        for json in [r#"{"name": "#, twice, "[", r#"{"name" 4}"#] {
            for reason in reasons(json) {
                assert!(reason.contains("at line 1 column"), "{reason}");
            }
        }
    }
}
