//! The published schemas match the types.
//!
//! `schema/<type>.json` describes an event's data, `job-document.json`, `revise-document.json`,
//! `measured-document.json` and `policy.json` the documents, `asyncapi.yaml` the subjects and their senders.
//! A difference fails; `UPDATE_SCHEMAS=1 cargo test` regenerates the files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::asyncapi;
use crate::common::{LOG, events, samples};
use boon::{Compiler, SchemaIndex, Schemas};
use dormouse_messages::events::{JobReleased, Turn};
use dormouse_messages::job::JobDocument;
use dormouse_messages::policy::{Policy, Queue};
use dormouse_messages::{Event, MeasuredDocument, ReviseDocument};
use serde_json::{Value, json};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("schema")
}

fn pretty(schema: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(schema).expect("a schema is JSON") + "\n"
}

/// Returns every published file with its text.
pub fn documents() -> BTreeMap<String, String> {
    let schemas = Event::schemas().into_iter();
    let mut documents: BTreeMap<String, String> = schemas
        .map(|(name, schema)| (format!("{name}.json"), pretty(&schema)))
        .collect();
    let job = schemars::schema_for!(JobDocument);
    let policy = schemars::schema_for!(Policy);
    documents.insert("job-document.json".to_owned(), pretty(&job));
    let revise = schemars::schema_for!(ReviseDocument);
    documents.insert("revise-document.json".to_owned(), pretty(&revise));
    let measured = schemars::schema_for!(MeasuredDocument);
    documents.insert("measured-document.json".to_owned(), pretty(&measured));
    documents.insert("policy.json".to_owned(), pretty(&policy));
    documents.insert("asyncapi.yaml".to_owned(), asyncapi::document());
    documents
}

/// Returns the differences between the committed files and `expected`.
fn drift(expected: &BTreeMap<String, String>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, text) in expected {
        match std::fs::read_to_string(folder().join(name)) {
            Ok(committed) if committed == *text => {}
            Ok(_) => wrong.push(format!("{name} differs")),
            Err(_) => wrong.push(format!("{name} is missing")),
        }
    }
    let entries = std::fs::read_dir(folder()).expect("the folder is there");
    for entry in entries {
        let name = entry.expect("an entry").file_name();
        let name = name.to_string_lossy();
        if !expected.contains_key(&*name) {
            wrong.push(format!("{name} belongs to no type"));
        }
    }
    wrong
}

#[test]
fn the_published_schemas_are_the_types() {
    let mut documents = documents();
    if std::env::var_os("UPDATE_SCHEMAS").is_some() {
        for (name, text) in &documents {
            std::fs::write(folder().join(name), text).expect("the schema is written");
        }
    }
    let wrong = drift(&documents);
    assert!(
        wrong.is_empty(),
        "run UPDATE_SCHEMAS=1 cargo test -p dormouse-messages --test all schema: {wrong:?}"
    );
    // The check itself can fail, in each of its ways.
    documents.insert("new.v1.json".to_owned(), String::new());
    documents.insert("policy.json".to_owned(), "{}".to_owned());
    documents.remove("dormouse.progress.v1.json");
    let wrong = drift(&documents);
    assert_eq!(
        wrong,
        [
            "new.v1.json is missing",
            "policy.json differs",
            "dormouse.progress.v1.json belongs to no type"
        ]
    );
}

/// A compiled schema.
struct Validator(Schemas, SchemaIndex);

impl Validator {
    fn check(&self, value: &Value) -> Result<(), String> {
        let checked = self.0.validate(value, self.1);
        checked.map_err(|error| format!("{error:#}"))
    }

    fn is_valid(&self, value: &Value) -> bool {
        self.check(value).is_ok()
    }
}

fn validator(schema: &Value) -> Validator {
    const NAME: &str = "https://dormouse.invalid/schema.json";
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    compiler
        .add_resource(NAME, schema.clone())
        .expect("a document");
    let index = compiler.compile(NAME, &mut schemas);
    Validator(schemas, index.expect("a valid JSON Schema"))
}

