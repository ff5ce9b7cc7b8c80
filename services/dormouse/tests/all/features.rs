//! `make test` reuses the build of `make demo`: a dependency with more features in tests would be compiled
//! twice, with all its dependents.

use std::collections::BTreeSet;
use std::process::Command;

fn packages(arguments: &[&str]) -> BTreeSet<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["tree", "--locked", "--prefix=none", "--no-dedupe"])
        .args(["--format={p} {f}"])
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let lines = String::from_utf8(output.stdout).expect("text");
    let third = lines.lines().filter(|line| !line.starts_with("dormouse"));
    third.map(str::to_owned).collect()
}

#[test]
fn tests_and_the_binary_share_their_dependencies() {
    let binary = packages(&["--package=dormouse", "--edges=normal,build"]);
    let tests = packages(&["--workspace", "--edges=normal,build,dev"]);
    let twice: Vec<&String> = binary.difference(&tests).collect();
    assert!(
        twice.is_empty(),
        "compiled with these features for the binary alone, and again for the tests: {twice:#?}\n\
         name the features that the tests ask for in the workspace's Cargo.toml, too"
    );
}

#[test]
fn a_feature_that_only_tests_ask_for_is_found() {
    let messages = packages(&["--package=dormouse-messages", "--edges=normal"]);
    let tests = packages(&["--workspace", "--edges=normal,build,dev"]);
    assert!(messages.difference(&tests).next().is_some());
}
