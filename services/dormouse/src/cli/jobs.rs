//! `submit`, `jobs`, `job …`, `node …`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use dormouse_messages::{JobId, NodeId};

use super::{LogFileArg, Since};

/// The tenant of whoever names none.
pub const DEFAULT_TENANT: &str = "default";

/// `submit`.
#[derive(Debug, Clone, Args)]
pub struct SubmitArgs {
    /// The job's document; - is standard input.
    pub file: PathBuf,
    /// The tenant. Default: the document's, else `default`.
    #[arg(long, env = "DORMOUSE_TENANT")]
    pub tenant: Option<String>,
}

/// `run`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// The tenant.
    #[arg(long, env = "DORMOUSE_TENANT", default_value = DEFAULT_TENANT)]
    pub tenant: String,
    /// The job's name; one is made where it has none.
    #[arg(long)]
    pub name: Option<String>,
    /// What one container needs.
    #[arg(long, default_value = "cpu=1", value_name = "AMOUNTS", value_parser = demand)]
    pub demand: BTreeMap<String, String>,
    /// How many containers, which all run the command.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub containers: u32,
    /// A variable of its environment, NAME=VALUE; may be repeated.
    #[arg(long, short = 'e', value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Image for the Docker runtime.
    #[arg(long)]
    pub image: Option<String>,
    /// The command, after --.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// `cpu=1,memory=2Gi` as a document has it.
fn demand(text: &str) -> Result<BTreeMap<String, String>, String> {
    let pair = |pair: &str| {
        let (name, amount) = pair
            .split_once('=')
            .ok_or_else(|| format!("{pair:?} is no amount such as cpu=1 or memory=2Gi"))?;
        Ok((name.trim().to_owned(), amount.trim().to_owned()))
    };
    text.split(',').map(pair).collect()
}

/// `jobs`.
#[derive(Debug, Clone, Args)]
pub struct JobsArgs {
    /// Only this tenant's.
    #[arg(long)]
    pub tenant: Option<String>,
    /// Only jobs in these phases, such as running or queued,starting; live for all that are not
    /// over, refused for refused submissions.
    #[arg(long)]
    pub phase: Option<String>,
    /// At most this many, the newest; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub limit: usize,
}

/// `job …`.
#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// Everything about a job
    #[command(
        after_help = "Examples:\n  dormouse job show ads/lr\n  dormouse job show ads/lr -o json\n  dormouse job show ads/lr --log log.jsonl     # as it was at the end of an exported log"
    )]
    Show(JobHistoryArgs),
    /// Its events on the log
    #[command(
        after_help = "Examples:\n  dormouse job events ads/lr\n  dormouse job events ads/lr -o json | jq .type\n  dormouse job events ads/lr --log log.jsonl"
    )]
    Events(JobHistoryArgs),
    /// What its containers printed
    #[command(
        after_help = "Examples:\n  dormouse job logs ads/lr\n  dormouse job logs ads/lr -f --tail 20\n  dormouse job logs ads/lr --since 10m --all\n  dormouse job logs ads/lr --incarnation 1 --rank 0\n  dormouse job logs ads/sweep --task 17"
    )]
    Logs(JobLogsArgs),
    /// The spans of its trace, as Jaeger has them
    #[command(
        after_help = "Examples:\n  dormouse job trace ads/lr\n  dormouse job trace ads/lr --jaeger http://jaeger:16686\n  dormouse job trace ads/lr -o json | jq '.spans[].name'\n\nThe services send spans where OTEL_EXPORTER_OTLP_ENDPOINT says (docs/operating.md)."
    )]
    Trace(JobTraceArgs),
    /// End it
    #[command(after_help = "Examples:\n  dormouse job cancel ads/lr")]
    Cancel(JobArg),
    /// Wait until it has ended (exit code 0 completed, 3 failed, 4 cancelled)
    #[command(after_help = "Examples:\n  dormouse job wait ads/lr && dormouse job logs ads/lr")]
    Wait(JobArg),
}

/// A job's id; without a tenant, that of `submit`.
pub(crate) fn job_id(text: &str) -> Result<JobId, String> {
    let whole = match text.contains('/') {
        true => text.to_owned(),
        false => {
            let tenant = std::env::var("DORMOUSE_TENANT");
            format!("{}/{text}", tenant.as_deref().unwrap_or(DEFAULT_TENANT))
        }
    };
    whole.parse().map_err(|error| {
        format!("{error}; write tenant/name, such as ads/lr (`dormouse jobs` lists them)")
    })
}

/// A job.
#[derive(Debug, Clone, Args)]
pub struct JobArg {
    /// tenant/name; a name alone is of DORMOUSE_TENANT, else of `default`.
    #[arg(value_parser = job_id)]
    pub id: JobId,
}

/// A job, now or in an exported log.
#[derive(Debug, Clone, Args)]
pub struct JobHistoryArgs {
    /// The job.
    #[command(flatten)]
    pub job: JobArg,
    /// Where it is read.
    #[command(flatten)]
    pub log: LogFileArg,
}

