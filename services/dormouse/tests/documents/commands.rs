//! Every command line in a document parses, and every flag and `make` target exists.

use std::collections::BTreeSet;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};

use super::markdown::Page;
use super::{pages, read};
use crate::cli::Cli;

/// Words without redirections and comments.
fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let (mut quote, mut depth) = (None, 0_u32);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        let plain = quote.is_none() && depth == 0;
        match c {
            '\'' | '"' if quote == Some(c) => quote = None,
            '\'' | '"' if quote.is_none() => {
                quote = Some(c);
                word.get_or_insert_with(String::new);
            }
            '#' if plain && word.is_none() => break,
            ' ' | '\t' if plain => commands.last_mut().expect("one").extend(word.take()),
            ';' | '|' | '&' if plain => {
                commands.last_mut().expect("one").extend(word.take());
                commands.push(Vec::new());
            }
            '>' | '<' if plain => {
                commands.last_mut().expect("one").extend(word.take());
                while chars.next_if(|c| *c == ' ').is_some() {}
                while chars.next_if(|c| *c != ' ').is_some() {}
            }
            c => {
                depth = match c {
                    '(' => depth + 1,
                    ')' => depth.saturating_sub(1),
                    _ => depth,
                };
                word.get_or_insert_with(String::new).push(c);
            }
        }
    }
    commands.last_mut().expect("one").extend(word);
    commands.retain(|command| !command.is_empty());
    commands
}

/// Continued lines are joined.
fn shell_lines(page: &Page) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    for block in page.blocks() {
        let joined = block.text.replace("\\\n", " ");
        for line in joined.lines() {
            match block.language.as_str() {
                "sh" => lines.push((block.line, line.to_owned())),
                // Input lines begin with `$ `.
                "" => lines.extend(line.strip_prefix("$ ").map(|l| (block.line, l.to_owned()))),
                _ => {}
            }
        }
    }
    lines
}

/// A command in a sentence may be incomplete.
fn problem(words: &[String], beginning: bool) -> Option<String> {
    if words
        .iter()
        .any(|word| word.contains('…') || word == "COMMAND")
    {
        return None;
    }
    let placeholder = |word: &String| match word.as_str() {
        "ID" => "ads/lr".to_owned(),
        "NAME" => "n0".to_owned(),
        _ => word.clone(),
    };
    let error = Cli::try_parse_from(words.iter().map(placeholder)).err()?;
    let shown = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    );
    let incomplete = matches!(
        error.kind(),
        ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
            | ErrorKind::InvalidValue
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) && (error.kind() != ErrorKind::InvalidValue
        || words.last().is_some_and(|w| w.starts_with('-')));
    if shown || (beginning && incomplete) {
        None
    } else {
        Some(
            error
                .to_string()
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned(),
        )
    }
}

fn wrong_commands(page: &Page) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut look = |line: usize, text: &str, beginning: bool| {
        for words in simple_commands(text) {
            let words: Vec<String> = words
                .into_iter()
                .skip_while(|word| word.contains('=') && !word.starts_with('-'))
                .collect();
            let why = match words.first().map(String::as_str) {
                Some("dormouse") => problem(&words, beginning),
                Some("make") => unknown_target(&words),
                _ => None,
            };
            wrong.extend(why.map(|why| format!("{}:{line}: {text}: {why}", page.path)));
        }
    };
    for (line, text) in shell_lines(page) {
        look(line, &text, false);
    }
    for (line, span) in page.spans() {
        look(line, &span, true);
    }
    wrong
}

fn unknown_target(words: &[String]) -> Option<String> {
    let makefile = read("Makefile");
    let mut targets = words.iter().skip(1).filter(|word| !word.contains('='));
    let unknown = targets.find(|target| {
        !makefile
            .lines()
            .any(|line| line.starts_with(&format!("{target}:")))
    });
    unknown.map(|target| format!("the Makefile has no target {target}"))
}

fn flags(command: &clap::Command, all: &mut BTreeSet<String>) {
    let long = command.get_arguments().filter_map(clap::Arg::get_long);
    all.extend(long.map(|long| format!("--{long}")));
    for inner in command.get_subcommands() {
        flags(inner, all);
    }
}

fn wrong_flags(page: &Page, known: &BTreeSet<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (line, span) in page
        .spans()
        .into_iter()
        .filter(|(_, span)| span.starts_with("--"))
    {
        for word in span
            .split_whitespace()
            .filter(|word| word.starts_with("--"))
        {
            let flag = word.split(['=', '[']).next().unwrap_or(word);
            if !known.contains(flag) {
                wrong.push(format!("{}:{line}: there is no flag {flag}", page.path));
            }
        }
    }
    wrong
}

#[test]
fn commands_in_documents_parse() {
    let wrong: Vec<String> = pages().iter().flat_map(wrong_commands).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn flags_in_documents_exist() {
    let mut known = BTreeSet::from(["--help".to_owned()]);
    flags(&Cli::command(), &mut known);
    // Scripts in `deploy/` have flags of their own.
    let pages = pages();
    let guide = pages
        .iter()
        .filter(|page| !page.path.starts_with("deploy/"));
    let wrong: Vec<String> = guide.flat_map(|page| wrong_flags(page, &known)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_wrong_command_is_found() {
    let page = |text: &str| Page {
        path: "x.md".to_owned(),
        text: text.to_owned(),
    };
    let good = "`dormouse job logs` `dormouse job events ID`\n```sh\nA=b dormouse jobs -o json | jq . && make test A=1 # dormouse nonsense\ncat x | dormouse submit - > y\ndormouse serve agent \\\n    --node n1 --capacity cpu=1\n```\n";
    assert_eq!(wrong_commands(&page(good)), Vec::<String>::new());
    let bad = "`dormouse jbo logs` `make nothing`\n```sh\ndormouse job logs\ndormouse jobs --phrase x; dormouse up --lease none\n```\n```\n$ dormouse nonsense\nanswer\n```\n";
    let wrong = wrong_commands(&page(bad));
    assert_eq!(wrong.len(), 6, "{wrong:#?}");
    let known = BTreeSet::from(["--phase".to_owned()]);
    assert_eq!(
        wrong_flags(&page("`--phase x` `--phrase=x`"), &known).len(),
        1
    );
}
