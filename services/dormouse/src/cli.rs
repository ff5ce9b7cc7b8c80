//! The command line: what there is to say, with examples.

mod tenants;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use dormouse_messages::{Amounts, JobId, NodeId, Prefix};

pub use crate::commands::simulate::SimulateArgs;
pub use tenants::{TenantCommand, TenantSetArgs};

/// Shares one cluster among machine-learning jobs, over one log that anyone can read and replay.
#[derive(Debug, Parser)]
#[command(name = "dormouse", version, max_term_width = 100)]
#[command(
    after_help = "Start with:\n  dormouse up                     a local cluster, in this terminal\n  dormouse submit job.yaml        in another one\n  dormouse jobs\n\nFlags win over the environment (DORMOUSE_…), the environment over the configuration file."
)]
pub struct Cli {
    /// Where the cluster is, and how to print.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Flags of every command.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// The broker: one or more NATS URLs. Default: the local cluster of --data, if one runs.
    #[arg(long, global = true, env = "DORMOUSE_SERVER", value_name = "URL")]
    pub server: Option<String>,
    /// Folder of the local cluster: broker, containers, checkpoints, snapshots.
    #[arg(long, global = true, env = "DORMOUSE_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// First token of every subject, so that clusters can share an account.
    #[arg(
        long,
        global = true,
        env = "DORMOUSE_PREFIX",
        default_value = "dormouse",
        hide_default_value = true
    )]
    pub prefix: Prefix,
    /// NATS credentials file.
    #[arg(
        long,
        global = true,
        env = "DORMOUSE_CREDS",
        value_name = "FILE",
        hide_short_help = true
    )]
    pub creds: Option<PathBuf>,
    /// File with an nkey seed.
    #[arg(
        long,
        global = true,
        env = "DORMOUSE_NKEY",
        value_name = "FILE",
        hide_short_help = true
    )]
    pub nkey: Option<PathBuf>,
    /// Certificates to trust (PEM), beyond the system's.
    #[arg(
        long,
        global = true,
        env = "DORMOUSE_TLS_CA",
        value_name = "FILE",
        hide_short_help = true
    )]
    pub tls_ca: Option<PathBuf>,
    /// This client's own certificate (PEM), where the broker asks for one.
    #[arg(
        long,
        global = true,
        env = "DORMOUSE_TLS_CERT",
        value_name = "FILE",
        requires = "tls_key",
        hide_short_help = true
    )]
    pub tls_cert: Option<PathBuf>,
    /// The key of --tls-cert (PEM).
    #[arg(
        long,
        global = true,
        env = "DORMOUSE_TLS_KEY",
        value_name = "FILE",
        requires = "tls_cert",
        hide_short_help = true
    )]
    pub tls_key: Option<PathBuf>,
    /// How to print: table, wide, json or yaml (`log export`: the file to write).
    #[arg(
        long,
        short,
        global = true,
        env = "DORMOUSE_OUTPUT",
        default_value = "table",
        value_name = "FORMAT"
    )]
    pub output: OutputArg,
    /// Configuration file (YAML) with server, data, creds, nkey, tls_ca.
    #[arg(
        long,
        global = true,
        env = "DORMOUSE_CONFIG",
        value_name = "FILE",
        hide_short_help = true
    )]
    pub config: Option<PathBuf>,
}

/// Forms of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For people with wide screens.
    Wide,
    /// One JSON value; streams are one a line.
    Json,
    /// YAML.
    Yaml,
}

/// What `-o` says: a format, or for `log export` a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputArg {
    /// A form of output.
    Format(Output),
    /// A file.
    File(PathBuf),
}

impl std::str::FromStr for OutputArg {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Output::from_str(text, true).map_or_else(|_| Self::File(text.into()), Self::Format))
    }
}

