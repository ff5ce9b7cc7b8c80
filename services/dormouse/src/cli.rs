//! Declares the command line. The file of each command holds its flags, help and examples.
//!
//! - `global` has the flags of every command.
//! - `job_name`, `list`, `node`, `point`, `since`, `streams` and `weight` have arguments that commands share.
//! - `others` has tips for other systems' names.

pub mod global;
pub mod job_name;
pub mod list;
pub mod node;
pub mod others;
pub mod point;
pub mod since;
pub mod streams;
pub mod weight;

use std::ffi::OsString;

use clap::{Parser, Subcommand};
use global::Global;

use crate::commands::accounts::AccountsCommand;
use crate::commands::cluster::ClusterArgs;
use crate::commands::configure::ConfigureArgs;
use crate::commands::doctor::DoctorArgs;
use crate::commands::down::DownArgs;
use crate::commands::explain::ExplainArgs;
use crate::commands::job::JobCommand;
use crate::commands::jobs::JobsArgs;
use crate::commands::key::KeyArgs;
use crate::commands::ledger::LedgerArgs;
use crate::commands::log::LogCommand;
use crate::commands::names::{CompletionArgs, NamesArgs};
use crate::commands::node::NodeCommand;
use crate::commands::nodes::NodesArgs;
use crate::commands::notebook::NotebookCommand;
use crate::commands::overview::TopArgs;
use crate::commands::plan::PlanArgs;
use crate::commands::replay::ReplayCommand;
use crate::commands::run::RunArgs;
use crate::commands::schema::SchemaArgs;
use crate::commands::simulate::args::SimulateArgs;
use crate::commands::solve::SolveArgs;
use crate::commands::submit::SubmitArgs;
use crate::commands::supervisor::SupervisorArgs;
use crate::commands::tenants::{TenantCommand, TenantsArgs};
use crate::commands::timeline::TimelineArgs;
use crate::commands::version::VersionArgs;
use crate::commands::webhook::WebhookCommand;
use crate::commands::whatif::WhatifArgs;
use crate::demo::DemoArgs;
use crate::serve::args::ServeArgs;
use crate::up::args::UpArgs;

/// Shares one cluster among machine-learning jobs, over one log that anyone can read and replay.
#[derive(Debug, Parser)]
#[command(name = "dormouse", version, max_term_width = 100)]
#[command(
    after_help = "Start with:\n  dormouse up                     a local cluster, in this terminal\n  dormouse submit job.yaml        in another one\n  dormouse jobs\n  dormouse                        the state of the cluster\n\nFlags win over the environment (DORMOUSE_…), the environment over the configuration file."
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

/// All commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    Up(UpArgs),
    Down(DownArgs),
    Demo(DemoArgs),
    Serve(Box<ServeArgs>),
    Submit(SubmitArgs),
    Run(RunArgs),
    Jobs(JobsArgs),
    #[command(subcommand)]
    Job(JobCommand),
    Nodes(NodesArgs),
    #[command(subcommand)]
    Node(NodeCommand),
    Tenants(TenantsArgs),
    #[command(subcommand)]
    Tenant(TenantCommand),
    #[command(subcommand)]
    Webhook(WebhookCommand),
    Cluster(ClusterArgs),
    Configure(ConfigureArgs),
    #[command(subcommand)]
    Log(LogCommand),
    #[command(subcommand)]
    Replay(ReplayCommand),
    Solve(SolveArgs),
    Simulate(SimulateArgs),
    Timeline(TimelineArgs),
    Explain(ExplainArgs),
    Plan(PlanArgs),
    Whatif(WhatifArgs),
    Ledger(LedgerArgs),
    #[command(subcommand)]
    Notebook(NotebookCommand),
    #[command(subcommand)]
    Accounts(AccountsCommand),
    Key(KeyArgs),
    Completion(CompletionArgs),
    Names(NamesArgs),
    Schema(SchemaArgs),
    Version(VersionArgs),
    Doctor(DoctorArgs),
    Top(TopArgs),
    Supervisor(SupervisorArgs),
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
    fn a_weight_that_is_none_says_what_one_is() {
        for words in [
            "job revise ads/lr --weight -1",
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
