//! Documents match the program.
//!
//! The tests belong to the binary, whose command line they need. `UPDATE_DOCS=1 cargo test -p dormouse --bin
//! dormouse documents` writes the generated parts; otherwise a difference fails.
//!
//! - `commands`, `links`, `paths`, `snippets`: the documents are valid; `markdown` parses them.
//! - `contract`, `types`, `reference`, `shrink`, `picture`: generated parts.

mod commands;
mod contract;
mod links;
mod markdown;
mod paths;
mod picture;
mod reference;
mod shrink;
mod snippets;
mod types;

use std::path::{Path, PathBuf};

use markdown::Page;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn pages() -> Vec<Page> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(root()).expect("the repository is there") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|ending| ending == "md") {
            paths.push(path);
        }
    }
    for folder in ["docs", "deploy"] {
        collect(&root().join(folder), &mut paths);
    }
    paths.sort();
    let relative = |path: &PathBuf| {
        let path = path.strip_prefix(root()).expect("below the root");
        path.to_string_lossy().into_owned()
    };
    let page = |path: String| Page {
        text: read(&path),
        path,
    };
    let pages: Vec<Page> = paths.iter().map(relative).map(page).collect();
    assert!(pages.len() >= 12, "the guide is there");
    pages
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            paths.push(path);
        }
    }
}

/// Splits a text around the generated part `name`.
fn region<'a>(text: &'a str, name: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let mark = format!("<!-- generated: {name} -->\n");
    let from = text.find(&mark)? + mark.len();
    let to = from + text[from..].find("<!-- end -->")?;
    Some((&text[..from], &text[from..to], &text[to..]))
}

fn assert_generated(path: &str, name: &str, expected: &str) {
    let text = read(path);
    let Some((before, generated, after)) = region(&text, name) else {
        panic!("{path} has no part <!-- generated: {name} --> … <!-- end -->");
    };
    let expected = format!("\n{}\n\n", expected.trim());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let whole = format!("{before}{expected}{after}");
        std::fs::write(root().join(path), whole).expect("the page is written");
        return;
    }
    if let Some((was, is)) = first_difference(generated, &expected) {
        panic!(
            "{path}: the part {name} is out of date: run UPDATE_DOCS=1 cargo test -p dormouse --bin dormouse documents\n  it says:   {was}\n  should be: {is}"
        );
    }
}

fn first_difference<'a>(was: &'a str, is: &'a str) -> Option<(&'a str, &'a str)> {
    if was == is {
        return None;
    }
    let mut lines = was.lines().zip(is.lines());
    Some(
        lines
            .find(|(was, is)| was != is)
            .unwrap_or(("", "(another number of lines)")),
    )
}

#[test]
fn a_generated_part_that_differs_is_found() {
    let text = "a\n<!-- generated: x -->\nold\n<!-- end -->\nb";
    assert_eq!(region(text, "x").map(|(_, part, _)| part), Some("old\n"));
    assert_eq!(region(text, "y"), None);
    assert_eq!(first_difference("a\nb\n", "a\nc\n"), Some(("b", "c")));
    assert!(first_difference("a\n", "a\nb\n").is_some());
    assert_eq!(first_difference("a\n", "a\n"), None);
}