impl Global {
    /// How to print; an error where `-o` names a file and the command writes none.
    ///
    /// # Errors
    /// The usage error.
    pub fn format(&self) -> anyhow::Result<Output> {
        match &self.output {
            OutputArg::Format(output) => Ok(*output),
            OutputArg::File(file) => anyhow::bail!(
                "-o {} is not a format; write -o table, wide, json or yaml",
                file.display()
            ),
        }
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a local cluster: broker, services and nodes in this process
    #[command(
        after_help = "Examples:\n  dormouse up\n  dormouse up --nodes 4 --capacity cpu=8,memory=16Gi\n  dormouse up --runtime docker --sync always\n\nStop it with ^C: containers run on, and the next `up` adopts them."
    )]
    Up(UpArgs),
    /// Show it: a local cluster that grows and shrinks real training jobs
    Demo(DemoArgs),
    /// Run one service of a cluster
    #[command(
        after_help = "Examples:\n  dormouse serve optimizer --server nats://broker:4222\n  dormouse serve agent --node n1 --capacity cpu=16,memory=64Gi --runtime docker\n\nRun two copies of a service: the second stands by and takes over within seconds."
    )]
    Serve(ServeArgs),
    /// Submit a job from a YAML or JSON file, or - for standard input
    #[command(
        after_help = "Examples:\n  dormouse submit deploy/examples/count.yaml\n  dormouse submit --tenant ads job.yaml\n  cat job.json | dormouse submit -\n\nExit code: 0 it has containers, 2 it was accepted but waits, 1 it was refused."
    )]
    Submit(SubmitArgs),
    /// List jobs
    #[command(after_help = "Examples:\n  dormouse jobs\n  dormouse jobs --tenant ads -o json")]
    Jobs(JobsArgs),
    /// Look at one job, or act on it
    #[command(subcommand)]
    Job(JobCommand),
    /// List nodes
    #[command(after_help = "Examples:\n  dormouse nodes\n  dormouse nodes -o json")]
    Nodes,
    /// Act on a node
    #[command(subcommand)]
    Node(NodeCommand),
    /// List tenants: what each is entitled to, has, and waits for
    #[command(
        after_help = "Examples:\n  dormouse tenants\n  dormouse tenants -o wide\n  dormouse tenants -o json\n\nWEIGHT in brackets: not configured, the policy's."
    )]
    Tenants,
    /// Look at one tenant, or say what it is entitled to
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// The cluster at a glance: policy, use, jobs by phase
    #[command(after_help = "Examples:\n  dormouse cluster\n  dormouse cluster -o json")]
    Cluster,
    /// Set the cluster's policy from a YAML or JSON file, or - for standard input
    #[command(
        after_help = "Examples:\n  dormouse configure policy.yaml\n  echo 'policy: {theta1: 0.2, theta2: 0.1}' | dormouse configure -\n  dormouse configure policy.yaml --ensure-streams --replicas 3     # a new cluster\n\nWhat the file does not name keeps its default."
    )]
    Configure(ConfigureArgs),
    /// Read the log
    #[command(subcommand)]
    Log(LogCommand),
    /// Go back in time
    #[command(subcommand)]
    Replay(ReplayCommand),
    /// Run the optimizer once on a problem in a file, without a cluster
    #[command(
        after_help = "Examples:\n  dormouse solve problem.json\n  dormouse solve - < problem.json"
    )]
    Solve(FileArg),
    /// Simulate a cluster: the real services over a virtual clock
    #[command(
        after_help = "Examples:\n  dormouse simulate scenario.json\n  dormouse simulate scenario.json --policy static,dorm-3,default --report report.html\n  dormouse simulate scenario.json --set policy.theta1=0.1,0.2 --set costs.adjustment_s=60 -o json\n  dormouse simulate table2:1..20 --policy dorm-3,default\n  dormouse simulate scenario.json --log log.dmlog && dormouse replay verify --log log.dmlog\n  dormouse simulate --generate trace --seed 7 --jobs 5000 --nodes 100 > trace.json\n  dormouse simulate --faults 1..100"
    )]
    Simulate(SimulateArgs),
    /// Draw a metric over time
    #[command(
        after_help = "Examples:\n  dormouse timeline utilization\n  dormouse timeline containers --svg containers.svg\n  dormouse timeline fairness-loss -o json\n\nMetrics of the cluster: utilization, fairness-loss, adjustments, containers, jobs, unfairness;\nby tenant: dominant-share, demand-share, waiting, fairness-loss-by-tenant;\nby job (--job): containers, fairness-loss-by-job."
    )]
    Timeline(TimelineArgs),
    /// Print the shell's completion script
    #[command(
        after_help = "Examples:\n  dormouse completion bash > /etc/bash_completion.d/dormouse"
    )]
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// `up`.
#[derive(Debug, Clone, Args)]
pub struct UpArgs {
    /// Number of nodes.
    #[arg(long, default_value_t = 1)]
    pub nodes: u32,
    /// What each node offers. Default: this machine's processors and memory, divided.
    #[arg(long, value_name = "AMOUNTS")]
    pub capacity: Option<Amounts>,
    /// What runs the containers.
    #[arg(long, default_value = "process")]
    pub runtime: RuntimeArg,
    /// When the broker writes to disk: survive a killed process, or a power failure too.
    #[arg(long, default_value = "default")]
    pub sync: SyncArg,
    /// Port of the broker. Default: a free one.
    #[arg(long)]
    pub port: Option<u16>,
    /// Seconds without a sign of life until a node counts as lost.
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    pub lease: f64,
    /// What ended containers printed is kept so long.
    #[command(flatten)]
    pub keep: KeepArgs,
    /// Address of the Prometheus metrics, such as 127.0.0.1:9464.
    #[arg(long, env = "DORMOUSE_METRICS", value_name = "ADDRESS")]
    pub metrics: Option<std::net::SocketAddr>,
}

