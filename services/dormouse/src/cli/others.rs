//! Tips for commands of other systems (Slurm, Kubernetes, Nomad, Ray, Docker): names the equivalent here.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Other systems' command names, and the equivalent here.
const COMMANDS: [(&[&str], &str); 13] = [
    (&["logs", "tail"], "job logs ID"),
    (&["exec", "attach", "ssh"], "job exec ID -- COMMAND"),
    (
        &["cancel", "delete", "kill", "stop", "rm", "scancel"],
        "job cancel ID",
    ),
    (
        &["ps", "list", "ls", "get", "squeue", "queue", "sacct"],
        "jobs",
    ),
    (&["status", "show", "describe", "inspect"], "job show ID"),
    (&["hold", "suspend"], "job hold ID"),
    (&["resume", "unsuspend"], "job release ID"),
    (&["scale", "update", "edit"], "job revise ID"),
    (&["wait"], "job wait ID"),
    (&["sinfo"], "nodes"),
    (&["drain", "cordon"], "node drain NAME"),
    (&["apply", "create", "sbatch", "start"], "submit FILE"),
    (&["srun"], "run -- COMMAND"),
];

const BELOW: [(&str, &[&str], &str); 8] = [
    ("job", &["list", "ls", "status"], "jobs"),
    ("job", &["delete", "kill", "stop", "rm"], "job cancel ID"),
    ("job", &["describe", "get", "inspect"], "job show ID"),
    ("job", &["submit", "run", "apply", "create"], "submit FILE"),
    ("node", &["list", "ls", "status"], "nodes"),
    ("node", &["cordon"], "node drain NAME"),
    (
        "node",
        &["uncordon", "undrain", "resume"],
        "node restore NAME",
    ),
    ("tenant", &["list", "ls"], "tenants"),
];

fn ours(before: &str, word: &str) -> Option<&'static str> {
    let below = BELOW
        .iter()
        .find(|(of, words, _)| *of == before && words.contains(&word));
    let top = COMMANDS.iter().find(|(words, _)| words.contains(&word));
    match before {
        "job" | "node" | "tenant" => below.map(|(_, _, ours)| *ours),
        _ => top.map(|(_, ours)| *ours),
    }
}

/// Adds a tip to an unknown-command error if another system uses the name.
#[must_use]
pub fn with_tip(mut error: clap::Error, words: &[String]) -> clap::Error {
    let named = match (error.kind(), error.get(ContextKind::InvalidSubcommand)) {
        (ErrorKind::InvalidSubcommand, Some(ContextValue::String(word))) => word.clone(),
        _ => return error,
    };
    let at = words.iter().position(|word| *word == named);
    let before = at.and_then(|at| words.get(at.checked_sub(1)?));
    if let Some(ours) = ours(before.map_or("", String::as_str), &named) {
        let tip = StyledStr::from(format!("here that is: dormouse {ours}"));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    error
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn said(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let error = Cli::command().try_get_matches_from(&words);
        with_tip(error.expect_err("unknown"), &words).to_string()
    }

    #[test]
    fn another_systems_word_is_answered_with_ours() {
        for (line, ours) in [
            ("dormouse logs ads/lr", "dormouse job logs ID"),
            ("dormouse delete ads/lr", "dormouse job cancel ID"),
            ("dormouse squeue", "dormouse jobs"),
            ("dormouse job delete ads/lr", "dormouse job cancel ID"),
            ("dormouse node cordon n1", "dormouse node drain NAME"),
            ("dormouse -o json status", "dormouse job show ID"),
        ] {
            let said = said(line);
            assert!(said.contains(&format!("here that is: {ours}")), "{said}");
        }
        assert!(!said("dormouse fly").contains("here that is"));
    }

    #[test]
    fn the_tips_name_commands_that_are_there() {
        let top = Cli::command();
        let below = BELOW
            .iter()
            .map(|(of, words, ours)| (Some(*of), *words, *ours));
        let all = COMMANDS.iter().map(|(words, ours)| (None, *words, *ours));
        for (of, words, ours) in all.chain(below) {
            let mut at = &top;
            let names = ours
                .split(' ')
                .filter(|word| word.chars().all(char::is_lowercase));
            for name in names.filter(|name| *name != "--") {
                at = at.find_subcommand(name).expect(ours);
            }
            let of = of
                .map_or(Some(&top), |of| top.find_subcommand(of))
                .expect("there");
            for word in words {
                assert!(of.find_subcommand(word).is_none(), "{word} is ours");
            }
        }
    }
}
