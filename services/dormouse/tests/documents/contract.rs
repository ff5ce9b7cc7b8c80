//! `docs/reference/events.md` lists all events and schemas; other reference pages name every field, writer
//! and query.

use std::fmt::Write as _;

use dormouse_messages::{Event, Writer};
use dormouse_projections::queries;
use serde_json::Value;

use super::types::{Parts, cell, fields};
use super::{assert_generated, read};

fn schema(name: &str) -> Value {
    let text = read(&format!("messages/schema/{name}.json"));
    serde_json::from_str(&text).expect("a schema is JSON")
}

/// All subjects are keyed by writer, even of job events.
fn place(writer: Writer, name: &str) -> String {
    let key = if writer == Writer::Node {
        "<node>"
    } else {
        "0"
    };
    format!("`dormouse.log.{writer}.{key}.{name}`")
}

fn event(type_name: &str, writers: &[Writer], parts: &mut Parts) -> String {
    let schema = schema(type_name);
    let name = type_name.trim_start_matches("dormouse.");
    let (name, version) = name.rsplit_once(".v").expect("a version");
    let places: Vec<String> = writers.iter().map(|writer| place(*writer, name)).collect();
    let observed = writers.iter().any(|writer| writer.is_outside());
    let decision = match (schema["properties"]["basis"].is_object(), observed) {
        (true, false) => " A decision, with its [basis](#basis).",
        (true, true) => " With a [basis](#basis) where it was decided.",
        (false, _) => "",
    };
    format!(
        "### {name}\n\n{}{decision} Version {version}, on {}.\n\n{}\n",
        cell(&schema),
        places.join(" or "),
        fields(&schema, &schema["$defs"], parts)
    )
}

#[test]
fn the_reference_of_events_is_the_registry() {
    let table = Event::writer_table();
    let mut parts = Parts::new();
    let basis = schema("dormouse.allocation.decided.v1");
    parts.insert("Basis".to_owned(), basis["$defs"]["Basis"].clone());
    let mut text = String::new();
    for writer in Writer::ALL {
        let _ = writeln!(text, "## Written by {writer}\n");
        for (name, writers) in table.iter().filter(|(_, w)| w.first() == Some(&writer)) {
            text.push_str(&event(name, writers, &mut parts));
        }
    }
    text.push_str("## Parts\n\nTypes that several fields have.\n\n");
    fields(&parts["Basis"].clone(), &basis["$defs"], &mut parts);
    for (name, part) in &parts.clone() {
        // Any schema that defines a shared type will do.
        let definitions = Value::Object(parts.clone().into_iter().collect());
        let all = table.iter().map(|(name, _)| schema(name)["$defs"].clone());
        let own = all.into_iter().find(|all| all[name.as_str()].is_object());
        let own = own.unwrap_or(definitions);
        let _ = write!(
            text,
            "### {name}\n\n{}\n\n{}\n",
            cell(part),
            fields(part, &own, &mut parts)
        );
    }
    assert_generated("docs/reference/events.md", "events", &text);
}

fn lacks<'a>(page: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let said = |name: &str| {
        let marks = [
            format!("`{name}`"),
            format!("`{name}."),
            format!(".{name}`"),
        ];
        marks.iter().any(|mark| page.contains(mark.as_str()))
    };
    names.filter(|name| !said(name)).collect()
}

fn properties(schema: &Value) -> Vec<&str> {
    let fields = schema["properties"].as_object().expect("fields");
    fields.keys().map(String::as_str).collect()
}

#[test]
fn every_field_of_a_document_is_described() {
    let (job, policy) = (schema("job-document"), schema("policy"));
    let documents = read("docs/reference/documents.md");
    let policies = read("docs/policies-and-queues.md");
    assert_eq!(
        lacks(&documents, properties(&job).into_iter()),
        Vec::<&str>::new()
    );
    for part in ["Command", "Containers", "Checkpoint"] {
        let part = &job["$defs"][part];
        assert_eq!(
            lacks(&documents, properties(part).into_iter()),
            Vec::<&str>::new()
        );
    }
    assert_eq!(
        lacks(&policies, properties(&policy).into_iter()),
        Vec::<&str>::new()
    );
    assert_eq!(
        lacks("`a` `b.c` `x.d`", ["a", "b", "c", "d", "e"].into_iter()),
        ["e"]
    );
}

#[test]
fn every_writer_and_query_is_described() {
    let subjects = read("docs/reference/subjects.md");
    assert_eq!(
        lacks(&subjects, queries::NAMES.into_iter()),
        Vec::<&str>::new()
    );
    for writer in Writer::ALL {
        assert!(subjects.contains(writer.as_str()), "{writer}");
    }
}