/// What is kept on a node.
#[derive(Debug, Clone, Copy, Args)]
pub struct KeepArgs {
    /// Days for which a node keeps what ended containers printed; 0: for ever.
    #[arg(
        long = "keep-logs",
        env = "DORMOUSE_KEEP_LOGS",
        default_value_t = 30,
        value_name = "DAYS"
    )]
    pub days: u32,
}

impl KeepArgs {
    /// As the agent takes it.
    #[must_use]
    pub fn logs(self) -> Option<Duration> {
        (self.days > 0).then(|| Duration::from_secs(u64::from(self.days) * 86_400))
    }
}

/// What runs containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RuntimeArg {
    /// Plain processes.
    Process,
    /// Docker.
    Docker,
}

/// When the broker writes to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SyncArg {
    /// Every two minutes; a killed process loses nothing.
    Default,
    /// Before every acknowledgement.
    Always,
}

/// `demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// Folder of the example jobs.
    #[arg(long, default_value = "deploy/examples", value_name = "DIR")]
    pub examples: PathBuf,
    /// Where the log is exported to.
    #[arg(long, default_value = "demo/log.jsonl", value_name = "FILE")]
    pub export: PathBuf,
}

/// `serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// The service.
    pub service: ServiceArg,
    /// The agent's node.
    #[arg(long, env = "DORMOUSE_NODE", required_if_eq("service", "agent"))]
    pub node: Option<NodeId>,
    /// What the node offers, such as cpu=8,memory=16Gi.
    #[arg(long, env = "DORMOUSE_CAPACITY", required_if_eq("service", "agent"))]
    pub capacity: Option<Amounts>,
    /// Where other nodes reach this one: an IP address.
    #[arg(long, env = "DORMOUSE_ADDRESS", default_value = "127.0.0.1")]
    pub address: String,
    /// What runs the containers.
    #[arg(long, env = "DORMOUSE_RUNTIME", default_value = "process")]
    pub runtime: RuntimeArg,
    /// Where checkpoints go; a shared file system on a cluster. Default: below --data.
    #[arg(long, env = "DORMOUSE_CHECKPOINTS", value_name = "DIR")]
    pub checkpoints: Option<PathBuf>,
    /// Seconds without a sign of life until the node counts as lost.
    #[arg(
        long,
        env = "DORMOUSE_LEASE",
        default_value_t = 10.0,
        value_name = "SECONDS"
    )]
    pub lease: f64,
    /// What ended containers printed is kept so long.
    #[command(flatten)]
    pub keep: KeepArgs,
    /// Seconds until a standing-by copy takes over.
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS")]
    pub takeover: f64,
    /// The broker's streams.
    #[command(flatten)]
    pub streams: StreamArgs,
    /// Address of the Prometheus metrics, such as 127.0.0.1:9464.
    #[arg(long, env = "DORMOUSE_METRICS", value_name = "ADDRESS")]
    pub metrics: Option<std::net::SocketAddr>,
}

/// The broker's streams.
#[derive(Debug, Clone, Args)]
pub struct StreamArgs {
    /// Create or update the streams on the broker first.
    #[arg(long)]
    pub ensure_streams: bool,
    /// Copies of each stream on a broker of several servers: 1 or 3.
    #[arg(long, env = "DORMOUSE_REPLICAS", default_value_t = 1)]
    pub replicas: usize,
}

/// The services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ServiceArg {
    /// Intake and release.
    Admission,
    /// How many containers each job has.
    Optimizer,
    /// Where they stand.
    Placer,
    /// When they start, save and stop.
    Checkpointer,
    /// The queries.
    Api,
    /// One node.
    Agent,
}

/// `configure`.
#[derive(Debug, Clone, Args)]
pub struct ConfigureArgs {
    /// The document; - is standard input.
    pub file: PathBuf,
    /// The broker's streams.
    #[command(flatten)]
    pub streams: StreamArgs,
}

