//! Each crate has one test binary, `tests/all/main.rs`; [`ALONE`] lists tests that need a process of their
//! own.

use std::path::{Path, PathBuf};

use crate::metadata::packages;

/// The test installs a tracer for the whole process.
const ALONE: [&str; 1] = ["services/runtime/tests/trace.rs"];

fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let paths = entries.map(|entry| entry.expect("readable").path());
    let rust = paths.filter(|path| path.extension().is_some_and(|it| it == "rs"));
    let mut names: Vec<String> = rust
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    names
}

fn misplaced(tests: &Path) -> Vec<String> {
    let shown = |name: &str| tests.join(name).display().to_string();
    let alone = files(tests)
        .into_iter()
        .filter(|name| {
            let path = tests.join(name).with_extension("rs");
            !ALONE.iter().any(|alone| path.ends_with(alone))
        })
        .map(|name| format!("{}.rs belongs into all/", shown(&name)));
    let main = std::fs::read_to_string(tests.join("all/main.rs")).unwrap_or_default();
    let named = |name: &String| main.lines().any(|line| line == format!("mod {name};"));
    let unnamed = files(&tests.join("all"))
        .into_iter()
        .filter(|name| name != "main" && !named(name))
        .map(|name| format!("{} does not name `mod {name};`", shown("all/main.rs")));
    alone.chain(unnamed).collect()
}

#[test]
fn every_test_file_is_a_module_of_the_one_binary() {
    let crates = packages().into_iter();
    let folders: Vec<PathBuf> = crates
        .map(|it| Path::new(it.manifest()).with_file_name("tests"))
        .collect();
    assert!(folders.iter().any(|folder| folder.join("all").is_dir()));
    let wrong: Vec<String> = folders.iter().flat_map(|it| misplaced(it)).collect();
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn a_misplaced_test_file_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let tests = folder.path();
    std::fs::create_dir(tests.join("all")).expect("made");
    for (name, text) in [
        ("alone.rs", ""),
        ("all/main.rs", "mod named;\n"),
        ("all/named.rs", ""),
        ("all/unnamed.rs", ""),
    ] {
        std::fs::write(tests.join(name), text).expect("written");
    }
    assert_eq!(misplaced(tests).len(), 2, "{:?}", misplaced(tests));
}
