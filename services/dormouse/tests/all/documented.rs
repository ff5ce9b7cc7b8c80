//! Public items have a comment. rustc's `missing_docs` would ask one of every field and variant, too, where
//! most only repeat the name.

use std::path::{Path, PathBuf};

use crate::metadata::packages;

/// Source files of a crate, its tests left out.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.push(path);
        }
    }
}

/// Crates whose public items are their library's own: they are C libraries or programs.
const PROGRAMS: [&str; 3] = [
    "dormouse-gpu-preload",
    "dormouse-gpu-standin",
    "dormouse-gpu-trial",
];

/// Reports whether other crates can name a module by its path: each module on the way is public.
fn is_reachable(file: &Path) -> bool {
    let folder = file.parent().expect("a folder");
    let mut name = file.file_stem().expect("a name").to_owned();
    if name == "lib" {
        return true;
    }
    let parents = if folder.ends_with("src") {
        [folder.join("lib.rs"), folder.join("main.rs")]
    } else if name == "mod" {
        name = folder.file_name().expect("a name").to_owned();
        let folder = folder.parent().expect("a folder");
        [folder.join("mod.rs"), folder.join("lib.rs")]
    } else {
        [folder.with_extension("rs"), folder.join("mod.rs")]
    };
    let Some(parent) = parents.iter().find(|it| it.exists()) else {
        return false;
    };
    let text = std::fs::read_to_string(parent).expect("reads");
    // Test support of the deciders' crates.
    if name == "history" && folder.ends_with("state/src") {
        return false;
    }
    let declaration = format!("pub mod {};", name.display());
    text.lines().any(|line| line == declaration) && is_reachable(parent)
}

/// The public items of a source file without a comment before them, each with the number of its line: types
/// and traits always, which may be exported from elsewhere; all others where the file is reachable.
fn undocumented(text: &str, is_reachable: bool) -> Vec<(usize, &str)> {
    const TYPES: [&str; 3] = ["struct", "enum", "trait"];
    const OTHERS: [&str; 4] = ["fn", "const", "static", "type"];
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    let mut found = Vec::new();
    let mut is_documented = false;
    let mut open = 0;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if line.starts_with("///") || line.starts_with("#[doc") {
            is_documented = true;
        } else if open > 0 || line.starts_with("#[") {
            let count = |bracket| line.matches(bracket).count();
            open = (open + count('[')).saturating_sub(count(']'));
        } else {
            let item = line
                .strip_prefix("pub ")
                .and_then(|it| it.split(' ').next());
            let counts = |it: &str| TYPES.contains(&it) || is_reachable && OTHERS.contains(&it);
            if item.is_some_and(counts) && !is_documented && !line.contains('$') {
                found.push((index + 1, line));
            }
            is_documented = false;
        }
    }
    found
}

#[test]
fn public_items_have_a_comment() {
    let mut missing = Vec::new();
    let libraries = packages().into_iter();
    for package in libraries.filter(|it| !PROGRAMS.contains(&it.name())) {
        let mut files = Vec::new();
        let folder = Path::new(package.manifest()).with_file_name("src");
        sources(&folder, &mut files);
        for file in files {
            let text = std::fs::read_to_string(&file).expect("reads");
            for (number, line) in undocumented(&text, is_reachable(&file)) {
                missing.push(format!("{}:{number}: {line}", file.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn an_item_without_a_comment_is_found() {
    let text = "/// A.\n#[derive(\n    Debug\n)]\npub struct A {\n    pub b: u8,\n}\n\n\
                #[must_use]\npub fn c() {}\npub(crate) fn d() {}\n";
    assert_eq!(undocumented(text, true), [(10, "pub fn c() {}")]);
    assert_eq!(undocumented(text, false), []);
    assert_eq!(undocumented("pub struct A;", false), [(1, "pub struct A;")]);
}
