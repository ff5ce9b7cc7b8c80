//! Declares the command line: commands, global flags, and examples in the help pages. Each file of `cli/`
//! holds the arguments of a few commands; `others` has tips for other systems' names.

pub mod changes;
pub mod gateway;
pub mod global;
pub mod history;
pub mod job_name;
pub mod list;
pub mod node;
pub mod notebooks;
pub mod others;
pub mod point;
pub mod questions;
pub mod serve;
pub mod simulate;
pub mod since;
pub mod web;
pub mod webhook;
pub mod weight;

use std::ffi::OsString;
use std::path::PathBuf;

use changes::{PlanArgs, WhatifArgs};
use clap::{Args, Parser, Subcommand, ValueEnum};
use gateway::KeyArgs;
use global::Global;
use history::{LogCommand, ReplayCommand, TimelineArgs};
use notebooks::NotebookCommand;
use questions::{ExplainArgs, LedgerArgs};
use serve::{ConfigureArgs, DemoArgs, ServeArgs, UpArgs};
use simulate::SimulateArgs;
use webhook::WebhookCommand;

use crate::commands::accounts::AccountsCommand;
use crate::commands::job::JobCommand;
use crate::commands::jobs::JobsArgs;
use crate::commands::node::NodeCommand;
use crate::commands::nodes::NodesArgs;
use crate::commands::run::RunArgs;
use crate::commands::submit::SubmitArgs;
use crate::commands::tenants::{TenantCommand, TenantsArgs};

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
    /// Post a tenant's events to an address, signed and in order
    #[command(
        subcommand,
        after_help = "Examples:\n  dormouse webhook list\n  dormouse webhook set ads https://hooks.example.org/dormouse"
    )]
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
    /// Read the log
    #[command(
        subcommand,
        after_help = "Examples:\n  dormouse log tail\n  dormouse log export -o log.dmlog"
    )]
    Log(LogCommand),
    /// Reconstruct and check past states and decisions
    #[command(
        subcommand,
        after_help = "Examples:\n  dormouse replay state --at 10:00:00\n  dormouse replay verify"
    )]
    Replay(ReplayCommand),
    /// Run the optimizer once on a problem in a file, without a cluster
    #[command(
        after_help = "Examples:\n  dormouse solve problem.json\n  dormouse solve - < problem.json"
    )]
    Solve(FileArg),
    /// Simulate a cluster: the real services over a virtual clock
    #[command(
        after_help = "Examples:\n  dormouse simulate scenario.json\n  dormouse simulate scenario.json --policy static,dorm-3,default --report report.html\n  dormouse simulate scenario.json --set policy.theta1=0.1,0.2 --set costs.adjustment_s=60 -o json\n  dormouse simulate table2:1..20 --policy dorm-3,default\n  dormouse simulate scenario.json --log log.dmlog && dormouse replay verify --log log.dmlog\n  dormouse simulate --generate trace --seed 7 --jobs 5000 --nodes 100 > trace.json\n  dormouse simulate --faults 1..100\n  dormouse simulate serving:a serving:b serving:c --seeds 1..10"
    )]
    Simulate(SimulateArgs),
    /// Draw a metric over time
    #[command(
        after_help = "Examples:\n  dormouse timeline utilization\n  dormouse timeline utilization --from 2h\n  dormouse timeline containers --svg containers.svg\n  dormouse timeline fairness-loss -o json\n  dormouse timeline jobs --log log.jsonl\n  dormouse timeline latency --job ads/line\n\nMetrics of the cluster: utilization, fairness-loss, adjustments, containers, jobs, unfairness;\nby tenant: dominant-share, demand-share, waiting, fairness-loss-by-tenant;\nby job (--job): containers, fairness-loss-by-job, gpu-use (parts of GPUs);\nby service (--job): latency, request-rate, attainment, replicas."
    )]
    Timeline(TimelineArgs),
    /// Explain a job, a tenant, a node or a decision, and find changes with another outcome
    #[command(
        after_help = "Examples:\n  dormouse explain ads/lr\n  dormouse explain ads/lr --at 03:00:00 -o json\n  dormouse explain tenant ads --log log.dmlog\n  dormouse explain node n3\n  dormouse explain epoch/12\n  dormouse explain ads/lr --tenant ads                  # other tenants as amounts\n\nThe changes that are listed were let happen on a fork of the log, and the services decided: each is the least of its kind on its grid; every smaller value was tried and is not enough."
    )]
    Explain(ExplainArgs),
    /// Predict the effect of a job, a drain, a node or a policy before submitting it
    #[command(
        after_help = "Examples:\n  dormouse plan job.yaml\n  dormouse plan --tenant ads job.yaml -o json\n  dormouse plan --drain n3\n  dormouse plan --add-node n9:cpu=16,memory=64Gi\n  dormouse plan --set policy.theta2=0.3\n  dormouse submit job.yaml --if-plan plan1.4712.9f86d081884c7d65.4\n\nExit code: 0 it runs now, or the cluster is changed; 2 it waits; 1 it would be refused."
    )]
    Plan(PlanArgs),
    /// Fork the log, change something, and compare the outcomes
    #[command(
        after_help = "Examples:\n  dormouse whatif --log log.dmlog                                   # the model's own error\n  dormouse whatif --set policy.theta2=0.2,0.5 --log log.dmlog\n  dormouse whatif --set tenant.ads.weight=3 --at 4712 -o json\n  dormouse whatif --set job.ads/lr.containers.min=2 --report report.html\n  dormouse whatif --add-node n9:cpu=16,memory=64Gi --drop-job ads/count\n  dormouse whatif --drop-node n3 --add-jobs more.json\n\nWhat comes from outside stays at its time; the services decide again. First without changes: how far that is off the log is the model's error. Users who react to waiting are not modelled."
    )]
    Whatif(WhatifArgs),
    /// Account for each tenant's and job's entitlement, use, lent and lost share, to the last unit
    #[command(
        after_help = "Examples:\n  dormouse ledger\n  dormouse ledger --from 2026-11-21 --to 2026-11-22 -o csv > day.csv\n  dormouse ledger --tenant ads -o json\n  dormouse ledger --log log.dmlog --from 4712 --job ads/lr\n\n-o csv, -o FILE.csv and -o json have whole numbers: a resource's unit times milliseconds. The tables have hours. Capacity is used + idle + down; what one tenant borrows others have lent."
    )]
    Ledger(LedgerArgs),
    /// Open a notebook, or list them
    #[command(
        subcommand,
        after_help = "Examples:\n  dormouse notebook open ads/analysis\n  dormouse notebook list"
    )]
    Notebook(NotebookCommand),
    #[command(subcommand)]
    Accounts(AccountsCommand),
    /// Print a tenant's key or a service's token for the gateway
    #[command(
        after_help = "Examples:\n  dormouse key ads --secret gateway.secret > ads.key       # the operator, for the tenant\n  dormouse key ads/model --key ads.key                     # the tenant, for a service's callers\n  curl -H \"Authorization: Bearer $(dormouse key ads/model --key ads.key)\" http://serving.example.org/ads/model/"
    )]
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
