//! Arguments of `submit`, `run`, `job …` and `node …`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use dormouse_admission::plan::Planned;
use dormouse_messages::NodeId;

use super::job_name::NamedJob;
use super::tenants::weight;
use crate::cli::list::{WaitArgs, WatchArg, WhichArgs};
use crate::cli::node::NodeArg;
use crate::cli::point::LogFileArg;
use crate::cli::since::{Limit, Since};
use crate::commands::documents::Set;

/// Arguments of `submit`.
#[derive(Debug, Clone, Args)]
pub struct SubmitArgs {
    /// Documents: files with one or more jobs, or folders of files (not recursive); - is standard input.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Tenant of the job. Default: the document's, else the key's, else `default`.
    #[arg(long, env = "DORMOUSE_TENANT")]
    pub tenant: Option<String>,
    /// Submit only if the result would still match the `plan` token; else refuse with the difference.
    #[arg(long, value_name = "TOKEN", value_parser = token)]
    pub if_plan: Option<Planned>,
    /// Job name, in place of the document's.
    #[arg(long)]
    pub name: Option<String>,
    /// Set a field of the document, such as env.LR=0.1; several values make one job each, several flags make
    /// every combination.
    #[arg(long, value_name = "PATH=VALUE[,VALUE…]")]
    pub set: Vec<Set>,
    /// Make one job per row of a table: a .csv whose first line names the fields, or a YAML or JSON list of
    /// maps.
    #[arg(long, value_name = "FILE")]
    pub sweep: Option<PathBuf>,
    /// Show admission's decision as of now, without submitting.
    #[arg(long, conflicts_with = "detach")]
    pub dry_run: bool,
    /// Do not wait for the decision.
    #[arg(long)]
    pub detach: bool,
    /// Wait until every job has ended, and report the outcome as `job wait` does.
    #[arg(long, conflicts_with_all = ["detach", "dry_run"])]
    pub wait: bool,
    /// With --wait: the longest wait, such as 90s, 10m or 2h.
    #[arg(long, value_name = "TIME", requires = "wait")]
    pub timeout: Option<Limit>,
}

fn token(text: &str) -> Result<Planned, String> {
    text.parse()
}

/// Arguments of `run`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// Tenant of the job. Default: the key's, else `default`.
    #[arg(long, env = "DORMOUSE_TENANT")]
    pub tenant: Option<String>,
    /// Job name; default: a generated name.
    #[arg(long)]
    pub name: Option<String>,
    /// Resources of one container.
    #[arg(long, default_value = "cpu=1", value_name = "AMOUNTS", value_parser = demand)]
    pub demand: BTreeMap<String, String>,
    /// GPUs of one container, or a part of a GPU such as 0.25; as gpu= in --demand.
    #[arg(long, value_name = "GPUS")]
    pub gpu: Option<String>,
    /// Number of containers; all run the command.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub containers: u32,
    /// Time limit over all restarts: 90s, 10m, 2h or 1d.
    #[arg(long, short = 't', value_name = "TIME")]
    pub time: Option<Limit>,
    /// Do not wait for the job: report the submission's outcome, as `submit` does.
    #[arg(long, short = 'd')]
    pub detach: bool,
    /// Environment variable NAME=VALUE; may be repeated.
    #[arg(long, short = 'e', value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Set a field of the job's document, such as priority=10.
    #[arg(long, value_name = "PATH=VALUE")]
    pub set: Vec<Set>,
    /// Image for the Docker runtime.
    #[arg(long)]
    pub image: Option<String>,
    /// Folder to ship: packed without the files that .gitignore names, and unpacked in the command's working
    /// directory.
    #[arg(long, value_name = "FOLDER", value_hint = clap::ValueHint::DirPath)]
    pub workdir: Option<PathBuf>,
    /// Python packages for the command: a requirements file.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub requirements: Option<PathBuf>,
    /// Command, after --.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// Parses `cpu=1,memory=2Gi` into the demand of a job document.
