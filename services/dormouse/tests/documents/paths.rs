//! Every path of this repository in a document exists.

use super::markdown::Page;
use super::{pages, root};

const FOLDERS: [&str; 8] = [
    ".ci/",
    "deploy/",
    "docs/",
    "messages/",
    "projections/",
    "replay/",
    "scripts/",
    "services/",
];

/// Braces are expanded; a glob stands for its folder.
fn paths(text: &str) -> Vec<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-{},*".contains(c);
    if !text.chars().all(plain) || !FOLDERS.iter().any(|folder| text.starts_with(folder)) {
        // A source file must be named from the root.
        let source = text.ends_with(".rs") && text.chars().all(plain);
        return source.then(|| text.to_owned()).into_iter().collect();
    }
    let spelled = match (text.find('{'), text.find('}')) {
        (Some(open), Some(close)) if open < close => text[open + 1..close]
            .split(',')
            .map(|part| format!("{}{part}{}", &text[..open], &text[close + 1..]))
            .collect(),
        _ => vec![text.to_owned()],
    };
    let folder = |path: String| match path.find('*') {
        Some(star) => path[..star]
            .rsplit_once('/')
            .map_or("", |(to, _)| to)
            .to_owned(),
        None => path,
    };
    spelled.into_iter().map(folder).collect()
}

fn missing(page: &Page) -> Vec<String> {
    let words = |text: &str| {
        let before = std::iter::once("").chain(text.split_whitespace());
        let words = before.zip(text.split_whitespace());
        // The command makes that file.
        let words = words.filter(|(before, _)| *before != ">");
        words.map(|(_, word)| word.to_owned()).collect::<Vec<_>>()
    };
    let shell = page
        .blocks()
        .into_iter()
        .filter(|block| block.language == "sh");
    let in_blocks =
        shell.flat_map(|block| words(&block.text).into_iter().map(move |w| (block.line, w)));
    let in_spans = page.spans().into_iter();
    let in_spans =
        in_spans.flat_map(|(line, span)| words(&span).into_iter().map(move |w| (line, w)));
    let mut wrong = Vec::new();
    for (line, word) in in_blocks.chain(in_spans) {
        for path in paths(word.trim_end_matches([',', ';', '.', '/'])) {
            if !root().join(&path).exists() {
                wrong.push(format!("{}:{line}: there is no {path}", page.path));
            }
        }
    }
    wrong
}

#[test]
fn paths_exist() {
    let wrong: Vec<String> = pages().iter().flat_map(missing).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_path_that_is_gone_is_found() {
    let page = Page {
        path: "x.md".to_owned(),
        text: "`deploy/{nats,none}/` `messages/src/*.rs` `gone.rs` `a/b` `job.yaml`\n```sh\ncat docs/gone.md > docs/made.md\n```\n"
            .to_owned(),
    };
    let wrong = missing(&page);
    assert_eq!(wrong.len(), 3, "{wrong:?}");
}
