//! Generates `docs/reference/commands.md` from the command line's definition.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command, CommandFactory as _};

use super::assert_generated;
use crate::cli::Cli;

fn cell(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|")
}

fn written(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let value: Vec<String> = names.iter().map(ToString::to_string).collect();
    let value = if value.is_empty() {
        arg.get_id().as_str().to_uppercase()
    } else {
        value.join(" ")
    };
    let Some(long) = arg.get_long() else {
        return value;
    };
    let short = arg
        .get_short()
        .map(|short| format!("-{short}, "))
        .unwrap_or_default();
    match arg.get_action() {
        // Else the next word would be the value.
        ArgAction::Set if arg.is_require_equals_set() => format!("{short}--{long}[={value}]"),
        ArgAction::Set | ArgAction::Append => format!("{short}--{long} {value}"),
        _ => format!("{short}--{long}"),
    }
}

fn row(arg: &Arg) -> String {
    let help = arg.get_long_help().or(arg.get_help());
    let mut meaning = cell(&help.map(ToString::to_string).unwrap_or_default());
    let values = arg.get_possible_values();
    let takes_value = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    if takes_value && !values.is_empty() {
        let names: Vec<String> = values
            .iter()
            .map(|value| format!("`{}`", value.get_name()))
            .collect();
        let _ = write!(meaning, ". One of {}", names.join(", "));
    }
    let default: Vec<String> = if takes_value {
        arg.get_default_values()
            .iter()
            .map(|v| format!("`{}`", v.to_string_lossy()))
            .collect()
    } else {
        Vec::new()
    };
    let default = match (default.is_empty(), arg.is_required_set()) {
        (false, _) => default.join(", "),
        (true, true) => "required".to_owned(),
        (true, false) => String::new(),
    };
    let variable = arg
        .get_env()
        .map(|name| format!("`{}`", name.to_string_lossy()));
    let variable = variable.unwrap_or_default();
    format!(
        "| `{}` | {meaning} | {default} | {variable} |\n",
        cell(&written(arg))
    )
}

fn table<'a>(args: impl Iterator<Item = &'a Arg>) -> String {
    let rows: String = args.filter(|arg| !arg.is_hide_set()).map(row).collect();
    if rows.is_empty() {
        rows
    } else {
        format!("| argument | meaning | default | variable |\n|---|---|---|---|\n{rows}\n")
    }
}

fn after(command: &Command) -> String {
    let Some(text) = command.get_after_help().map(ToString::to_string) else {
        return String::new();
    };
    let mut said = String::new();
    for part in text.split("\n\n") {
        match part.strip_prefix("Examples:\n") {
            Some(examples) => {
                let lines: String = examples
                    .lines()
                    .map(|line| format!("{}\n", line.trim()))
                    .collect();
                let _ = write!(said, "```sh\n{lines}```\n\n");
            }
            None => {
                let _ = write!(said, "{}\n\n", part.replace('\n', " "));
            }
        }
    }
    said
}

fn section(command: &Command, before: &str, text: &mut String) {
    let name = format!("{before} {}", command.get_name());
    let about = command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default();
    let own = command.get_arguments();
    let own = own
        .filter(|arg| !arg.is_global_set() && !matches!(arg.get_id().as_str(), "help" | "version"));
    let inner: Vec<&Command> = command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set() && inner.get_name() != "help")
        .collect();
    if inner.is_empty() || !command.is_subcommand_required_set() {
        let _ = write!(
            text,
            "### {}\n\n{about}.\n\n{}{}",
            name.trim(),
            table(own),
            after(command)
        );
    }
    for inner in inner {
        section(inner, &name, text);
    }
}

#[test]
fn a_bar_in_the_name_of_a_value_splits_no_cell() {
    let arg = Arg::new("at").long("at").value_name("SEQUENCE|TIME");
    assert_eq!(row(&arg), "| `--at SEQUENCE\\|TIME` |  |  |  |\n");
}

#[test]
fn the_reference_of_commands_is_the_command_line() {
    let command = Cli::command();
    let page = "docs/reference/commands.md";
    assert_generated(
        page,
        "global",
        &table(command.get_arguments().filter(|arg| arg.is_global_set())),
    );
    let mut text = String::new();
    for inner in command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set())
    {
        section(inner, "", &mut text);
    }
    assert!(
        text.contains("### job wait"),
        "commands below commands are there"
    );
    assert_generated(page, "commands", &text);
}
