//! `docs/reference/sandbox.md` names every attempt, and tests that exist.

use std::fs;
use std::path::Path;

use super::attempts;

#[test]
fn every_attempt_is_in_the_documents() {
    let page = include_str!("../../../../../docs/reference/sandbox.md");
    for attempt in attempts() {
        let name = format!("`{}`", attempt.name);
        assert!(
            page.contains(&name),
            "{name} is not in docs/reference/sandbox.md"
        );
    }
}

fn named_tests(page: &str) -> Vec<(&str, &str)> {
    let links = page.split("[`").skip(1);
    let links = links.filter_map(|link| link.split_once("`]("));
    let links = links.filter_map(|(name, rest)| Some((name, rest.split_once(')')?.0)));
    links.filter(|(_, path)| path.ends_with(".rs")).collect()
}

fn has_test(source: &str, name: &str) -> bool {
    let mut is_test = false;
    source.lines().map(str::trim).any(|line| {
        let function = line.strip_prefix("async ").unwrap_or(line);
        if !function.starts_with("fn ") {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            return false;
        }
        std::mem::take(&mut is_test) && function.starts_with(&format!("fn {name}("))
    })
}

#[test]
fn every_test_that_the_documents_name_is_there() {
    let page = include_str!("../../../../../docs/reference/sandbox.md");
    let named = named_tests(page);
    assert!(named.len() >= 40, "{named:?}");
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    for (name, path) in named {
        let source = fs::read_to_string(docs.join(path)).unwrap_or_default();
        assert!(has_test(&source, name), "{path} has no test {name}");
    }
}

#[test]
fn a_test_that_is_named_and_missing_is_found() {
    let page = "| x | [`it_holds`](../src/x.rs), [`other`](y.md) |";
    assert_eq!(named_tests(page), [("it_holds", "../src/x.rs")]);
    assert!(has_test(
        "    #[tokio::test]\n    async fn it_holds() {",
        "it_holds"
    ));
    assert!(has_test(
        "#[test]\n#[allow(x)]\nfn it_holds() {",
        "it_holds"
    ));
    let after = "#[test]\nfn other() {\n}\nfn it_holds() {";
    assert!(!has_test(after, "it_holds"), "it is no test");
    assert!(!has_test("#[test]\nfn it_holds_not() {", "it_holds"));
}
