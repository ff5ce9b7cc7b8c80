//! `submit`, `jobs`, `job …`, `node …`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use dormouse_admission::plan::Planned;
use dormouse_messages::{JobId, NodeId};

use super::tenants::weight;
use super::{Limit, LogFileArg, Since, WaitArgs, WatchArg, WhichArgs};
use crate::commands::documents::Set;

/// The tenant of whoever names none.
pub const DEFAULT_TENANT: &str = "default";

/// `submit`.
#[derive(Debug, Clone, Args)]
pub struct SubmitArgs {
    /// Documents: files, also of several, and folders of them, without the folders below; - is
    /// standard input.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The tenant. Default: the document's, else the key's, else `default`.
    #[arg(long, env = "DORMOUSE_TENANT")]
    pub tenant: Option<String>,
    /// Only if it would still get what `plan` said; else it is refused with the difference.
    #[arg(long, value_name = "TOKEN", value_parser = token)]
    pub if_plan: Option<Planned>,
    /// The job's name, in place of the document's.
    #[arg(long)]
    pub name: Option<String>,
    /// What is to stand at a place of the document, such as env.LR=0.1; several values make a job
    /// each, several of these every combination.
    #[arg(long, value_name = "PATH=VALUE[,VALUE…]")]
    pub set: Vec<Set>,
    /// A job for each row of a table: a .csv whose first line names the places, or a YAML or JSON
    /// list of maps.
    #[arg(long, value_name = "FILE")]
    pub sweep: Option<PathBuf>,
    /// Say what admission would decide now; nothing is submitted.
    #[arg(long, conflicts_with = "detach")]
    pub dry_run: bool,
    /// Do not wait for what is decided.
    #[arg(long)]
    pub detach: bool,
    /// Wait until every job has ended, and say how, as `job wait` does.
    #[arg(long, conflicts_with_all = ["detach", "dry_run"])]
    pub wait: bool,
    /// With --wait: not longer than this, such as 90s, 10m or 2h.
    #[arg(long, value_name = "TIME", requires = "wait")]
    pub timeout: Option<Limit>,
}

fn token(text: &str) -> Result<Planned, String> {
    text.parse()
}

/// `run`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// The tenant. Default: the key's, else `default`.
    #[arg(long, env = "DORMOUSE_TENANT")]
    pub tenant: Option<String>,
    /// The job's name; one is made where it has none.
    #[arg(long)]
    pub name: Option<String>,
    /// What one container needs.
    #[arg(long, default_value = "cpu=1", value_name = "AMOUNTS", value_parser = demand)]
    pub demand: BTreeMap<String, String>,
    /// GPUs of one container, or a part of one such as 0.25; as gpu= in --demand.
    #[arg(long, value_name = "GPUS")]
    pub gpu: Option<String>,
    /// How many containers, which all run the command.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub containers: u32,
    /// The longest that it runs, over all restarts: 90s, 10m, 2h or 1d.
    #[arg(long, short = 't', value_name = "TIME")]
    pub time: Option<Limit>,
    /// Do not wait for it: say what became of the submission, as `submit` does.
    #[arg(long, short = 'd')]
    pub detach: bool,
    /// A variable of its environment, NAME=VALUE; may be repeated.
    #[arg(long, short = 'e', value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// What is to stand at a place of the job's document, such as priority=10.
    #[arg(long, value_name = "PATH=VALUE")]
    pub set: Vec<Set>,
    /// Image for the Docker runtime.
    #[arg(long)]
    pub image: Option<String>,
    /// A folder that goes along: packed, without what .gitignore names, and unpacked where the
    /// command starts.
    #[arg(long, value_name = "FOLDER", value_hint = clap::ValueHint::DirPath)]
    pub workdir: Option<PathBuf>,
    /// Packages that the command has in an environment of Python: a requirements file.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub requirements: Option<PathBuf>,
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