fn demand(text: &str) -> Result<BTreeMap<String, String>, String> {
    let pair = |pair: &str| {
        let (name, amount) = pair
            .split_once('=')
            .ok_or_else(|| format!("{pair:?} is no amount such as cpu=1 or memory=2Gi"))?;
        Ok((name.trim().to_owned(), amount.trim().to_owned()))
    };
    text.split(',').map(pair).collect()
}

/// Subcommands of `job`.
#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// Show everything about a job
    #[command(
        after_help = "Examples:\n  dormouse job show ads/lr\n  dormouse job show ads/lr -o json\n  dormouse job show ads/lr --document > lr.yaml\n  dormouse job show ads/lr --log log.jsonl     # as it was at the end of an exported log"
    )]
    Show {
        #[command(flatten)]
        of: JobHistoryArgs,
        /// Show the complete document that made the job, ready to submit; in YAML, or with -o json in JSON.
        #[arg(long, conflicts_with = "seconds")]
        document: bool,
        #[command(flatten)]
        watch: WatchArg,
    },
    /// Show a job's events on the log
    #[command(
        after_help = "Examples:\n  dormouse job events ads/lr\n  dormouse job events ads/lr -o json | jq .type\n  dormouse job events ads/lr --log log.jsonl"
    )]
    Events(JobHistoryArgs),
    /// Print the output of a job's containers
    #[command(
        after_help = "Examples:\n  dormouse job logs ads/lr\n  dormouse job logs ads/lr -f --tail 20\n  dormouse job logs ads/lr --since 10m --all\n  dormouse job logs ads/lr --incarnation 1 --rank 0\n  dormouse job logs ads/sweep --task 17"
    )]
    Logs(JobLogsArgs),
    /// Run a program in one of a job's containers: as the job's user, inside the sandbox, recorded on the log
    #[command(
        after_help = "Examples:\n  dormouse job exec ads/lr -- ps -ef\n  dormouse job exec ads/lr --rank 1 -t -- bash\n  dormouse job exec ads/lr -- sh -c 'cat > notes' < notes\n\nIts standard input, output and error are the program's, its exit code is the program's; of one that a signal ended, 128 and the signal's number; 127 where there is no such program. ^C is passed on; the third one kills."
    )]
    Exec(JobExecArgs),
    /// Cancel a job, or all that match
    #[command(
        after_help = "Examples:\n  dormouse job cancel ads/lr\n  dormouse job cancel --tenant ads --phase queued --name 'lr-*'"
    )]
    Cancel(WhichArgs),
    /// Put a job on hold: it gets no resources, and releases its containers after a checkpoint
    #[command(
        after_help = "Examples:\n  dormouse job hold ads/lr\n  dormouse job hold --tenant ads --phase queued --yes"
    )]
    Hold {
        #[command(flatten)]
        which: WhichArgs,
        /// Also hold a job that runs without a checkpoint and will start from the beginning after its
        /// release.
        #[arg(long)]
        force: bool,
    },
    /// Release a held job into the queue
    #[command(
        after_help = "Examples:\n  dormouse job release ads/lr\n  dormouse job release --tenant ads --name 'lr-*' --yes"
    )]
    Release(WhichArgs),
    /// Stop a job after a checkpoint and start it when resources allow
    #[command(after_help = "Examples:\n  dormouse job requeue ads/lr")]
    Requeue {
        #[command(flatten)]
        which: WhichArgs,
        /// Also requeue a job that runs without a checkpoint and will start from the beginning.
        #[arg(long)]
        force: bool,
    },
    /// Change a job's weight, bounds, priority, limits or GPU maximum
    #[command(
        after_help = "Examples:\n  dormouse job revise ads/lr --priority 10\n  dormouse job revise ads/lr --containers 2..16 --time-limit 4h\n  dormouse job revise ads/lr --gpu-limit 0.8\n  dormouse job revise --tenant ads --name 'lr-*' --time-limit none --yes"
    )]
    Revise(ReviseArgs),
    /// Wait until a job, or all that match, have ended (exit code 0 completed, 3 failed, 4 cancelled)
    #[command(
        after_help = "Examples:\n  dormouse job wait ads/lr && dormouse job logs ads/lr\n  dormouse job wait ads/lr-1 ads/lr-2 --timeout 2h\n  dormouse job wait --tenant ads --name 'lr-*'\n\nA filter means those that are not over. Each is said as it ends. Exit code of several: 3 where one has failed, else 4 where one was cancelled, else 0; 124 where the time is over (code timeout)."
    )]
    Wait(WaitArgs),
}

