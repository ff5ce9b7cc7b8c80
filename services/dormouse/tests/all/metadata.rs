//! The workspace's crates, from `cargo metadata`.

use std::process::Command;

use serde_json::Value;

pub struct Package(Value);

pub fn packages() -> Vec<Package> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version=1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo starts");
    let mut said: Value = serde_json::from_slice(&output.stdout).expect("metadata");
    let Value::Array(packages) = said["packages"].take() else {
        panic!("no packages in {said}");
    };
    packages.into_iter().map(Package).collect()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().expect(field)
}

impl Package {
    pub fn name(&self) -> &str {
        text(&self.0, "name")
    }

    pub fn manifest(&self) -> &str {
        text(&self.0, "manifest_path")
    }

    /// Without those of tests, benches and build scripts.
    pub fn dependencies(&self) -> impl Iterator<Item = &str> {
        let all = self.0["dependencies"].as_array().expect("dependencies");
        let normal = all.iter().filter(|it| it["kind"].is_null());
        normal.map(|it| text(it, "name"))
    }
}
