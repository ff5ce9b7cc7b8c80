//! Declares the command line: commands, global flags, and examples in the help pages. Each file of `cli/`
//! holds the arguments of a few commands; `others` has tips for other systems' names.

pub mod gateway;
pub mod global;
pub mod job_name;
pub mod list;
pub mod node;
pub mod others;
pub mod point;
pub mod serve;
pub mod since;
pub mod web;
pub mod weight;

use std::ffi::OsString;
use std::path::PathBuf;

use crate::commands::simulate::args::SimulateArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
use global::Global;
use serve::{ConfigureArgs, DemoArgs, ServeArgs, UpArgs};

use crate::commands::accounts::AccountsCommand;
use crate::commands::explain::ExplainArgs;
use crate::commands::job::JobCommand;
use crate::commands::jobs::JobsArgs;
use crate::commands::key::KeyArgs;
use crate::commands::ledger::LedgerArgs;
use crate::commands::log::LogCommand;
use crate::commands::node::NodeCommand;
use crate::commands::nodes::NodesArgs;
use crate::commands::notebook::NotebookCommand;
use crate::commands::plan::PlanArgs;
use crate::commands::replay::ReplayCommand;
use crate::commands::run::RunArgs;
use crate::commands::submit::SubmitArgs;
use crate::commands::tenants::{TenantCommand, TenantsArgs};
use crate::commands::timeline::TimelineArgs;
use crate::commands::webhook::WebhookCommand;
use crate::commands::whatif::WhatifArgs;

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
    /// Run a local cluster: broker, services and nodes in this process
    #[command(
        after_help = "Examples:\n  dormouse up\n  dormouse up --nodes 4 --capacity cpu=8,memory=16Gi\n  dormouse up --runtime docker --sync always\n\nStop it with ^C, or with `dormouse down`: containers run on, and the next `up` adopts them. It keeps in its folder what it was started with: the next `up` needs no flags, and takes those that are given."
    )]
    Up(UpArgs),
    /// Stop the local cluster of `up`, in order
    #[command(
        after_help = "Examples:\n  dormouse down\n  dormouse down --data /srv/dormouse\n\nContainers run on, and the next `up` adopts them; `dormouse job cancel` ends jobs. Exit code: 0 also where nothing runs."
    )]
    Down,
    /// Run a demo: a local cluster that grows and shrinks real training jobs
    #[command(
        after_help = "Examples:\n  dormouse demo                               # in the repository, or in an unpacked archive\n  dormouse demo --export /tmp/log.jsonl"
    )]
    Demo(DemoArgs),
    /// Run one service of a cluster
    #[command(
        after_help = "Examples:\n  dormouse serve optimizer --server nats://broker:4222\n  dormouse serve agent --node n1 --capacity cpu=16,memory=64Gi --runtime docker\n  dormouse serve gateway --name g0 --listen 0.0.0.0:8080 --url http://serving.example.org --secret gateway.secret\n  dormouse serve web --log log.dmlog                # the page, of a log file\n\nRun two copies of a service: the second stands by and takes over within seconds. Gateways all work at once, each under its own name."
    )]
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
    /// Show the cluster at a glance: policy, use, jobs by phase
    #[command(
        after_help = "Examples:\n  dormouse cluster\n  dormouse cluster -o json\n  dormouse cluster prune --older-than 7       # what would be removed on this machine's nodes\n  dormouse cluster prune --older-than 7 --yes"
    )]
    Cluster(ClusterArgs),
    /// Set the cluster's policy from a YAML or JSON file, or - for standard input; without a file, show the
    /// policy
    #[command(
        after_help = "Examples:\n  dormouse configure                               # the policy in force\n  dormouse configure -o yaml > policy.yaml\n  dormouse configure policy.yaml\n  echo 'policy: {theta1: 0.2, theta2: 0.1}' | dormouse configure -\n  dormouse configure policy.yaml --ensure-streams --replicas 3     # a new cluster\n\nWhat the file does not name keeps its default."
    )]
    Configure(ConfigureArgs),
    #[command(subcommand)]
    Log(LogCommand),
    #[command(subcommand)]
    Replay(ReplayCommand),
    /// Run the optimizer once on a problem in a file, without a cluster
    #[command(
        after_help = "Examples:\n  dormouse solve problem.json\n  dormouse solve - < problem.json"
    )]
    Solve(FileArg),
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
    /// Print the shell's completion script
    #[command(
        after_help = "Examples:\n  dormouse completion bash > /etc/bash_completion.d/dormouse\n  source <(dormouse completion zsh)\n\nIn bash, zsh and fish the names of jobs, of nodes and of tenants are completed too, from the cluster."
    )]
    Completion {
        /// Shell.
        shell: clap_complete::Shell,
    },
    /// Print the names that a shell completes
    #[command(hide = true)]
    Names {
        /// Names to print.
        of: NamesOf,
    },
    /// Print the JSON Schema of a document, for editors
    #[command(
        after_help = "Examples:\n  dormouse schema job > job.schema.json\n  dormouse schema policy -o yaml\n\nEditors with the YAML language server take it from the document's first line:\n# yaml-language-server: $schema=job.schema.json"
    )]
    Schema {
        /// Document type.
        of: SchemaOf,
    },
    /// Show the version of this build and of the broker that `up` would run
    #[command(after_help = "Examples:\n  dormouse version\n  dormouse version -o json")]
    Version,
    /// Check that this machine and the cluster have all they need, with advice
    #[command(
        after_help = "Examples:\n  dormouse doctor\n  dormouse doctor --server nats://broker:4222 --nkey operator.nk\n  dormouse doctor -o json\n\nIt changes nothing. Exit code: 0 nothing has failed (warnings do not count), 1 something has."
    )]
    Doctor,
    /// Show the cluster and its live jobs, refreshed every two seconds
    #[command(
        after_help = "Examples:\n  dormouse top\n  dormouse top --every 10\n  dormouse top -o json          # a line a change\n\nq or ^C ends it."
    )]
    Top(TopArgs),
    /// Supervises a node's containers. The agent starts `supervisor FOLDER` (an absolute path), which is parsed
    /// before this command line
    #[command(hide = true)]
    Supervisor(SupervisorArgs),
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

