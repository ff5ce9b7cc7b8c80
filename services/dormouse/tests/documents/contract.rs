//! `docs/reference/events.md` lists all events and schemas; other reference pages name every field, writer
//! and query.

use dormouse_messages::{Event, Writer};
use dormouse_projections::queries;
use serde_json::Value;

use super::types::{Parts, Row, cell, common, listed, rows};
use super::{assert_generated, read};

fn schema(name: &str) -> Value {
    let text = read(&format!("messages/schema/{name}.json"));
    serde_json::from_str(&text).expect("a schema is JSON")
}

struct Entry {
    head: String,
    rows: Vec<Row>,
}

impl Entry {
    fn text(&self, common: &[Row]) -> String {
        let fields = listed(&self.rows, common, "[Common](#common-fields):");
        format!("{}\n\n{fields}\n", self.head)
    }
}

fn event(type_name: &str, writers: &[Writer], parts: &mut Parts) -> Entry {
    let schema = schema(type_name);
    let name = type_name.trim_start_matches("dormouse.");
    let (name, version) = name.rsplit_once(".v").expect("a version");
    let others: Vec<String> = writers.iter().skip(1).map(ToString::to_string).collect();
    let others = if others.is_empty() {
        String::new()
    } else {
        format!(" Also written by {}.", others.join(", "))
    };
    let version = if version == "1" {
        String::new()
    } else {
        format!(" Version {version}.")
    };
    let observed = writers.iter().any(|writer| writer.is_outside());
    let decision = match (schema["properties"]["basis"].is_object(), observed) {
        (true, false) => " A decision.",
        (true, true) => " A decision, unless it was observed.",
        (false, _) => "",
    };
    Entry {
        head: format!("### {name}\n\n{}{decision}{others}{version}", cell(&schema)),
        rows: rows(&schema, &schema["$defs"], parts),
    }
}

fn part(name: &str, value: &Value, parts: &mut Parts) -> Entry {
    // Any schema that defines a shared type will do.
    let definitions = Value::Object(parts.clone().into_iter().collect());
    let mut all = Event::writer_table()
        .into_iter()
        .map(|(name, _)| schema(name)["$defs"].clone());
    let own = all.find(|all| all[name].is_object());
    Entry {
        head: format!("### {name}\n\n{}", cell(value)),
        rows: rows(value, &own.unwrap_or(definitions), parts),
    }
}

#[test]
fn the_reference_of_events_is_the_registry() {
    let table = Event::writer_table();
    let mut parts = Parts::new();
    let basis = schema("dormouse.allocation.decided.v1");
    parts.insert("Basis".to_owned(), basis["$defs"]["Basis"].clone());
    let mut sections = Vec::new();
    for writer in Writer::ALL {
        let own = table.iter().filter(|(_, w)| w.first() == Some(&writer));
        let entries: Vec<Entry> = own
            .map(|(name, writers)| event(name, writers, &mut parts))
            .collect();
        sections.push((format!("## Written by {writer}\n\n"), entries));
    }
    rows(&parts["Basis"].clone(), &basis["$defs"], &mut parts);
    let named = parts.clone().into_iter();
    let entries = named
        .map(|(name, value)| part(&name, &value, &mut parts))
        .collect();
    sections.push(("## Parts\n\n".to_owned(), entries));
    let all = sections.iter().flat_map(|(_, entries)| entries);
    let common = common(all.flat_map(|entry| &entry.rows), 2);
    let mut text = String::from("## Common fields\n\nThe events below only name these.\n\n");
    text.extend(common.iter().map(|(_, item)| item.as_str()));
    text.push('\n');
    for (head, entries) in &sections {
        text.push_str(head);
        entries
            .iter()
            .for_each(|entry| text.push_str(&entry.text(&common)));
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
    let policies = read("docs/policies.md");
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
