//! Conformance of the clients of all languages, by `messages/clients/check.sh` and `conformance.json`.

use std::path::PathBuf;
use std::process::Command;

use crate::common::{Cluster, root};

const LANGUAGES: [(&str, &str); 4] = [
    ("python", "python/bin/datamodel-codegen"),
    ("go", "bin/go-jsonschema"),
    ("typescript", "python/bin/python3"),
    ("java", "python/bin/python3"),
];

pub fn tools() -> PathBuf {
    let given = std::env::var_os("DORMOUSE_CLIENT_TOOLS").map(PathBuf::from);
    given.unwrap_or_else(|| root().join(".tools/clients"))
}

pub fn skipped(why: &str) {
    let text = format!("SKIPPED: {why}");
    let no_skip = std::env::var("DORMOUSE_NO_SKIP").as_deref() == Ok("1");
    assert!(!no_skip, "{text}");
    eprintln!("{text}");
}

pub fn rust_driver() -> Option<PathBuf> {
    let built = std::env::current_exe().ok()?;
    let driver = built.parent()?.parent()?.join("examples/conformance");
    driver.is_file().then_some(driver)
}

#[test]
fn the_clients_of_every_language_do_the_same() {
    let tools = tools();
    let missing = |(_, program): &&(&str, &str)| !tools.join(program).exists();
    let without: Vec<&str> = LANGUAGES
        .iter()
        .filter(missing)
        .map(|(it, _)| *it)
        .collect();
    if !without.is_empty() {
        skipped(&format!(
            "no clients for {}; run scripts/install.sh clients",
            without.join(", ")
        ));
    }
    let rust = rust_driver();
    if rust.is_none() {
        skipped("no driver of the Rust client; run cargo test --workspace");
    }
    let languages = LANGUAGES.iter().map(|(language, _)| *language);
    let languages: Vec<&str> = languages.filter(|it| !without.contains(it)).collect();
    if languages.is_empty() {
        return;
    }
    let cluster = Cluster::up(2, "cpu=4,memory=4Gi,gpu=1");
    let mut check = Command::new(root().join("messages/clients/check.sh"));
    check
        .args(["--main", &cluster.url()])
        .args(languages)
        .env("DORMOUSE_CLIENT_TOOLS", &tools)
        .env("DORMOUSE_NATS_SERVER", crate::common::nats_server());
    if let Some(rust) = rust {
        check.arg("--rust").arg(rust);
    }
    let output = check.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let faults = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{faults}");
    print!("{said}");
    cluster.check();
}