/// `job …`.
#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// Everything about a job
    #[command(
        after_help = "Examples:\n  dormouse job show ads/lr\n  dormouse job show ads/lr -o json\n  dormouse job show ads/lr --document > lr.yaml\n  dormouse job show ads/lr --log log.jsonl     # as it was at the end of an exported log"
    )]
    Show {
        /// Which.
        #[command(flatten)]
        of: JobHistoryArgs,
        /// The document that made it instead, complete, to be submitted again; in YAML, or with
        /// -o json in JSON.
        #[arg(long, conflicts_with = "seconds")]
        document: bool,
        /// Whether it is shown again.
        #[command(flatten)]
        watch: WatchArg,
    },
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
    /// Run a program in one of its containers: as its user, inside its walls, on the log
    #[command(
        after_help = "Examples:\n  dormouse job exec ads/lr -- ps -ef\n  dormouse job exec ads/lr --rank 1 -t -- bash\n  dormouse job exec ads/lr -- sh -c 'cat > notes' < notes\n\nIts standard input, output and error are the program's, its exit code is the program's; of one that a signal ended, 128 and the signal's number; 127 where there is no such program. ^C is passed on; the third one kills."
    )]
    Exec(JobExecArgs),
    /// The spans of its trace, as Jaeger has them
    #[command(
        after_help = "Examples:\n  dormouse job trace ads/lr\n  dormouse job trace ads/lr --jaeger http://jaeger:16686\n  dormouse job trace ads/lr -o json | jq '.spans[].name'\n\nThe services send spans where OTEL_EXPORTER_OTLP_ENDPOINT says (docs/operating.md)."
    )]
    Trace(JobTraceArgs),
    /// End it, or all that match
    #[command(
        after_help = "Examples:\n  dormouse job cancel ads/lr\n  dormouse job cancel --tenant ads --phase queued --name 'lr-*'"
    )]
    Cancel(WhichArgs),
    /// Put it on hold: it is given nothing, and gives back what it has after a checkpoint
    #[command(
        after_help = "Examples:\n  dormouse job hold ads/lr\n  dormouse job hold --tenant ads --phase queued --yes"
    )]
    Hold {
        /// Which.
        #[command(flatten)]
        which: WhichArgs,
        /// Also one that runs without a checkpoint, and begins again when it is let go.
        #[arg(long)]
        force: bool,
    },
    /// Let a job on hold go: it takes its place in the queue again
    #[command(
        after_help = "Examples:\n  dormouse job release ads/lr\n  dormouse job release --tenant ads --name 'lr-*' --yes"
    )]
    Release(WhichArgs),
    /// Stop it after a checkpoint and start it again, when it is given room
    #[command(after_help = "Examples:\n  dormouse job requeue ads/lr")]
    Requeue {
        /// Which.
        #[command(flatten)]
        which: WhichArgs,
        /// Also one that runs without a checkpoint, and begins again.
        #[arg(long)]
        force: bool,
    },
    /// Change its weight, bounds, priority, limits or the most of its GPU
    #[command(
        after_help = "Examples:\n  dormouse job revise ads/lr --priority 10\n  dormouse job revise ads/lr --containers 2..16 --time-limit 4h\n  dormouse job revise ads/lr --gpu-limit 0.8\n  dormouse job revise --tenant ads --name 'lr-*' --time-limit none --yes"
    )]
    Revise(ReviseArgs),
    /// Wait until it has ended, or all that match (exit code 0 completed, 3 failed, 4 cancelled)
    #[command(
        after_help = "Examples:\n  dormouse job wait ads/lr && dormouse job logs ads/lr\n  dormouse job wait ads/lr-1 ads/lr-2 --timeout 2h\n  dormouse job wait --tenant ads --name 'lr-*'\n\nA filter means those that are not over. Each is said as it ends. Exit code of several: 3 where one has failed, else 4 where one was cancelled, else 0; 124 where the time is over (code timeout)."
    )]
    Wait(WaitArgs),
}

