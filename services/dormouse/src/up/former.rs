//! Keeps the flags of `up` in the cluster's folder as defaults of later starts, so that a start without flags
//! does not shrink the cluster.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use anyhow::Context as _;
use clap::{ArgMatches, Command};

use crate::up::args::UpArgs;

const FILE: &str = "up.json";

const DEFAULTS: &str = "defaults";

/// Flags as written; `true` for a flag without a value.
pub type Flags = BTreeMap<String, String>;

/// Returns the flags of `up` that were given.
#[must_use]
pub fn given(all: &Command, matches: &ArgMatches) -> Flags {
    use clap::parser::ValueSource::{CommandLine, EnvVariable};
    let Some(matches) = matches.subcommand_matches("up") else {
        return Flags::new();
    };
    let flags = names(all).into_iter().filter_map(|(id, name)| {
        let said = matches!(matches.value_source(&id), Some(CommandLine | EnvVariable));
        let mut written = matches.get_raw(&id).filter(|_| said)?;
        Some((name, written.next()?.to_string_lossy().into_owned()))
    });
    flags.collect()
}

fn names(all: &Command) -> Vec<(String, String)> {
    let up = all.find_subcommand("up");
    let flags = up.into_iter().flat_map(clap::Command::get_arguments);
    let named = flags.filter_map(|it| Some((it.get_id().to_string(), it.get_long()?.to_owned())));
    named.filter(|(id, _)| id != DEFAULTS).collect()
}

/// The merged flags of a start.
#[derive(Debug)]
pub struct Resolved {
    pub args: UpArgs,
    pub flags: Flags,
    pub said: Option<String>,
}

/// Reads a command line; none if it is not one of `up`.
pub type Parse = fn(Vec<OsString>) -> clap::error::Result<Option<UpArgs>>;

/// Merges the flags of this start with the kept ones.
///
/// # Errors
/// If the kept flags cannot be read.
pub fn resolve(folder: &Path, args: &UpArgs, parse: Parse) -> anyhow::Result<Resolved> {
    let before = if args.defaults {
        Flags::new()
    } else {
        read(folder)?
    };
    let mut flags = before.clone();
    flags.extend(args.given.clone());
    // `false` in the environment means an absent flag.
    let said_so = flags.iter().filter(|(_, value)| *value != "false");
    let words = said_so.map(|(name, value)| word(name, value));
    let words = ["dormouse".into(), "up".into()].into_iter().chain(words);
    let wrong = || {
        let file = folder.join(FILE);
        format!(
            "what {} keeps of an earlier start does not hold any more; start with --defaults and the flags that are to hold",
            file.display()
        )
    };
    let Some(mut resolved) = parse(words.collect()).with_context(wrong)? else {
        anyhow::bail!(wrong());
    };
    resolved.given.clone_from(&args.given);
    Ok(Resolved {
        said: said(&before, &args.given),
        args: resolved,
        flags,
    })
}

fn word(name: &str, value: &str) -> OsString {
    match value {
        "true" => format!("--{name}"),
        value => format!("--{name}={value}"),
    }
    .into()
}

fn said(before: &Flags, given: &Flags) -> Option<String> {
    let written =
        |name: &String, value: &String| word(name, value).to_string_lossy().replacen('=', " ", 1);
    let kept = before.iter().filter(|(name, _)| !given.contains_key(*name));
    let kept: Vec<String> = kept.map(|(name, value)| written(name, value)).collect();
    let changed = before.iter().filter_map(|(name, before)| {
        let now = given.get(name).filter(|now| *now != before)?;
        Some(format!("--{name} {before} → {now}"))
    });
    let changed: Vec<String> = changed.collect();
    let mut parts = Vec::new();
    if !kept.is_empty() {
        parts.push(format!(
            "As at the last start: {} (--defaults leaves that out).",
            kept.join(" ")
        ));
    }
    if !changed.is_empty() {
        parts.push(format!("Changed: {}.", changed.join(", ")));
    }
    (!parts.is_empty()).then(|| parts.join(" "))
}

fn read(folder: &Path) -> anyhow::Result<Flags> {
    let file = folder.join(FILE);
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Flags::new()),
        Err(error) => return Err(error).with_context(|| file.display().to_string()),
    };
    serde_json::from_str(&text).with_context(|| {
        format!(
            "{} is not what an earlier start has written; remove it, and name the flags that are to hold",
            file.display()
        )
    })
}

/// Keeps the flags for the next start.
///
/// # Errors
/// The disk's.
pub fn keep(folder: &Path, flags: &Flags) -> anyhow::Result<()> {
    let (file, new) = (folder.join(FILE), folder.join("up.json.new"));
    let text = serde_json::to_string_pretty(flags)?;
    std::fs::write(&new, text + "\n").with_context(|| new.display().to_string())?;
    std::fs::rename(&new, &file).with_context(|| file.display().to_string())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};
    use dormouse_messages::Resource;

    use super::*;
    use crate::cli::duration::Limit;
    use crate::cli::{Cli, Command, up_of};

    fn start(folder: &Path, flags: &[&str]) -> Resolved {
        let words = ["dormouse", "up"].iter().chain(flags);
        let matches = Cli::command().try_get_matches_from(words.clone());
        let parsed = Cli::try_parse_from(words).expect("flags").command;
        let Some(Command::Up(mut args)) = parsed else {
            panic!("not `up`");
        };
        args.given = given(&Cli::command(), &matches.expect("flags"));
        let resolved = resolve(folder, &args, up_of).expect("resolved");
        keep(folder, &resolved.flags).expect("kept");
        resolved
    }

    #[test]
    fn a_start_without_flags_is_the_one_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        let first = start(
            folder,
            &["--nodes", "3", "--capacity", "cpu=4,gpu=2", "--json-status"],
        );
        assert_eq!(first.said, None);
        let again = start(folder, &[]);
        let gpus = again.args.capacity.expect("kept").get(&Resource::Gpu);
        assert_eq!((again.args.nodes, gpus), (3, 2_000));
        assert!(again.args.json_status);
        let said = again.said.expect("said");
        assert_eq!(
            said,
            "As at the last start: --capacity cpu=4,gpu=2 --json-status --nodes 3 (--defaults leaves that out)."
        );
    }

    #[test]
    fn a_changed_flag_is_taken_and_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        start(folder, &["--nodes=3", "--keep-logs", "none"]);
        let changed = start(folder, &["--nodes", "2"]);
        let kept = changed.args.keep.keep_logs;
        assert_eq!((changed.args.nodes, kept), (2, Limit(0)));
        let said = changed.said.expect("said");
        assert!(said.ends_with("Changed: --nodes 3 → 2."), "{said}");
        assert_eq!(start(folder, &[]).args.nodes, 2);
        let defaults = start(folder, &["--defaults"]);
        assert_eq!((defaults.args.nodes, defaults.said), (1, None));
        assert_eq!(start(folder, &[]).args.nodes, 1);
    }

    #[test]
    fn what_cannot_be_read_says_what_to_do() {
        let folder = tempfile::tempdir().expect("a folder");
        let Some(Command::Up(args)) = Cli::try_parse_from(["dormouse", "up"])
            .expect("flags")
            .command
        else {
            panic!("not `up`");
        };
        for (text, what) in [("[", "remove it"), (r#"{"nodes": "x"}"#, "--defaults")] {
            std::fs::write(folder.path().join(FILE), text).expect("written");
            let error = resolve(folder.path(), &args, up_of).expect_err("not readable");
            assert!(error.to_string().contains(what), "{error:#}");
        }
    }
}
