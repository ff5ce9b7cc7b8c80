//! Reads from the events' schemas which words and ids a field's strings can be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use dormouse_messages::Event;
use serde_json::Value;

/// The string types of each field name, over all events.
#[derive(Debug, Default)]
pub struct Vocabulary {
    fields: BTreeMap<String, Field>,
}

#[derive(Debug, Default)]
struct Field {
    words: BTreeSet<String>,
    types: BTreeSet<String>,
}

impl Vocabulary {
    pub fn of_events() -> &'static Self {
        static OF_EVENTS: OnceLock<Vocabulary> = OnceLock::new();
        OF_EVENTS.get_or_init(|| {
            let mut vocabulary = Self::default();
            for (_, schema) in Event::schemas() {
                let schema = schema.to_value();
                vocabulary.read(&schema, &schema, "", &mut BTreeSet::new());
            }
            vocabulary
        })
    }

    pub fn has(&self, field: &str) -> bool {
        self.fields.contains_key(field)
    }

    pub fn enumerates(&self, field: &str, text: &str) -> bool {
        self.fields
            .get(field)
            .is_some_and(|field| field.words.contains(text))
    }

    pub fn holds(&self, field: &str, of: &str) -> bool {
        self.fields
            .get(field)
            .is_some_and(|field| field.types.contains(of))
    }

    fn read<'a>(
        &mut self,
        schema: &'a Value,
        root: &'a Value,
        field: &str,
        read: &mut BTreeSet<(String, &'a str)>,
    ) {
        if let Some(name) = schema["$ref"].as_str().and_then(|it| it.rsplit('/').next()) {
            self.field(field).types.insert(name.to_owned());
            if read.insert((field.to_owned(), name)) {
                self.read(&root["$defs"][name], root, field, read);
            }
        }
        for part in ["oneOf", "anyOf", "allOf", "prefixItems"] {
            for schema in schema[part].as_array().into_iter().flatten() {
                self.read(schema, root, field, read);
            }
        }
        for part in ["items", "additionalProperties"] {
            if schema[part].is_object() {
                self.read(&schema[part], root, field, read);
            }
        }
        let words = schema["enum"].as_array().into_iter().flatten();
        let words = words.chain([&schema["const"]]).filter_map(Value::as_str);
        self.field(field).words.extend(words.map(str::to_owned));
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            self.read(schema, root, name, read);
        }
    }

    fn field(&mut self, name: &str) -> &mut Field {
        self.fields.entry(name.to_owned()).or_default()
    }
}
