//! Declares the command line. The file of each command holds its flags, help, examples and action.
//!
//! - `global` has the flags of every command.
//! - `duration`, `filter`, `job_name`, `log_range`, `node`, `streams` and `weight` have arguments that commands
//!   share.
//! - `words` answers unknown commands.

pub mod duration;
pub mod filter;
pub mod global;
pub mod job_name;
pub mod log_range;
pub mod node;
pub mod slurm_node;
pub mod streams;
pub mod weight;
pub mod words;

use std::ffi::OsString;

use clap::{CommandFactory as _, Parser, Subcommand};
use global::Global;

use crate::commands::account::AccountCommand;
use crate::commands::alloc::AllocCommand;
use crate::commands::cluster::ClusterCommand;
use crate::commands::completion::{CompletionArgs, NamesArgs};
use crate::commands::down::DownArgs;
use crate::commands::explain::ExplainArgs;
use crate::commands::job::JobCommand;
use crate::commands::lab::LabCommand;
use crate::commands::ledger::LedgerArgs;
use crate::commands::log::LogCommand;
use crate::commands::node::NodeCommand;
use crate::commands::notebook::NotebookCommand;
use crate::commands::plan::PlanArgs;
use crate::commands::policy::PolicyCommand;
use crate::commands::reservation::ReservationCommand;
use crate::commands::run::RunArgs;
use crate::commands::schema::SchemaArgs;
use crate::commands::submit::SubmitArgs;
use crate::commands::supervisor::SupervisorArgs;
use crate::commands::tenant::TenantCommand;
use crate::commands::timeline::TimelineArgs;
use crate::commands::top::TopArgs;
use crate::commands::version::VersionArgs;
use crate::commands::webhook::WebhookCommand;
use crate::commands::whatif::WhatifArgs;
use crate::commands::{self, job, tenant};
use crate::context::Context;
use crate::demo::{self, DemoArgs};
use crate::serve::{self, ServeCommand};
use crate::up;
use crate::up::args::UpArgs;

/// Shares one cluster among machine-learning jobs, over one log that anyone can read and replay.
#[derive(Debug, Parser)]
#[command(name = "dormouse", version, max_term_width = 100)]
#[command(
    after_help = "Start with:\n  dormouse up                     a local cluster, in this terminal\n  dormouse submit job.yaml        in another one\n  dormouse job list               or dormouse jobs\n  dormouse                        the state of the cluster\n\nFlags win over the environment (DORMOUSE_…), the environment over the configuration file."
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    /// Without a command, the state of the cluster is shown.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Reads a command line; none if it is not one of `up`.
///
/// # Errors
/// If it is no command line.
pub fn up_of(words: Vec<OsString>) -> clap::error::Result<Option<UpArgs>> {
    Ok(match Cli::try_parse_from(words)?.command {
        Some(Command::Up(args)) => Some(args),
        _ => None,
    })
}

/// All commands. Hidden ones are short forms, or are for programs.
#[derive(Debug, Subcommand)]
pub enum Command {
    Up(UpArgs),
    Down(DownArgs),
    Demo(DemoArgs),
    #[command(aliases = ["apply", "create", "sbatch"])]
    Submit(SubmitArgs),
    #[command(alias = "srun")]
    Run(RunArgs),
    #[command(subcommand)]
    Job(JobCommand),
    #[command(subcommand)]
    Node(NodeCommand),
    #[command(subcommand)]
    Tenant(TenantCommand),
    #[command(subcommand)]
    Notebook(NotebookCommand),
    #[command(subcommand)]
    Policy(PolicyCommand),
    #[command(subcommand)]
    Cluster(ClusterCommand),
    #[command(subcommand)]
    Account(AccountCommand),
    #[command(subcommand)]
    Alloc(AllocCommand),
    #[command(subcommand)]
    Reservation(ReservationCommand),
    #[command(subcommand)]
    Webhook(WebhookCommand),
    Top(TopArgs),
    Explain(ExplainArgs),
    Plan(PlanArgs),
    Whatif(WhatifArgs),
    Timeline(TimelineArgs),
    Ledger(LedgerArgs),
    #[command(subcommand)]
    Log(LogCommand),
    #[command(subcommand)]
    Lab(LabCommand),
    #[command(subcommand)]
    Serve(ServeCommand),
    Completion(CompletionArgs),
    Schema(SchemaArgs),
    Version(VersionArgs),
    #[command(hide = true, aliases = ["squeue", "sacct", "ps"])]
    Jobs(job::list::ListArgs),
    #[command(hide = true, alias = "sinfo")]
    Nodes(commands::node::list::ListArgs),
    #[command(hide = true)]
    Tenants(tenant::list::ListArgs),
    Names(NamesArgs),
    Supervisor(SupervisorArgs),
}