/// A job argument.
#[derive(Debug, Clone, Args)]
pub struct JobArg {
    /// tenant/name; a bare name belongs to DORMOUSE_TENANT, else to the key's tenant, else to `default`.
    pub id: NamedJob,
}

/// Arguments of `job revise`.
#[derive(Debug, Clone, Args)]
pub struct ReviseArgs {
    #[command(flatten)]
    pub which: WhichArgs,
    /// Weight of its fair share.
    #[arg(long, allow_negative_numbers = true, value_parser = weight)]
    pub weight: Option<u32>,
    /// Fewest and most containers.
    #[arg(long, value_name = "MIN..MAX", value_parser = bounds)]
    pub containers: Option<(u32, u32)>,
    /// Place in the tenant's queue: the highest priority goes first.
    #[arg(long, allow_negative_numbers = true)]
    pub priority: Option<i32>,
    /// Time limit in all, such as 90s, 30m, 12h or 7d; none lifts the limit.
    #[arg(long, value_name = "TIME")]
    pub time_limit: Option<Limit>,
    /// Longest wait for the first start; none lifts the limit.
    #[arg(long, value_name = "TIME")]
    pub queue_limit: Option<Limit>,
    /// Largest part of a GPU while others leave it idle, from the request to 1; running containers go on.
    #[arg(long, value_name = "PART")]
    pub gpu_limit: Option<String>,
}

fn bounds(text: &str) -> Result<(u32, u32), String> {
    let (min, max) = text.split_once("..").unwrap_or((text, text));
    let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is no number"));
    Ok((number(min)?, number(max)?))
}

/// A job, now or in an exported log.
#[derive(Debug, Clone, Args)]
pub struct JobHistoryArgs {
    #[command(flatten)]
    pub job: JobArg,
    #[command(flatten)]
    pub log: LogFileArg,
}

/// Arguments of `job logs`.
#[derive(Debug, Clone, Args)]
pub struct JobLogsArgs {
    /// Job: tenant/name.
    pub id: NamedJob,
    /// Print until the job has ended, also across its resizes.
    #[arg(long, short)]
    pub follow: bool,
    /// Only the last lines of each output.
    #[arg(long, value_name = "LINES")]
    pub tail: Option<u32>,
    /// Only output since 90s, 10m, 2h, 1d ago, or since a time (RFC 3339).
    #[arg(long, value_name = "AGO|TIME", conflicts_with = "tail")]
    pub since: Option<Since>,
    /// Only this rank.
    #[arg(long)]
    pub rank: Option<u32>,
    /// Only this incarnation; default: the newest.
    #[arg(long)]
    pub incarnation: Option<u32>,
    /// Print every incarnation.
    #[arg(long, conflicts_with = "incarnation")]
    pub all: bool,
    /// Only this task of a task set, on any container.
    #[arg(long, conflicts_with_all = ["rank", "incarnation", "all", "follow", "tail", "since"])]
    pub task: Option<u32>,
    /// Ask over this tenant's own subjects, as its own key does by default.
    #[arg(long = "as", value_name = "TENANT")]
    pub of: Option<String>,
}

