//! Renames one event. An allow-list passes numbers, times, enumerated words and renamed names. Every
//! other text is left out, also in new fields.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_admission::{SIGNALS, received};
use dormouse_messages::roles::ROLES;
use dormouse_messages::subject::VERBS;
use dormouse_messages::{CodecError, Envelope, Event, Recorded, Timestamp};
use serde_json::{Map, Value, json};

use super::names::Names;
use super::vocabulary::Vocabulary;

const PROGRAM: &str = "program";

/// Replaces a free text.
pub const LEFT_OUT: &str = "left out";

/// Renames events in order.
#[derive(Debug)]
pub struct Renamer {
    vocabulary: &'static Vocabulary,
    names: Names,
    documents: BTreeMap<u64, Value>,
    uris: BTreeMap<String, String>,
}

impl Renamer {
    #[must_use]
    pub fn new(names: Names, documents: BTreeMap<u64, Value>) -> Self {
        Self {
            vocabulary: Vocabulary::of_events(),
            names,
            documents,
            uris: BTreeMap::new(),
        }
    }

    /// Renames an event; `None` if only the old names could reproduce the event.
    ///
    /// # Errors
    /// The event cannot be written or read.
    pub fn rename(&mut self, recorded: &Recorded) -> Result<Option<Recorded>, CodecError> {
        match recorded.event() {
            // Tokens and manifests are digests of the old names, keys name people, processes hosts, and
            // queues partitions and accounts.
            None
            | Some(
                Event::PlanAccepted(_)
                | Event::PlanMissed(_)
                | Event::KeyCreated(_)
                | Event::KeyRotated(_)
                | Event::KeyRevoked(_)
                | Event::LogArchived(_)
                | Event::LogTrimmed(_)
                | Event::LogFilled(_)
                | Event::SlurmQueueConfigured(_)
                | Event::SlurmQueueRemoved(_)
                | Event::SlurmRequested(_)
                | Event::SlurmSubmitted(_)
                | Event::SlurmRefused(_)
                | Event::SlurmEstimated(_)
                | Event::SlurmGranted(_)
                | Event::SlurmReleased(_)
                | Event::SlurmEnded(_)
                | Event::BuildJoined(_)
                | Event::BuildLeft(_)
                | Event::ClusterUpgraded(_),
            ) => return Ok(None),
            Some(_) => {}
        }
        let mut line: Value = serde_json::from_str(&recorded.to_json("anonymous")?)?;
        let source = line["source"].as_str().unwrap_or_default();
        line["source"] = json!(self.names.source(source, recorded.writer));
        line["subject"] = json!("");
        if let Some(fields) = line.as_object_mut() {
            fields.remove("traceparent");
        }
        let mut data = line["data"].take();
        self.value("", &mut data);
        line["data"] = data;
        let (_, renamed) = Recorded::from_json(&line.to_string())?;
        let Some(event) = renamed.event() else {
            return Ok(None);
        };
        let event = match event {
            Event::SubmissionReceived(event) => {
                let document = self.documents.get(&event.ingress_sequence).cloned();
                let mut document = document.unwrap_or_default();
                self.value("spec", &mut document);
                let payload = document.to_string();
                received(
                    event.ingress_sequence,
                    event.published_at,
                    &event.tenant,
                    &event.verb,
                    Some("application/json"),
                    payload.as_bytes(),
                )
            }
            other => other.clone(),
        };
        let (writer, time) = (renamed.writer, renamed.envelope.time);
        let id = format!("{writer}-{}", renamed.sequence);
        Ok(Some(Recorded {
            envelope: Envelope::new(id, writer, time, None, event),
            ..renamed
        }))
    }

    fn value(&mut self, field: &str, value: &mut Value) {
        match (field, &mut *value) {
            ("labels" | "taints" | "tolerations" | "constraints" | "priority_classes", _) => {
                self.words(value);
            }
            (
                "capacity" | "demand" | "quota" | "resources" | "hours" | "amounts",
                Value::Object(fields),
            ) => {
                self.resources(fields);
            }
            (_, Value::String(text)) => *text = self.text(field, text),
            (_, Value::Array(items)) => items.iter_mut().for_each(|it| self.value(field, it)),
            (_, Value::Object(fields)) => {
                if field == "spec" {
                    self.spec(fields);
                }
                self.fields(field, fields);
            }
            _ => {}
        }
    }