/// A job, with its tenant or by its name alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedJob {
    /// Its id; without a tenant in it, of DORMOUSE_TENANT, else of `default`.
    pub id: JobId,
    /// Whether a tenant was named, here or by DORMOUSE_TENANT: else it is that of the key, where the
    /// key is a tenant's.
    pub has_tenant: bool,
}

impl std::str::FromStr for NamedJob {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Self {
            id: job_id(text)?,
            has_tenant: text.contains('/') || std::env::var_os("DORMOUSE_TENANT").is_some(),
        })
    }
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
    /// tenant/name; a name alone is of DORMOUSE_TENANT, else of the key's tenant, else of `default`.
    pub id: NamedJob,
}

/// `job revise`.
#[derive(Debug, Clone, Args)]
pub struct ReviseArgs {
    /// Which.
    #[command(flatten)]
    pub which: WhichArgs,
    /// Weight of its fair share.
    #[arg(long, allow_negative_numbers = true, value_parser = weight)]
    pub weight: Option<u32>,
    /// Fewest and most containers.
    #[arg(long, value_name = "MIN..MAX", value_parser = bounds)]
    pub containers: Option<(u32, u32)>,
    /// Its place in its tenant's queue: the highest goes first.
    #[arg(long, allow_negative_numbers = true)]
    pub priority: Option<i32>,
    /// How long it may run in all, such as 90s, 30m, 12h or 7d; none lifts it.
    #[arg(long, value_name = "TIME")]
    pub time_limit: Option<Limit>,
    /// How long it may wait for its first start; none lifts it.
    #[arg(long, value_name = "TIME")]
    pub queue_limit: Option<Limit>,
    /// The most of its GPU while others leave it, from its request to 1; running containers go on.
    #[arg(long, value_name = "PART")]
    pub gpu_limit: Option<String>,
}

/// `2..16`, or one number for both.
fn bounds(text: &str) -> Result<(u32, u32), String> {
    let (min, max) = text.split_once("..").unwrap_or((text, text));
    let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is no number"));
    Ok((number(min)?, number(max)?))
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
    pub id: NamedJob,
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
    /// Ask over this tenant's own subjects, as its own key does by itself.
    #[arg(long = "as", value_name = "TENANT")]
    pub of: Option<String>,
}

/// `job exec`.
#[derive(Debug, Clone, Args)]
pub struct JobExecArgs {
    /// tenant/name.
    pub id: NamedJob,
    /// In the container of this rank; default: the first one that runs.
    #[arg(long)]
    pub rank: Option<u32>,
    /// At a terminal: this one's size and keys.
    #[arg(long, short)]
    pub terminal: bool,
    /// Ask over this tenant's own subjects, as its own key does by itself.
    #[arg(long = "as", value_name = "TENANT")]
    pub of: Option<String>,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
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
    /// Whether it is shown again.
    #[command(flatten)]
    pub watch: WatchArg,
}

/// `node …`.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Everything about a node
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
    /// Say that a node's containers have ended, for example because it is switched off: they are
    /// replaced at once
    #[command(
        after_help = "Examples:\n  dormouse node fence n1 --reason 'its power is off'\n\nIt is refused where the node's agent answers: what runs there has not ended. `node drain` moves it."
    )]
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
    /// How that is known; stands on the log.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Also where its agent answers: what runs there may run twice for a moment.
    #[arg(long)]
    pub force: bool,
}

/// `node drain`.
#[derive(Debug, Clone, Args)]
pub struct DrainArgs {
    /// The node.
    #[command(flatten)]
    pub node: NodeArg,
    /// Why; shown with the node.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// When what still runs there is stopped, to start again elsewhere: in so many seconds, or
    /// 10m, 2h.
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<Limit>,
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

/// `node show`.
#[derive(Debug, Clone, Args)]
pub struct NodeShowArgs {
    /// The node.
    #[command(flatten)]
    pub node: NodeArg,
    /// Whether it is shown again.
    #[command(flatten)]
    pub watch: WatchArg,
}

/// A node.
#[derive(Debug, Clone, Args)]
pub struct NodeArg {
    /// Its name.
    pub name: NodeId,
}
