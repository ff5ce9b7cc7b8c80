//! What a release promised holds: events, and the documents of jobs, changes, measurements and policies.
//!
//! `released/<version>.txt` has a line a field: path, types, `required`, and the values of an enumeration.
//! `RELEASE=0.2.0 cargo test` writes the file of a new release and never changes an older one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::schema::documents;

/// Field paths, such as `dormouse.job.admitted.v1.spec.weight`, with their properties.
type Fields = BTreeMap<String, BTreeSet<String>>;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("released")
}

struct Walk<'a> {
    root: &'a Value,
    /// The definitions around the current one: a recursive definition is entered once.
    entered: Vec<&'a str>,
    fields: Fields,
}

impl<'a> Walk<'a> {
    fn add(&mut self, path: &str, property: impl Into<String>) {
        let properties = self.fields.entry(path.to_owned()).or_default();
        properties.insert(property.into());
    }

    fn schema(&mut self, schema: &'a Value, path: &str) {
        if let Some(name) = schema["$ref"].as_str() {
            if self.entered.contains(&name) {
                self.add(path, "recursive");
                return;
            }
            let target = self.root.pointer(name.trim_start_matches('#'));
            self.entered.push(name);
            self.schema(target.expect("a definition"), path);
            self.entered.pop();
        }
        for variants in ["anyOf", "oneOf"] {
            for variant in schema[variants].as_array().into_iter().flatten() {
                self.schema(variant, path);
            }
        }
        let values = schema["enum"].as_array().into_iter().flatten();
        let values: Vec<&Value> = values.chain(schema.get("const")).collect();
        for value in &values {
            self.add(path, format!("={value}"));
        }
        if values.is_empty() {
            let of_one = schema["type"].as_str();
            let of_many = schema["type"].as_array().into_iter().flatten();
            for kind in of_one.into_iter().chain(of_many.filter_map(Value::as_str)) {
                self.add(path, kind);
            }
        }
        self.parts(schema, path);
    }

    fn parts(&mut self, schema: &'a Value, path: &str) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            self.schema(field, &format!("{path}.{name}"));
        }
        for name in schema["required"].as_array().into_iter().flatten() {
            let name = name.as_str().expect("a field's name");
            self.add(&format!("{path}.{name}"), "required");
        }
        let places = schema["prefixItems"].as_array().into_iter().flatten();
        for (place, item) in places.enumerate() {
            self.schema(item, &format!("{path}[{place}]"));
        }
        for (part, suffix) in [("items", "[]"), ("additionalProperties", ".*")] {
            if schema[part].is_object() {
                self.schema(&schema[part], &format!("{path}{suffix}"));
            }
        }
    }
}

fn current() -> Fields {
    let mut fields = Fields::new();
    for (name, text) in documents() {
        let Some(name) = name.strip_suffix(".json") else {
            continue;
        };
        let root: Value = serde_json::from_str(&text).expect("a schema");
        let mut walk = Walk {
            root: &root,
            entered: Vec::new(),
            fields: Fields::new(),
        };
        walk.schema(&root, name);
        fields.append(&mut walk.fields);
    }
    fields
}

fn write(fields: &Fields) -> String {
    let line = |(path, properties): (&String, &BTreeSet<String>)| {
        let properties: Vec<&str> = properties.iter().map(String::as_str).collect();
        format!("{path}\t{}\n", properties.join("\t"))
    };
    fields.iter().map(line).collect()
}

fn read(text: &str) -> Fields {
    let line = |line: &str| {
        let mut parts = line.split('\t').map(str::to_owned);
        (parts.next().expect("a path"), parts.collect())
    };
    text.lines().map(line).collect()
}

/// Returns the promises of `released` that `current` breaks.
fn broken(released: &Fields, current: &Fields) -> Vec<String> {
    let is_value = |property: &&String| property.starts_with('=');
    let mut broken = Vec::new();
    for (path, before) in released {
        let Some(now) = current.get(path) else {
            broken.push(format!("{path} is gone"));
            continue;
        };
        for lost in before.difference(now) {
            broken.push(format!("{path} is no longer {lost}"));
        }
        for new in now.difference(before).filter(|new| !is_value(new)) {
            broken.push(format!("{path} is {new} now"));
        }
    }
    for (path, now) in current {
        let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
        if now.contains("required") && !released.contains_key(path) && released.contains_key(parent)
        {
            broken.push(format!("{path} is new and required: earlier logs lack it"));
        }
    }
    broken
}

#[test]
fn every_release_keeps_its_promise() {
    let current = current();
    if let Ok(version) = std::env::var("RELEASE") {
        let file = folder().join(format!("{version}.txt"));
        assert!(!file.exists(), "{} is released", file.display());
        std::fs::write(file, write(&current)).expect("the file is written");
    }
    let releases = std::fs::read_dir(folder()).expect("the folder is there");
    let mut checked = 0;
    for release in releases {
        let path = release.expect("an entry").path();
        let released = read(&std::fs::read_to_string(&path).expect("a text file"));
        let broken = broken(&released, &current);
        assert!(broken.is_empty(), "{}: {broken:#?}", path.display());
        checked += 1;
    }
    assert!(checked > 0, "no release is checked");
}

#[test]
fn a_broken_promise_is_found() {
    let field = |text: &str| read(text);
    let released = field(
        "job\tobject\njob.name\trequired\tstring\njob.kind\t=\"training\"\njob.cpu\tnumber\n",
    );
    assert_eq!(broken(&released, &released), Vec::<String>::new());
    let change = |from: &str, to: &str| {
        let text = write(&released).replace(from, to);
        broken(&released, &field(&text))
    };
    let cpu = "job.cpu\tnumber\n";
    assert_eq!(change(cpu, ""), ["job.cpu is gone"]);
    assert_eq!(
        change(cpu, "job.cpu\tstring\n"),
        ["job.cpu is no longer number", "job.cpu is string now"]
    );
    assert_eq!(change("required\t", ""), ["job.name is no longer required"]);
    assert_eq!(
        change("=\"training\"", "=\"service\""),
        ["job.kind is no longer =\"training\""]
    );
    assert_eq!(
        change(cpu, "job.cpu\tnumber\njob.gpu\trequired\n"),
        ["job.gpu is new and required: earlier logs lack it"]
    );
    // A new value, an optional field and a new object are no breaks.
    let more = "job.cpu\tnumber\njob.gpu\tnumber\nbill\tobject\nbill.to\trequired\n";
    assert_eq!(change(cpu, more), Vec::<String>::new());
    let value = change("=\"training\"", "=\"training\"\t=\"service\"");
    assert_eq!(value, Vec::<String>::new());
    // A value of an enumeration and a recursive definition are lines, too.
    let current = current();
    assert!(current["job-document.kind"].contains("=\"training\""));
}
