//! Renders a JSON Schema's fields as a table.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

pub type Parts = BTreeMap<String, Value>;

pub fn cell(value: &Value) -> String {
    let text = value["description"].as_str().unwrap_or_default();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // Rustdoc links become code.
    let text = text.replace("[`", "`").replace("`]", "`");
    text.replace('|', "\\|")
}

/// Describes a type; types with fields go into `parts`.
pub fn words(value: &Value, definitions: &Value, parts: &mut Parts) -> String {
    if let Some(target) = value["$ref"].as_str() {
        let name = target.trim_start_matches("#/$defs/");
        let definition = &definitions[name];
        if definition["properties"].is_object() && !name.is_empty() {
            if parts.insert(name.to_owned(), definition.clone()).is_none() {
                fields(definition, definitions, parts);
            }
            return format!("[{name}](#{})", name.to_lowercase());
        }
        // A recursive type is described once.
        let mut others = definitions.clone();
        others[name] = serde_json::json!({"type": "the same"});
        return words(definition, &others, parts);
    }
    if let Some(constant) = value["const"].as_str() {
        return format!("`{constant}`");
    }
    if let Some(values) = value["enum"].as_array() {
        let names = values
            .iter()
            .filter_map(Value::as_str)
            .map(|name| format!("`{name}`"));
        return names.collect::<Vec<_>>().join(", ");
    }
    for choice in ["oneOf", "anyOf"] {
        if let Some(choices) = value[choice].as_array() {
            let choices = choices.iter().filter(|choice| choice["type"] != "null");
            let named: Vec<String> = choices.map(|c| words(c, definitions, parts)).collect();
            return named.join(", ");
        }
    }
    let kinds: Vec<&str> = match &value["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if let Some(items) = value["prefixItems"].as_array() {
        let named: Vec<String> = items.iter().map(|i| words(i, definitions, parts)).collect();
        return format!("[{}]", named.join(", "));
    }
    match kinds.iter().find(|kind| **kind != "null") {
        Some(&"array") => format!("list of {}", words(&value["items"], definitions, parts)),
        Some(&"object") if value["additionalProperties"].is_object() => {
            format!(
                "map to {}",
                words(&value["additionalProperties"], definitions, parts)
            )
        }
        Some(&"object") if value["properties"].is_object() => {
            let names: Vec<&String> = value["properties"]
                .as_object()
                .expect("one")
                .keys()
                .collect();
            format!(
                "{{{}}}",
                names
                    .iter()
                    .map(|n| format!("`{n}`"))
                    .collect::<Vec<_>>()
                    .join(", ")
            )
        }
        Some(kind) => (*kind).to_owned(),
        None => "any".to_owned(),
    }
}

/// Renders fields; `basis` is described once for all.
pub fn fields(schema: &Value, definitions: &Value, parts: &mut Parts) -> String {
    let empty = serde_json::Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&empty);
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut rows = String::new();
    for (name, field) in properties.iter().filter(|(name, _)| *name != "basis") {
        let optional = if required.contains(&name.as_str()) {
            ""
        } else {
            ", optional"
        };
        let kind = words(field, definitions, parts);
        let _ = writeln!(rows, "| `{name}` | {kind}{optional} | {} |", cell(field));
    }
    if rows.is_empty() {
        "No fields.\n".to_owned()
    } else {
        format!("| field | type | meaning |\n|---|---|---|\n{rows}")
    }
}