#[test]
fn every_sample_is_valid_by_its_schema() {
    let schemas: BTreeMap<&str, Value> = Event::schemas()
        .into_iter()
        .map(|(name, schema)| (name, schema.to_value()))
        .collect();
    for sample in samples() {
        let name = sample.event().map(Event::type_name).expect("known");
        let validator = validator(&schemas[name]);
        let line = sample.to_json(LOG).expect("encodes");
        let mut event: Value = serde_json::from_str(&line).expect("JSON");
        let data = event["data"].take();
        assert_eq!(validator.check(&data), Ok(()), "{name}: {data}");
        assert!(!validator.is_valid(&json!({})), "{name} requires something");
    }
}

/// The older committed samples lack these fields.
#[test]
fn a_release_with_its_turn_reads_back_and_is_valid() {
    let released = JobReleased {
        job: "ads/lr".parse().expect("a job id"),
        turn: Some(Turn {
            queue: Queue::BalancedWait,
            share: 0.25,
            demand_share: 0.5,
            weight: 3,
            factor: Some(1250),
            queued: 7,
            waited_ms: 1_500,
        }),
        passed_over: vec!["vision/wide".parse().expect("a job id")],
        basis: None,
    };
    let value = serde_json::to_value(&released).expect("JSON");
    assert_eq!(value["turn"]["queue"], json!("balanced-wait"));
    let validator = validator(&schemars::schema_for!(JobReleased).to_value());
    assert!(validator.is_valid(&value), "{value}");
    let back: JobReleased = serde_json::from_value(value).expect("reads back");
    assert_eq!(back, released);
}

#[test]
fn job_documents_are_valid_or_not_by_their_schema() {
    let validator = validator(&schemars::schema_for!(JobDocument).to_value());
    let document = json!({
        "name": "lr-criteo", "tenant": "ads", "kind": "training", "executor": "mxnet",
        "image": "dormouse/empty",
        "command": {"start": ["python3", "train.py"], "resume": ["python3", "train.py", "--resume"]},
        "env": {"BATCH": "512", "TOKEN": {"from": {"file": "/run/token"}}},
        "demand": {"cpu": 2, "gpu": 0.25, "memory": "8Gi"},
        "weight": 1, "containers": {"min": 1, "max": 32},
        "checkpoint": {"mode": "exit", "signal": "SIGTERM", "grace_s": 60},
        "success": "all", "retries": 2,
        "mounts": [{"source": "/data", "target": "/data", "read_only": true}],
    });
    // The schema and the parser agree.
    let parses = |document: &Value| serde_json::from_value::<JobDocument>(document.clone()).is_ok();
    assert!(validator.is_valid(&document) && parses(&document));
    let mut wrong = document.clone();
    wrong["gpus"] = json!(1);
    assert!(
        !validator.is_valid(&wrong) && !parses(&wrong),
        "an unknown field"
    );
    let mut wrong = document.clone();
    wrong["executor"] = json!("spark");
    assert!(
        !validator.is_valid(&wrong) && !parses(&wrong),
        "an unknown executor"
    );
    let mut wrong = document;
    wrong["demand"] = json!({"cpu": [2]});
    assert!(
        !validator.is_valid(&wrong) && !parses(&wrong),
        "no quantity"
    );
}

#[test]
fn every_type_is_in_the_asyncapi_document() {
    let document: Value = serde_norway::from_str(&asyncapi::document()).expect("YAML");
    for event in events() {
        let name = event.type_name();
        let message = &document["components"]["messages"][name];
        let file = &message["payload"]["schema"]["allOf"][1]["properties"]["data"]["$ref"];
        assert_eq!(*file, json!(format!("./{name}.json")));
        assert_eq!(message["name"], json!(name));
    }
    assert_local_references(&document, &document);
}

/// Checks that every `#/…` leads somewhere.
fn assert_local_references(document: &Value, part: &Value) {
    match part {
        Value::Object(fields) => {
            if let Some(Value::String(target)) = fields.get("$ref") {
                match target.strip_prefix('#') {
                    Some(pointer) => assert!(document.pointer(pointer).is_some(), "{target}"),
                    None => assert!(folder().join(target).exists(), "{target}"),
                }
            }
            fields
                .values()
                .for_each(|field| assert_local_references(document, field));
        }
        Value::Array(items) => items
            .iter()
            .for_each(|item| assert_local_references(document, item)),
        _ => {}
    }
}
