//! Names for shell completion, and the scripts that request them.

use std::time::Duration;

use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;
use dormouse_projections::queries::{JobsAnswer, JobsQuery, NodesAnswer, TenantsAnswer};
use dormouse_runtime::Log;
use serde_json::Value;

use super::query;
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

/// Print the shell's completion script
#[derive(Debug, Clone, Copy, Args)]
#[command(
    after_help = "Examples:\n  dormouse completion bash > /etc/bash_completion.d/dormouse\n  source <(dormouse completion zsh)\n\nIn bash, zsh and fish the names of jobs, of nodes and of tenants are completed too, from the cluster."
)]
pub struct CompletionArgs {
    /// Shell.
    pub shell: Shell,
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
pub async fn run(context: &Context, args: NamesArgs) -> anyhow::Result<u8> {
    let asked = async {
        let log = context.connect().await?;
        names(&log, args.of).await
    };
    if let Ok(Ok(names)) = tokio::time::timeout(PATIENCE, asked).await {
        for name in names {
            print::line(name)?;
        }
    }
    Ok(DONE)
}

async fn names(log: &Log, of: NamesOf) -> anyhow::Result<Vec<String>> {
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

/// Prints the completion script of `command`.
///
/// # Errors
/// If the standard output is closed.
pub fn completion(args: CompletionArgs, command: &mut Command) -> anyhow::Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "dormouse", &mut script);
    print::line(String::from_utf8_lossy(&script).trim_end())?;
    match args.shell {
        Shell::Bash => print::line(BASH)?,
        Shell::Zsh => print::line(ZSH)?,
        Shell::Fish => print::line(FISH)?,
        _ => {}
    }
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
complete -c dormouse -f -n 'string match -qr " job (cancel|hold|release|requeue|revise|exec) " -- (commandline -cp)' -a '(dormouse names jobs 2>/dev/null)'
complete -c dormouse -f -n 'string match -qr " (job (show|logs|events|wait)|explain|--job) " -- (commandline -cp)' -a '(dormouse names all-jobs 2>/dev/null)'
complete -c dormouse -f -n 'string match -qr " node [a-z]+ " -- (commandline -cp)' -a '(dormouse names nodes 2>/dev/null)'
complete -c dormouse -f -n 'string match -qr " (tenant [a-z]+|--tenant|--as) " -- (commandline -cp)' -a '(dormouse names tenants 2>/dev/null)'"#;
