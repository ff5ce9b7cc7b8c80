//! One event under new names: what is said in words, what the job is made of and where it lies goes.

use std::collections::BTreeMap;

use dormouse_admission::received;
use dormouse_messages::{CodecError, Envelope, Event, Recorded};
use serde_json::{Map, Value, json};

use super::names::Names;

/// What stands for a command line.
const PROGRAM: &str = "program";

/// Renames event after event.
#[derive(Debug, Default)]
pub struct Renamer {
    names: Names,
    documents: BTreeMap<u64, Value>,
    /// Checkpoints, numbered as they come.
    uris: BTreeMap<String, String>,
}

impl Renamer {
    /// With these names, and the documents that were submitted.
    #[must_use]
    pub fn new(names: Names, documents: BTreeMap<u64, Value>) -> Self {
        Self {
            names,
            documents,
            uris: BTreeMap::new(),
        }
    }

    /// The event under new names; nothing of one that only the old names can give again.
    ///
    /// # Errors
    /// When it cannot be written or read.
    pub fn rename(&mut self, recorded: &Recorded) -> Result<Option<Recorded>, CodecError> {
        match recorded.event() {
            // Tokens are digests of the old names; keys name people.
            None
            | Some(
                Event::PlanAccepted(_)
                | Event::PlanMissed(_)
                | Event::KeyCreated(_)
                | Event::KeyRotated(_)
                | Event::KeyRevoked(_),
            ) => return Ok(None),
            Some(_) => {}
        }
        let mut line: Value = serde_json::from_str(&recorded.to_json("anonymous")?)?;
        let source = line["source"].as_str().unwrap_or_default();
        line["source"] = json!(self.names.source(source));
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
                let mut again = received(
                    event.ingress_sequence,
                    &event.tenant,
                    &event.verb,
                    Some("application/json"),
                    payload.as_bytes(),
                );
                if let Event::SubmissionReceived(again) = &mut again {
                    again.published_at = event.published_at;
                }
                again
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

    /// A value that stands in this field.
    fn value(&mut self, field: &str, value: &mut Value) {
        match value {
            Value::String(text) => self.text(field, text),
            Value::Array(items) => items.iter_mut().for_each(|it| self.value(field, it)),
            Value::Object(fields) if field == "spec" => {
                self.spec(fields);
                self.fields(fields);
            }
            Value::Object(fields) => self.fields(fields),
            _ => {}
        }
    }

    fn fields(&mut self, fields: &mut Map<String, Value>) {
        // Labels stay: constraints name them, and decisions depend on both.
        if fields.get("metrics").is_some_and(Value::is_object) {
            fields.insert("metrics".to_owned(), json!({}));
        }
        // Of a grant: what it was for goes from the jobs, too.
        for left_out in ["mounts", "images"] {
            if fields.get(left_out).is_some_and(Value::is_array) {
                fields.insert(left_out.to_owned(), json!([]));
            }
        }
        if fields.get("secrets").is_some_and(Value::is_string) {
            fields.remove("secrets");
        }
        fields.remove("state_hash");
        if fields.get("by").is_some_and(Value::is_object) {
            fields.remove("by");
        }
        for (name, value) in fields.iter_mut() {
            match (name.as_str(), &value) {
                ("address" | "raw", Value::String(_)) => *value = json!(""),
                // What is read again must be one.
                ("sha256", Value::String(_)) => *value = json!("0".repeat(64)),
                ("model", Value::String(_)) => *value = json!("gpu"),
                ("url", Value::String(_)) => *value = json!("https://example.invalid/"),
                _ => self.value(name, value),
            }
        }
    }

    /// What the job is made of goes.
    fn spec(&self, fields: &mut Map<String, Value>) {
        let tenant = fields.get("tenant").and_then(Value::as_str);
        let name = fields.get("name").and_then(Value::as_str);
        if let (Some(tenant), Some(name)) = (tenant, name) {
            let new = self.names.bare(tenant, name);
            let new = json!(new.unwrap_or_default());
            fields.insert("name".to_owned(), new);
        }
        forget_program(fields);
        if let Some(Value::Object(roles)) = fields.get_mut("roles") {
            let roles = roles.values_mut().filter_map(Value::as_object_mut);
            roles.for_each(forget_program);
        }
        if let Some(python) = fields.get_mut("python").filter(|it| it.is_object()) {
            python["requirements"] = json!(["package"]);
        }
        if let Some(Value::Object(checkpoint)) = fields.get_mut("checkpoint")
            && let Some(words) = checkpoint.get_mut("command")
            && words.as_array().is_some_and(|words| !words.is_empty())
        {
            *words = json!([PROGRAM]);
        }
        if let Some(ready) = fields.get_mut("service").and_then(|it| it.get_mut("ready")) {
            ready["path"] = json!("/");
        }
    }

    fn text(&mut self, field: &str, text: &mut String) {
        if let Some(new) = self.names.field(field, text) {
            *text = new;
            return;
        }
        if matches!(field, "uri" | "resumed_from") {
            let number = self.uris.len() + 1;
            let new = self.uris.entry(text.clone());
            *text = new
                .or_insert_with(|| format!("checkpoint:{number:06}"))
                .clone();
            return;
        }
        if let Some(new) = self.names.anywhere(text) {
            *text = new;
        } else if matches!(field, "reason" | "text") && text.contains(' ') {
            // Of a decision it is said again; what was observed goes.
            "left out".clone_into(text);
        }
    }
}

/// What containers run goes.
fn forget_program(fields: &mut Map<String, Value>) {
    for left_out in ["env", "mounts", "image"] {
        fields.remove(left_out);
    }
    if let Some(Value::Object(command)) = fields.get_mut("command") {
        command.values_mut().for_each(|words| {
            if words.as_array().is_some_and(|words| !words.is_empty()) {
                *words = json!([PROGRAM]);
            }
        });
    }
}
