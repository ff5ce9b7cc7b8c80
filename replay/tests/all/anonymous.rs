//! The tests mark every text of every event, with all possible fields, and search the anonymous slice
//! for the mark.

use std::path::Path;
use std::sync::Arc;

use dormouse_messages::{Event, Recorded};
use dormouse_replay::history::anonymise::{Anonymiser, Seen};
use serde_json::{Map, Value, json};

const MARK: &str = "zqx";
const MARKED: [&str; 9] = [
    "zqx said so",
    "zqx",
    "zqx/zqx",
    "zqx/zqx/1/0",
    "zqx=zqx",
    "zqx_milli",
    "/zqx",
    "file:///zqx",
    "https://zqx.example.org/zqx",
];

fn samples() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../messages/tests/fixtures");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .expect("the samples")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|it| it == "json"))
        .collect();
    paths.sort();
    let read = |path| std::fs::read_to_string(path).expect("a sample");
    let lines = paths.iter().map(|path| serde_json::from_str(&read(path)));
    lines.map(|line| line.expect("JSON")).collect()
}

fn decoded(line: &Value) -> Option<Recorded> {
    let (_, recorded) = Recorded::from_json(&line.to_string()).ok()?;
    recorded.event().is_some().then_some(recorded)
}

fn value(schema: &Value, root: &Value, depth: usize) -> Value {
    if let Some(name) = schema["$ref"].as_str().and_then(|it| it.rsplit('/').next()) {
        return value(&root["$defs"][name], root, depth);
    }
    for part in ["oneOf", "anyOf", "allOf"] {
        if let Some(schema) = schema[part].as_array().and_then(|it| it.first()) {
            return value(schema, root, depth);
        }
    }
    let word = schema["enum"].as_array().and_then(|it| it.first());
    if let Some(word) = word.or(schema.get("const")) {
        return word.clone();
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds[0].as_str(),
        kind => kind.as_str(),
    };
    match kind {
        Some("string") => json!(MARKED[0]),
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(true),
        Some("array") if depth > 0 => json!([value(&schema["items"], root, depth - 1)]),
        Some("array") => json!([]),
        Some("object") if depth > 0 => {
            let properties = schema["properties"].as_object();
            let mut fields: Map<String, Value> = properties
                .into_iter()
                .flatten()
                .map(|(name, schema)| (name.clone(), value(schema, root, depth - 1)))
                .collect();
            if let Some(schema) = schema
                .get("additionalProperties")
                .filter(|it| it.is_object())
            {
                fields.insert(MARK.to_owned(), value(schema, root, depth - 1));
            }
            Value::Object(fields)
        }
        _ => json!({}),
    }
}

fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::String(_) => found.push(at.to_owned()),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                places(item, &format!("{at}/{index}"), found);
            }
        }
        Value::Object(fields) => {
            for (name, item) in fields {
                places(item, &format!("{at}/{}", name.replace('/', "~1")), found);
            }
        }
        _ => {}
    }
}

fn complete(line: &mut Value, at: &str, schema: &Value, root: &Value) {
    if let Some(name) = schema["$ref"].as_str().and_then(|it| it.rsplit('/').next()) {
        return complete(line, at, &root["$defs"][name], root);
    }
    for part in ["oneOf", "anyOf", "allOf"] {
        for schema in schema[part].as_array().into_iter().flatten() {
            complete(line, at, schema, root);
        }
    }
    let count = line
        .pointer(at)
        .and_then(Value::as_array)
        .map_or(0, Vec::len);
    for index in 0..count {
        complete(line, &format!("{at}/{index}"), &schema["items"], root);
    }
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let place = format!("{at}/{name}");
        let is_absent = line.pointer(&place).is_none_or(Value::is_null);
        if is_absent && line.pointer(at).is_some_and(Value::is_object) {
            for depth in [4, 2, 1] {
                let mut more = line.clone();
                more.pointer_mut(at).expect("it is there")[name] = value(schema, root, depth);
                mark(&mut more, &place);
                if decoded(&more).is_some() {
                    *line = more;
                    break;
                }
            }
        }
        complete(line, &place, schema, root);
    }
}

fn mark(line: &mut Value, below: &str) {
    let mut found = Vec::new();
    places(
        line.pointer(below).unwrap_or(&Value::Null),
        below,
        &mut found,
    );
    for place in found {
        for marked in MARKED {
            let mut more = line.clone();
            *more.pointer_mut(&place).expect("it is there") = json!(marked);
            if decoded(&more).is_some() {
                *line = more;
                break;
            }
        }
    }
}

#[test]
fn no_text_of_any_event_is_told_again() {
    let mut marked = 0;
    for mut line in samples() {
        let of = line["type"].as_str().expect("a type").to_owned();
        let schemas = Event::schemas().into_iter();
        let mut schemas = schemas.filter(|(name, _)| of == *name);
        let schema = schemas.next().expect("a schema").1.to_value();
        complete(&mut line, "/data", &schema, &schema);
        mark(&mut line, "/data");
        let recorded = decoded(&line).expect("it can be read");
        let text = recorded.to_json("a log").expect("JSON");
        marked += text.matches(MARK).count();
        let mut seen = Seen::default();
        seen.read(&recorded);
        let renamed = Anonymiser::new(seen).read(&recorded);
        let renamed = renamed.unwrap_or_else(|error| panic!("{of}: {error}: {text}"));
        let Some(renamed) = renamed else { continue };
        let told = renamed.to_json("anonymous").expect("JSON");
        assert!(!told.contains(MARK), "{of}\n{text}\n{told}");
    }
    println!("{marked} texts were marked");
    assert!(marked > 200, "{marked}");
}

/// A single chosen word is none of Dormouse's own, however short.
#[test]
fn what_one_word_says_goes_too() {
    let line = |of: &str, data: Value| {
        let mut lines = samples().into_iter();
        let mut line = lines.find(|it| it["type"] == of).expect("a sample");
        let fields = data.as_object().expect("fields").clone();
        let into = line["data"].as_object_mut().expect("fields");
        into.extend(fields);
        Arc::new(decoded(&line).expect("it can be read"))
    };
    for recorded in [
        line(
            "dormouse.container.exec_started.v1",
            json!({"command": ["zqx"]}),
        ),
        line("dormouse.node.fenced.v1", json!({"reason": "zqx"})),
        line(
            "dormouse.tenant.granted.v1",
            json!({"priority_classes": ["zqx"]}),
        ),
        line(
            "dormouse.node.gpu_reconciled.v1",
            json!({"strangers": [{"pid": 7, "program": "zqx"}]}),
        ),
    ] {
        let mut seen = Seen::default();
        seen.read(&recorded);
        let renamed = Anonymiser::new(seen).read(&recorded).expect("renamed");
        let told = renamed.expect("it stays").to_json("").expect("JSON");
        assert!(!told.contains(MARK), "{told}");
    }
}