/// Arguments of `job exec`.
#[derive(Debug, Clone, Args)]
pub struct JobExecArgs {
    /// Job: tenant/name.
    pub id: NamedJob,
    /// Container rank; default: the first running container.
    #[arg(long)]
    pub rank: Option<u32>,
    /// Attach this terminal, with its size and keys.
    #[arg(long, short)]
    pub terminal: bool,
    /// Ask over this tenant's own subjects, as its own key does by default.
    #[arg(long = "as", value_name = "TENANT")]
    pub of: Option<String>,
    /// Program and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// Arguments of `nodes`.
#[derive(Debug, Clone, Copy, Args)]
pub struct NodesArgs {
    /// Include nodes lost more than an hour ago.
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub watch: WatchArg,
}

/// Subcommands of `node`.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Show everything about a node
    #[command(after_help = "Examples:\n  dormouse node show n1\n  dormouse node show n1 -o json")]
    Show(NodeShowArgs),
    /// Move everything off a node and place nothing on it
    #[command(
        after_help = "Examples:\n  dormouse node drain n1\n  dormouse node drain n1 --reason 'a new disk' --deadline 1h\n\nA job without a checkpoint stays until it ends, or until the deadline."
    )]
    Drain(DrainArgs),
    /// Use a drained node again
    #[command(after_help = "Examples:\n  dormouse node restore n1")]
    Restore(NodeArg),
    /// Declare that a node's containers have ended, for example because it is switched off: they are replaced
    /// at once
    #[command(
        after_help = "Examples:\n  dormouse node fence n1 --reason 'its power is off'\n\nIt is refused where the node's agent answers: what runs there has not ended. `node drain` moves it."
    )]
    Fence(FenceArgs),
    /// Change a node's labels: zone=a sets one, zone- removes it
    #[command(
        after_help = "Examples:\n  dormouse node label n1 zone=a disk=nvme\n  dormouse node label n1 disk-\n\nWhat runs there runs on; constraints hold at every start."
    )]
    Label(NodeLabelArgs),
    /// Keep jobs without a toleration away: owner=ads adds a taint, owner=ads- removes it
    #[command(
        after_help = "Examples:\n  dormouse node taint n1 owner=ads\n  dormouse node taint n1 owner=ads-\n\nWhat runs there runs on."
    )]
    Taint(NodeTaintArgs),
    /// Forget a node that is lost, or drained and empty
    #[command(after_help = "Examples:\n  dormouse node remove n1")]
    Remove(NodeArg),
}

/// Arguments of `node fence`.
#[derive(Debug, Clone, Args)]
pub struct FenceArgs {
    /// Node.
    pub name: NodeId,
    /// Evidence; recorded on the log.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Fence even if the node's agent answers: its containers may run twice for a moment.
    #[arg(long)]
    pub force: bool,
}

/// Arguments of `node drain`.
#[derive(Debug, Clone, Args)]
pub struct DrainArgs {
    #[command(flatten)]
    pub node: NodeArg,
    /// Reason; shown with the node.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Time after which the remaining containers are stopped and start elsewhere: seconds, or 10m, 2h.
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<Limit>,
}

/// Arguments of `node label`.
#[derive(Debug, Clone, Args)]
pub struct NodeLabelArgs {
    /// Node; it need not have joined yet.
    pub name: NodeId,
    /// Labels.
    #[arg(required = true, value_name = "LABEL=VALUE")]
    pub labels: Vec<String>,
}

/// Arguments of `node taint`.
#[derive(Debug, Clone, Args)]
pub struct NodeTaintArgs {
    /// Node; it need not have joined yet.
    pub name: NodeId,
    /// Taints.
    #[arg(required = true, value_name = "TAINT")]
    pub taints: Vec<String>,
}

/// Arguments of `node show`.
#[derive(Debug, Clone, Args)]
pub struct NodeShowArgs {
    #[command(flatten)]
    pub node: NodeArg,
    #[command(flatten)]
    pub watch: WatchArg,
}
