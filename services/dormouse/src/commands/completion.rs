//! Names for shell completion, and the scripts that request them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;
use dormouse_projections::queries::{JobsAnswer, JobsQuery, NodesAnswer, TenantsAnswer};
use dormouse_runtime::Log;
use serde_json::Value;

use super::common::query;
use crate::context::Context;
use crate::error::DONE;
use crate::print;

/// Print the names that a shell completes
#[derive(Debug, Clone, Copy, Args)]
#[command(hide = true)]
pub struct NamesArgs {
    /// Names to print.
    pub of: NamesOf,
}

/// Print the completion script of a shell, or write the pages of the manual
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse completion bash > /etc/bash_completion.d/dormouse\n  source <(dormouse completion zsh)\n  dormouse completion man /usr/local/share/man/man1\n\nIn bash, zsh and fish names of jobs, nodes and tenants are completed from the cluster."
)]
pub struct CompletionArgs {
    /// Shell, or man for the manual.
    pub form: Form,
    /// Folder of the manual's pages.
    #[arg(value_name = "DIR", required_if_eq("form", "man"))]
    pub folder: Option<PathBuf>,
}

/// The output of `completion`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    Bash,
    Elvish,
    Fish,
    Powershell,
    Zsh,
    Man,
}

/// Kinds of names for completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NamesOf {
    Jobs,
    /// Live and ended jobs, newest first.
    AllJobs,
    Nodes,
    Tenants,
}

/// A completion must not take longer.
const PATIENCE: Duration = Duration::from_secs(1);
const MOST: usize = 500;

/// Prints names; none if no cluster answers.
///
/// # Errors
/// If the standard output is closed.
pub async fn names(context: &Context, args: NamesArgs) -> anyhow::Result<u8> {
    let asked = async {
        let log = context.connect().await?;
        asked_for(&log, args.of).await
    };
    if let Ok(Ok(names)) = tokio::time::timeout(PATIENCE, asked).await {
        for name in names {
            print::line(name)?;
        }
    }
    Ok(DONE)
}

async fn asked_for(log: &Log, of: NamesOf) -> anyhow::Result<Vec<String>> {
    Ok(match of {
        NamesOf::Jobs | NamesOf::AllJobs => {
            let request = JobsQuery {
                phase: (of == NamesOf::Jobs).then(|| "live".to_owned()),
                limit: MOST,
                ..JobsQuery::default()
            };
            let answer: JobsAnswer = query(log, "jobs", serde_json::to_value(&request)?).await?;
            let jobs = answer.jobs.iter().rev();
            jobs.map(|row| row.job.to_string()).collect()
        }
        NamesOf::Nodes => {
            let answer: NodesAnswer = query(log, "nodes", Value::Null).await?;
            answer
                .nodes
                .iter()
                .map(|row| row.node.to_string())
                .collect()
        }
        NamesOf::Tenants => {
            let answer: TenantsAnswer = query(log, "tenants", Value::Null).await?;
            let tenants = answer.tenants.iter();
            tenants.map(|row| row.tenant.to_string()).collect()
        }
    })
}

/// Runs `completion`.
///
/// # Errors
/// If the standard output is closed, or a page cannot be written.
pub fn run(args: &CompletionArgs, mut command: Command) -> anyhow::Result<u8> {
    let (shell, names) = match args.form {
        Form::Bash => (Shell::Bash, BASH),
        Form::Elvish => (Shell::Elvish, ""),
        Form::Fish => (Shell::Fish, FISH),
        Form::Powershell => (Shell::PowerShell, ""),
        Form::Zsh => (Shell::Zsh, ZSH),
        Form::Man => {
            let folder = args.folder.as_deref().unwrap_or(Path::new("."));
            std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
            clap_mangen::generate_to(command, folder)?;
            return Ok(DONE);
        }
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "dormouse", &mut script);
    print::line(format!("{}{names}", String::from_utf8_lossy(&script)).trim_end())?;
    Ok(DONE)
}

const BASH: &str = r#"
_dormouse_or_names() {
    local cur="${COMP_WORDS[COMP_CWORD]}" before=" ${COMP_WORDS[*]:1:COMP_CWORD-1} " of=
    case "$before" in
        *" --phase "|*" --sort "|*" -o "|*" --output ") ;;
        *" --tenant "|*" --as ") of=tenants ;;
        *" --job "|*" explain "|*" job show "*|*" job logs "*|*" job events "*|*" job wait "*) of=all-jobs ;;
        *" job "[a-z]*" "*) of=jobs ;;
        *" node "[a-z]*" "*) of=nodes ;;
        *" tenant "[a-z]*" "*) of=tenants ;;
    esac
    if [[ -n "$of" && "$cur" != -* ]]; then
        COMPREPLY=($(compgen -W "$(dormouse names "$of" 2>/dev/null)" -- "$cur"))
        [[ ${#COMPREPLY[@]} -gt 0 ]] && return
    fi
    _dormouse "$@"
}
complete -F _dormouse_or_names -o bashdefault -o default dormouse"#;

const ZSH: &str = r#"
_dormouse_or_names() {
    local before=" ${words[2,CURRENT-1]} " of=
    case $before in
        *" --phase "|*" --sort "|*" -o "|*" --output ") ;;
        *" --tenant "|*" --as ") of=tenants ;;
        *" --job "|*" explain "|*" job show "*|*" job logs "*|*" job events "*|*" job wait "*) of=all-jobs ;;
        *" job "[a-z]*" "*) of=jobs ;;
        *" node "[a-z]*" "*) of=nodes ;;
        *" tenant "[a-z]*" "*) of=tenants ;;
    esac
    if [[ -n $of && $PREFIX != -* ]]; then
        local -a names
        names=(${(f)"$(dormouse names $of 2>/dev/null)"})
        (( $#names )) && compadd -- $names && return
    fi
    _dormouse "$@"
}
compdef _dormouse_or_names dormouse"#;

const FISH: &str = r#"
complete -c dormouse -f -n 'string match -qr " job (cancel|hold|release|requeue|update|exec) " -- (commandline -cp)' -a '(dormouse names jobs 2>/dev/null)'
complete -c dormouse -f -n 'string match -qr " (job (show|logs|events|wait)|explain|--job) " -- (commandline -cp)' -a '(dormouse names all-jobs 2>/dev/null)'
complete -c dormouse -f -n 'string match -qr " node [a-z]+ " -- (commandline -cp)' -a '(dormouse names nodes 2>/dev/null)'
complete -c dormouse -f -n 'string match -qr " (tenant [a-z]+|--tenant|--as) " -- (commandline -cp)' -a '(dormouse names tenants 2>/dev/null)'"#;
