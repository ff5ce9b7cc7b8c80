//! Answers an unknown word with the commands of that name or alias at other places.

use std::error::Error as _;
use std::num::ParseIntError;

use clap::Command;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Most commands in one tip.
const MOST: usize = 3;

/// Lists the commands below `command` with this name or alias.
fn named(command: &Command, before: &str, word: &str, found: &mut Vec<String>) {
    for below in command.get_subcommands() {
        let path = format!("{before} {}", below.get_name());
        let is_named = below.get_name() == word || below.get_all_aliases().any(|it| it == word);
        if is_named && !below.is_hide_set() {
            found.push(path.clone());
        }
        named(below, &path, word, found);
    }
}

/// Adds a tip: for an unknown command the commands elsewhere of this name, for letters the wanted number.
#[must_use]
pub fn with_tip(mut error: clap::Error, all: &Command) -> clap::Error {
    if let Some(tip) = tip(&error, all) {
        let tip = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
        error.insert(ContextKind::Suggested, tip);
    }
    error
}

fn tip(error: &clap::Error, all: &Command) -> Option<String> {
    let source = error.source();
    if source.is_some_and(|source| source.is::<ParseIntError>()) {
        return Some("write a whole number, such as 4".to_owned());
    }
    let word = match (error.kind(), error.get(ContextKind::InvalidSubcommand)) {
        (ErrorKind::InvalidSubcommand, Some(ContextValue::String(word))) => word,
        _ => return None,
    };
    let mut found = Vec::new();
    named(all, all.get_name(), word, &mut found);
    found.truncate(MOST);
    (!found.is_empty()).then(|| format!("here that is: {}", found.join(", ")))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser as _};

    use super::*;
    use crate::cli::Cli;

    fn said(line: &str) -> String {
        let error = Cli::command().try_get_matches_from(line.split(' '));
        with_tip(error.expect_err("unknown"), &Cli::command()).to_string()
    }

    #[test]
    fn an_unknown_word_is_answered_with_the_command() {
        for (line, ours) in [
            ("dormouse logs ads/lr", "dormouse job logs"),
            ("dormouse scancel 7", "dormouse job cancel"),
            ("dormouse cordon n1", "dormouse node drain"),
            ("dormouse job submit x", "dormouse submit"),
            (
                "dormouse -o json describe x",
                "dormouse job show, dormouse node show",
            ),
            ("dormouse verify", "dormouse log verify"),
        ] {
            let said = said(line);
            assert!(said.contains(&format!("here that is: {ours}")), "{said}");
        }
        assert!(!said("dormouse fly").contains("here that is"));
    }

    #[test]
    fn letters_where_a_number_is_meant_are_answered_with_one() {
        for line in [
            "dormouse up --nodes x",
            "dormouse run --containers 4-1 -- ls",
        ] {
            let said = said(line);
            assert!(said.contains("write a whole number, such as 4"), "{said}");
        }
    }

    #[test]
    fn words_of_other_systems_are_aliases() {
        for line in [
            "dormouse sbatch job.yaml",
            "dormouse squeue",
            "dormouse sinfo",
            "dormouse job delete ads/lr",
            "dormouse job describe ads/lr",
            "dormouse node uncordon n1",
        ] {
            assert!(Cli::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
    }
}
