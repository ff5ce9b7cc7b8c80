//! Renders a JSON Schema's fields as a list.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

pub type Parts = BTreeMap<String, Value>;

/// Types that another page describes, and where.
const ELSEWHERE: [(&str, &str); 2] = [
    ("JobSpec", "documents.md#job"),
    ("Policy", "../policies.md#the-policy"),
];

pub fn cell(value: &Value) -> String {
    let text = value["description"].as_str().unwrap_or_default();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // Rustdoc links become code.
    text.replace("[`", "`").replace("`]", "`")
}

/// Describes a type; types with fields go into `parts`.
pub fn words(value: &Value, definitions: &Value, parts: &mut Parts) -> String {
    if let Some(target) = value["$ref"].as_str() {
        let name = target.trim_start_matches("#/$defs/");
        if let Some((_, page)) = ELSEWHERE.iter().find(|(known, _)| *known == name) {
            return format!("[{name}]({page})");
        }
        let definition = &definitions[name];
        if definition["properties"].is_object() && !name.is_empty() {
            if parts.insert(name.to_owned(), definition.clone()).is_none() {
                rows(definition, definitions, parts);
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
        Some(&"array") => list(&words(&value["items"], definitions, parts)),
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

fn list(item: &str) -> String {
    // `a, b[]` would be ambiguous.
    if item.contains(", ") {
        format!("list of {item}")
    } else {
        format!("{item}[]")
    }
}

/// A field's name and its item of a list; `basis` is described once for all.
pub type Row = (String, String);

pub fn rows(schema: &Value, definitions: &Value, parts: &mut Parts) -> Vec<Row> {
    let empty = serde_json::Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&empty);
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let fields = properties.iter().filter(|(name, _)| *name != "basis");
    let row = |(name, field): (&String, &Value)| {
        let kind = words(field, definitions, parts);
        let optional = if required.contains(&name.as_str()) {
            ""
        } else if kind.contains(", ") {
            ", optional"
        } else {
            "?"
        };
        let item = format!("- `{name}` ({kind}{optional}): {}\n", cell(field));
        (name.clone(), item)
    };
    fields.map(row).collect()
}

/// The items that several lists have, one for each name: the most frequent.
pub fn common<'a>(rows: impl Iterator<Item = &'a Row>, at_least: usize) -> Vec<Row> {
    let mut counts: BTreeMap<&Row, usize> = BTreeMap::new();
    rows.for_each(|row| *counts.entry(row).or_default() += 1);
    let mut best: BTreeMap<&str, (usize, &Row)> = BTreeMap::new();
    for (row, count) in counts {
        let known = best.get(row.0.as_str()).map_or(0, |(known, _)| *known);
        if count >= at_least && count > known {
            best.insert(&row.0, (count, row));
        }
    }
    best.into_values().map(|(_, row)| row.clone()).collect()
}

/// A flag without its value, unless two common flags have that name.
fn short<'a>(name: &'a str, common: &[Row]) -> &'a str {
    fn flag(name: &str) -> &str {
        let long = name.rsplit(", ").next().unwrap_or(name);
        long.split([' ', '[']).next().unwrap_or(long)
    }
    let alike = common.iter().filter(|(other, _)| flag(other) == flag(name));
    if alike.count() > 1 { name } else { flag(name) }
}

/// Lists rows; of the common ones only the names.
pub fn listed(rows: &[Row], common: &[Row], also: &str) -> String {
    let (known, own): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| common.contains(row));
    let names: Vec<String> = known
        .iter()
        .map(|(name, _)| format!("`{}`", short(name, common)))
        .collect();
    let mut text = String::new();
    if !names.is_empty() {
        let _ = writeln!(text, "{also} {}.\n", names.join(", "));
    }
    text.extend(own.iter().map(|(_, item)| item.as_str()));
    text
}

#[test]
fn what_many_lists_have_is_described_once() {
    let row = |name: &str, item: &str| (name.to_owned(), item.to_owned());
    let (a, b, other) = (row("a", "- a\n"), row("b", "- b\n"), row("a", "- other\n"));
    let rows = [a.clone(), b.clone(), a.clone(), other.clone()];
    let common = common(rows.iter(), 2);
    assert_eq!(common, std::slice::from_ref(&a));
    assert_eq!(listed(&[a, b], &common, "Also"), "Also `a`.\n\n- b\n");
    assert_eq!(listed(&[other], &common, "Also"), "- other\n");
    let flags = ["--log FILE", "-y, --yes", "--name NAME", "--name PATTERN"];
    let flags = flags.map(|name| row(name, "- flag\n"));
    assert_eq!(
        listed(&flags[..3], &flags, "Also"),
        "Also `--log`, `--yes`, `--name NAME`.\n\n"
    );
}