/// `submit`.
#[derive(Debug, Clone, Args)]
pub struct SubmitArgs {
    /// The job's document; - is standard input.
    pub file: PathBuf,
    /// The tenant. Default: the document's, else `default`.
    #[arg(long, env = "DORMOUSE_TENANT")]
    pub tenant: Option<String>,
}

/// `jobs`.
#[derive(Debug, Clone, Args)]
pub struct JobsArgs {
    /// Only this tenant's.
    #[arg(long)]
    pub tenant: Option<String>,
    /// Only jobs in this phase, such as running or queued.
    #[arg(long)]
    pub phase: Option<String>,
}

/// `job …`.
#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// Everything about a job
    Show(JobArg),
    /// Its events on the log
    Events(JobArg),
    /// What its containers printed
    Logs(JobLogsArgs),
    /// End it
    Cancel(JobArg),
    /// Wait until it has ended (exit code 0 completed, 3 failed, 4 cancelled)
    Wait(JobArg),
}

fn job_id(text: &str) -> Result<JobId, String> {
    text.parse().map_err(|error| {
        format!("{error}; write tenant/name, such as ads/lr (`dormouse jobs` lists them)")
    })
}

/// A job.
#[derive(Debug, Clone, Args)]
pub struct JobArg {
    /// tenant/name.
    #[arg(value_parser = job_id)]
    pub id: JobId,
}

/// `job logs`.
#[derive(Debug, Clone, Args)]
pub struct JobLogsArgs {
    /// tenant/name.
    #[arg(value_parser = job_id)]
    pub id: JobId,
    /// Only this rank's.
    #[arg(long)]
    pub rank: Option<u32>,
    /// Of this incarnation; default: the newest.
    #[arg(long)]
    pub incarnation: Option<u32>,
    /// Of this task of a task set, wherever it ran.
    #[arg(long, conflicts_with_all = ["rank", "incarnation"])]
    pub task: Option<u32>,
}

/// `node …`.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Everything about a node
    Show(NodeArg),
    /// Move everything off a node and place nothing on it
    Drain(NodeArg),
    /// Use a drained node again
    Restore(NodeArg),
}

/// A node.
#[derive(Debug, Clone, Args)]
pub struct NodeArg {
    /// Its name.
    pub name: NodeId,
}

/// A file.
#[derive(Debug, Clone, Args)]
pub struct FileArg {
    /// The file; - is standard input.
    pub file: PathBuf,
}

/// `log …`.
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Print events as they happen
    #[command(
        after_help = "Examples:\n  dormouse log tail\n  dormouse log tail --from 1 -o json | jq .type"
    )]
    Tail {
        /// Start at this sequence instead of now.
        #[arg(long)]
        from: Option<u64>,
    },
    /// Write the log to a file: JSON lines, or a compact archive if it ends in .dmlog
    #[command(
        after_help = "Examples:\n  dormouse log export -o log.jsonl\n  dormouse log export -o log.dmlog --to 4712\n  dormouse log export | jq .type\n\n-o names the file here; without it the events go to the standard output."
    )]
    Export {
        /// From this sequence.
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// Up to this sequence.
        #[arg(long)]
        to: Option<u64>,
    },
    /// Put an exported log onto the empty log of a broker
    #[command(
        after_help = "Examples:\n  dormouse log import log.jsonl --server nats://127.0.0.1:4333"
    )]
    Import {
        /// The file.
        file: PathBuf,
    },
}

/// `replay …`.
#[derive(Debug, Subcommand)]
pub enum ReplayCommand {
    /// The jobs and nodes as they were after an event
    #[command(
        after_help = "Examples:\n  dormouse replay state --at 4712\n  dormouse replay state --log log.jsonl --at 100 -o json"
    )]
    State {
        /// After this sequence; default: the last.
        #[arg(long)]
        at: Option<u64>,
        /// A log file instead of the cluster's log.
        #[arg(long)]
        log: Option<PathBuf>,
    },
    /// Make every decision again from its basis and compare
    #[command(
        after_help = "Examples:\n  dormouse replay verify\n  dormouse replay verify --log log.jsonl"
    )]
    Verify {
        /// A log file instead of the cluster's log.
        #[arg(long)]
        log: Option<PathBuf>,
    },
}

/// `timeline`.
#[derive(Debug, Clone, Args)]
pub struct TimelineArgs {
    /// The metric.
    pub metric: String,
    /// Only this job's.
    #[arg(long)]
    pub job: Option<JobId>,
    /// Draw into this file instead.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}