/// `job logs`.
#[derive(Debug, Clone, Args)]
pub struct JobLogsArgs {
    /// tenant/name.
    #[arg(value_parser = job_id)]
    pub id: JobId,
    /// Go on printing until the job has ended, also across its resizes.
    #[arg(long, short)]
    pub follow: bool,
    /// Only the last lines of each output.
    #[arg(long, value_name = "LINES")]
    pub tail: Option<u32>,
    /// Only what was printed since: 90s, 10m, 2h, 1d ago, or from a time on (RFC 3339).
    #[arg(long, value_name = "AGO|TIME", conflicts_with = "tail")]
    pub since: Option<Since>,
    /// Only this rank's.
    #[arg(long)]
    pub rank: Option<u32>,
    /// Of this incarnation; default: the newest.
    #[arg(long)]
    pub incarnation: Option<u32>,
    /// Of every incarnation.
    #[arg(long, conflicts_with = "incarnation")]
    pub all: bool,
    /// Of this task of a task set, wherever it ran.
    #[arg(long, conflicts_with_all = ["rank", "incarnation", "all", "follow", "tail", "since"])]
    pub task: Option<u32>,
    /// Ask over this tenant's own subjects: with a tenant's credentials.
    #[arg(long = "as", value_name = "TENANT")]
    pub of: Option<String>,
}

/// `job trace`.
#[derive(Debug, Clone, Args)]
pub struct JobTraceArgs {
    /// The job.
    #[command(flatten)]
    pub job: JobArg,
    /// Jaeger's query address.
    #[arg(
        long,
        value_name = "URL",
        env = "DORMOUSE_JAEGER",
        default_value = "http://127.0.0.1:16686"
    )]
    pub jaeger: String,
    /// Another of the traces that its events belong to; default: the one that its submission began.
    #[arg(long, value_name = "ID")]
    pub trace: Option<String>,
}

/// `nodes`.
#[derive(Debug, Clone, Copy, Args)]
pub struct NodesArgs {
    /// Those too that were lost more than an hour ago.
    #[arg(long)]
    pub all: bool,
}

/// `node …`.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Everything about a node
    #[command(after_help = "Examples:\n  dormouse node show n1\n  dormouse node show n1 -o json")]
    Show(NodeArg),
    /// Move everything off a node and place nothing on it
    #[command(
        after_help = "Examples:\n  dormouse node drain n1\n  dormouse node drain n1 --reason 'a new disk' --deadline 3600\n\nA job without a checkpoint stays until it ends, or until the deadline."
    )]
    Drain(DrainArgs),
    /// Use a drained node again
    #[command(after_help = "Examples:\n  dormouse node restore n1")]
    Restore(NodeArg),
    /// Say that a node's containers have ended, for example because it is switched off: they are
    /// replaced at once
    #[command(after_help = "Examples:\n  dormouse node fence n1 --reason 'its power is off'")]
    Fence(FenceArgs),
    /// Change a node's labels: zone=a sets one, zone- takes it away
    #[command(
        after_help = "Examples:\n  dormouse node label n1 zone=a disk=nvme\n  dormouse node label n1 disk-\n\nWhat runs there runs on; constraints hold at every start."
    )]
    Label(NodeLabelArgs),
    /// Keep jobs away that do not tolerate it: owner=ads puts a taint, owner=ads- takes it away
    #[command(
        after_help = "Examples:\n  dormouse node taint n1 owner=ads\n  dormouse node taint n1 owner=ads-\n\nWhat runs there runs on."
    )]
    Taint(NodeTaintArgs),
    /// Forget a node that is lost, or drained and empty
    #[command(after_help = "Examples:\n  dormouse node remove n1")]
    Remove(NodeArg),
}

/// `node fence`.
#[derive(Debug, Clone, Args)]
pub struct FenceArgs {
    /// The node.
    pub name: NodeId,
    /// How that is known, for whoever reads the log.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
}

/// `node drain`.
#[derive(Debug, Clone, Args)]
pub struct DrainArgs {
    /// The node.
    #[command(flatten)]
    pub node: NodeArg,
    /// Why, for whoever looks at the node.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Seconds until what still runs there is stopped, to start again elsewhere.
    #[arg(long, value_name = "SECONDS")]
    pub deadline: Option<u32>,
}

/// `node label`.
#[derive(Debug, Clone, Args)]
pub struct NodeLabelArgs {
    /// The node; it need not have joined yet.
    pub name: NodeId,
    /// Labels.
    #[arg(required = true, value_name = "LABEL=VALUE")]
    pub labels: Vec<String>,
}

/// `node taint`.
#[derive(Debug, Clone, Args)]
pub struct NodeTaintArgs {
    /// The node; it need not have joined yet.
    pub name: NodeId,
    /// Taints.
    #[arg(required = true, value_name = "TAINT")]
    pub taints: Vec<String>,
}

/// A node.
#[derive(Debug, Clone, Args)]
pub struct NodeArg {
    /// Its name.
    pub name: NodeId,
}