    /// Renames known fields and removes all others.
    fn fields(&mut self, of: &str, fields: &mut Map<String, Value>) {
        for left_out in ["env", "image", "secrets", "state_hash"] {
            fields.remove(left_out);
        }
        if fields.get("by").is_some_and(Value::is_object) {
            fields.remove("by");
        }
        fields.retain(|name, _| self.vocabulary.has(name) || ROLES.contains(&name.as_str()));
        for (name, value) in fields.iter_mut() {
            match (name.as_str(), &mut *value) {
                ("mounts" | "images", _) => *value = json!([]),
                ("metrics", Value::Object(_)) => *value = json!({}),
                ("start" | "resume" | "command", Value::Array(words)) if !words.is_empty() => {
                    *words = vec![json!(PROGRAM)];
                }
                ("requirements", _) => *value = json!(["package"]),
                // The field names a class, not the job.
                ("name", Value::String(class)) if of == "priority_class" => {
                    *class = self.names.word(class);
                }
                ("name", _) if of == "spec" => {}
                _ => self.value(name, value),
            }
        }
    }

    /// Renames labels, taints and classes. Decisions depend on them, so each keeps a distinct name.
    fn words(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.names.word(text),
            Value::Array(items) => items.iter_mut().for_each(|it| self.words(it)),
            Value::Object(fields) => {
                for (name, mut value) in std::mem::take(fields) {
                    match name.as_str() {
                        "spread" | "pack" | "prefer" | "not" => self.words(&mut value),
                        "exclusive" => {}
                        label => self.values(label, &mut value),
                    }
                    fields.insert(self.names.word(&name), value);
                }
            }
            _ => {}
        }
    }

    fn values(&self, label: &str, value: &mut Value) {
        match value {
            Value::String(text) if text.contains('*') => {
                *value = json!(self.names.matching(label, text));
            }
            Value::String(text) => *text = self.names.label(label, text),
            Value::Array(items) => {
                let mut all = BTreeSet::new();
                for item in items.iter() {
                    match item.as_str() {
                        Some(text) if text.contains('*') => {
                            all.extend(self.names.matching(label, text));
                        }
                        Some(text) => drop(all.insert(self.names.label(label, text))),
                        None => {}
                    }
                }
                *value = json!(all);
            }
            Value::Object(fields) => fields.values_mut().for_each(|it| self.values(label, it)),
            _ => {}
        }
    }

    fn resources(&self, fields: &mut Map<String, Value>) {
        for (name, value) in std::mem::take(fields) {
            if let Some(name) = self.names.resource(&name) {
                fields.insert(name, value);
            }
        }
    }

    fn spec(&self, fields: &mut Map<String, Value>) {
        let tenant = fields.get("tenant").and_then(Value::as_str);
        let name = fields.get("name").and_then(Value::as_str);
        if let (Some(tenant), Some(name)) = (tenant, name) {
            let new = self.names.bare(tenant, name);
            let new = json!(new.unwrap_or_default());
            fields.insert("name".to_owned(), new);
        }
    }

    fn text(&mut self, field: &str, text: &str) -> String {
        let vocabulary = self.vocabulary;
        if let Some(new) = self.names.field(field, text) {
            return new;
        }
        let is_id = ["JobId", "ContainerId"].map(|id| vocabulary.holds(field, id));
        if is_id.contains(&true)
            && let Some(new) = self.names.anywhere(text)
        {
            return new;
        }
        let passes = vocabulary.enumerates(field, text)
            || match field {
                "verb" => VERBS.contains(&text),
                "signal" => SIGNALS.contains(&text),
                "runtime" => ["docker", "process"].contains(&text),
                "content_type" => text == "application/json",
                "build" | "version" => text.chars().all(|c| "0123456789abcdef.+-".contains(c)),
                _ => vocabulary.holds(field, "Timestamp") && text.parse::<Timestamp>().is_ok(),
            };
        if passes {
            return text.to_owned();
        }
        match field {
            "gpus" | "uuid" => self.names.gpu(text),
            "model" => self.names.word(text),
            _ if vocabulary.holds(field, "ReservationId") => self.names.word(text),
            // A short resource may not be on the log; the remaker restores the text.
            "resource" => {
                let new = self.names.resource(text);
                new.unwrap_or_else(|| LEFT_OUT.to_owned())
            }
            "uri" | "resumed_from" => {
                let number = self.uris.len() + 1;
                let new = self.uris.entry(text.to_owned());
                new.or_insert_with(|| format!("checkpoint:{number:06}"))
                    .clone()
            }
            "address" | "raw" | "content_type" => String::new(),
            "sha256" => "0".repeat(64),
            "signal" => SIGNALS[0].to_owned(),
            "url" => "https://example.invalid/".to_owned(),
            "path" => "/".to_owned(),
            // The remaker restores a decision's text.
            _ => LEFT_OUT.to_owned(),
        }
    }
}