/// Documents with a JSON Schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaOf {
    /// A job.
    Job,
    /// The cluster's policy.
    Policy,
}

/// Arguments of `top`.
#[derive(Debug, Clone, Copy, Args)]
pub struct TopArgs {
    /// Seconds between two refreshes.
    #[arg(
        long = "every",
        default_value = "2",
        value_name = "SECONDS",
        value_parser = list::between_looks
    )]
    pub seconds: f64,
}

/// Arguments of `supervisor`.
#[derive(Debug, Clone, Args)]
pub struct SupervisorArgs {
    /// End a node's containers in an engine, found by the labels of cluster and node.
    #[arg(long, num_args = 2, required = true, value_names = ["CLUSTER", "NODE"])]
    pub engine: Vec<String>,
}

/// Arguments of `cluster`.
#[derive(Debug, Clone, Args)]
pub struct ClusterArgs {
    #[command(subcommand)]
    pub command: Option<ClusterCommand>,
}

/// Subcommands of `cluster`.
#[derive(Debug, Clone, Subcommand)]
pub enum ClusterCommand {
    /// Show the files that ended containers have left on this machine's nodes, or remove them
    #[command(
        after_help = "Examples:\n  dormouse cluster prune                        # shows what would be removed\n  dormouse cluster prune --older-than 7 --yes"
    )]
    Prune(PruneArgs),
}

/// Arguments of `cluster prune`.
#[derive(Debug, Clone, Args)]
pub struct PruneArgs {
    /// Only files last written to at least this many days ago.
    #[arg(long, default_value_t = 30, value_name = "DAYS")]
    pub older_than: u32,
    /// Remove the files; without this flag they are only shown.
    #[arg(long)]
    pub yes: bool,
}

/// A file argument.
#[derive(Debug, Clone, Args)]
pub struct FileArg {
    /// File; - is standard input.
    pub file: PathBuf,
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
