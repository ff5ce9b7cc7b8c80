//! Generates `docs/reference/commands.md` from the command line's definition.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command, CommandFactory as _};

use super::assert_generated;
use super::types::{Row, common, listed};
use crate::cli::Cli;

fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
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

fn row(arg: &Arg) -> Row {
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
    let default = if !default.is_empty() {
        format!("default {}", default.join(", "))
    } else if arg.is_required_set() && !arg.is_positional() {
        "required".to_owned()
    } else {
        String::new()
    };
    let variable = arg
        .get_env()
        .map(|name| format!("`{}`", name.to_string_lossy()));
    let notes: Vec<String> = [default, variable.unwrap_or_default()]
        .into_iter()
        .filter(|note| !note.is_empty())
        .collect();
    if !notes.is_empty() {
        let _ = write!(meaning, " ({})", notes.join("; "));
    }
    let name = written(arg);
    let item = format!("- `{name}`: {meaning}\n");
    (name, item)
}

/// The arguments of a heading are explained if there is more to say than their kind.
fn is_explained(arg: &Arg, (name, item): &Row) -> bool {
    let words = item.split_whitespace().count() - name.split_whitespace().count();
    !arg.is_positional() || words > 5
}

fn rows<'a>(args: impl Iterator<Item = &'a Arg>) -> Vec<Row> {
    let shown = args.filter(|arg| !arg.is_hide_set());
    let items = shown.map(|arg| (arg, row(arg)));
    let explained = items.filter(|(arg, item)| is_explained(arg, item));
    explained.map(|(_, item)| item).collect()
}

/// The arguments behind a command's name; brackets mean optional.
fn arguments(command: &Command) -> String {
    let argument = |arg: &Arg| {
        if arg.is_required_set() {
            format!(" {}", written(arg))
        } else {
            format!(" [{}]", written(arg))
        }
    };
    let shown = command.get_positionals().filter(|arg| !arg.is_hide_set());
    shown.map(argument).collect()
}

/// The text behind the flags; `--help` shows the examples.
fn after(command: &Command) -> String {
    let text = command.get_after_help().map(ToString::to_string);
    let text = text.unwrap_or_default();
    let said = text
        .split("\n\n")
        .filter(|part| !part.is_empty() && !part.starts_with("Examples:\n"));
    said.map(|part| format!("{}\n\n", part.replace('\n', " ")))
        .collect()
}

struct Section {
    head: String,
    rows: Vec<Row>,
    after: String,
}

fn sections(command: &Command, before: &str, all: &mut Vec<Section>) {
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
        all.push(Section {
            head: format!("### {}{}\n\n{about}.\n\n", name.trim(), arguments(command)),
            rows: rows(own),
            after: after(command),
        });
    }
    for inner in inner {
        sections(inner, &name, all);
    }
}

#[test]
fn the_reference_of_commands_is_the_command_line() {
    let command = Cli::command();
    let page = "docs/reference/commands.md";
    let global = rows(command.get_arguments().filter(|arg| arg.is_global_set()));
    let list = |rows: &[Row]| rows.iter().map(|(_, item)| item.as_str()).collect();
    let text: String = list(&global);
    assert_generated(page, "global", &text);
    let mut all = Vec::new();
    let shown = command.get_subcommands().filter(|it| !it.is_hide_set());
    shown.for_each(|inner| sections(inner, "", &mut all));
    let flags = all.iter().flat_map(|section| &section.rows);
    let shared = common(flags.filter(|(name, _)| name.starts_with('-')), 2);
    let text: String = list(&shared);
    assert_generated(page, "shared", &text);
    let mut text = String::new();
    for section in &all {
        let flags = listed(&section.rows, &shared, "Also");
        let gap = if flags.is_empty() { "" } else { "\n" };
        let _ = write!(text, "{}{flags}{gap}{}", section.head, section.after);
    }
    assert!(
        text.contains("### job wait"),
        "commands below commands are there"
    );
    assert_generated(page, "commands", &text);
}