/// Runs a command line.
///
/// # Errors
/// Those of the command.
pub async fn run(cli: Cli) -> anyhow::Result<u8> {
    let context = Context::new(cli.global)?;
    let Some(command) = cli.command else {
        return commands::top::once(&context).await;
    };
    match command {
        Command::Up(args) => up::run(&context, &args, up_of).await,
        Command::Down(_) => commands::down::run(&context).await,
        Command::Demo(args) => demo::run(&context, &args).await,
        Command::Submit(args) => commands::submit::run(&context, &args).await,
        Command::Run(args) => commands::run::run(&context, &args).await,
        Command::Job(command) => job::run(&context, &command).await,
        Command::Jobs(args) => job::list::run(&context, &args).await,
        Command::Node(command) => commands::node::run(&context, &command).await,
        Command::Nodes(args) => commands::node::list::run(&context, args).await,
        Command::Tenant(command) => tenant::run(&context, &command).await,
        Command::Tenants(args) => tenant::list::run(&context, args).await,
        Command::Notebook(command) => commands::notebook::run(&context, &command).await,
        Command::Policy(command) => commands::policy::run(&context, &command).await,
        Command::Cluster(command) => commands::cluster::run(&context, &command).await,
        Command::Account(command) => commands::account::run(&context, &command).await,
        Command::Alloc(command) => commands::alloc::run(&context, &command).await,
        Command::Reservation(command) => commands::reservation::run(&context, &command).await,
        Command::Webhook(command) => commands::webhook::run(&context, &command).await,
        Command::Top(args) => commands::top::run(&context, args).await,
        Command::Explain(args) => commands::explain::run(&context, &args).await,
        Command::Plan(args) => commands::plan::run(&context, &args).await,
        Command::Whatif(args) => commands::whatif::run(&context, &args).await,
        Command::Timeline(args) => commands::timeline::run(&context, &args).await,
        Command::Ledger(args) => commands::ledger::run(&context, &args).await,
        Command::Log(command) => commands::log::run(&context, &command).await,
        Command::Lab(command) => commands::lab::run(&context, &command),
        Command::Serve(command) => serve::run(&context, command).await,
        Command::Completion(args) => commands::completion::run(&args, Cli::command()),
        Command::Schema(args) => commands::schema::run(&context, args),
        Command::Version(_) => commands::version::run(&context),
        Command::Names(args) => commands::completion::names(&context, args).await,
        Command::Supervisor(args) => Ok(commands::supervisor::run(&args).await),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory as _, Parser as _};

    use super::Cli;

    fn each(command: &Command, words: &str, look: &mut impl FnMut(&str, &Command)) {
        for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
            let words = format!("{words} {}", below.get_name());
            look(&words, below);
            each(below, &words, look);
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_weight_that_is_none_says_what_one_is() {
        for words in [
            "job update ads/lr --weight -1",
            "tenant set ads --weight 0",
            "tenant set ads --max-job-weight many",
        ] {
            let words = ["dormouse"].into_iter().chain(words.split(' '));
            let refused = Cli::try_parse_from(words).expect_err("refused").to_string();
            let what = "a weight is a whole number from 1 to 1000000";
            assert!(refused.contains(what), "{refused}");
        }
    }

    #[test]
    fn every_command_has_examples_and_lines_that_only_the_terminal_breaks() {
        each(&Cli::command(), "dormouse", &mut |words, command| {
            let help = command.get_after_help().map(ToString::to_string);
            let help = help.unwrap_or_default();
            assert!(help.starts_with("Examples:\n  "), "{words}: {help:?}");
            let lines: Vec<&str> = help.lines().collect();
            for pair in lines.windows(2) {
                let is_prose = |line: &str| !line.is_empty() && !line.starts_with([' ', '#']);
                let is_list = pair[0].ends_with([':', ';']);
                let broken = is_prose(pair[0]) && is_prose(pair[1]) && !is_list;
                assert!(!broken, "{words}: {:?} is broken by hand", pair[0]);
            }
        });
    }
}
