//! `up`, `demo`, `serve`, `configure`: what runs a cluster.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use dormouse_messages::events::Gpu;
use dormouse_messages::{Amounts, NodeId};
use dormouse_node_agent::store::settings::Place;
use dormouse_node_agent::{LogBounds, Retention, RuntimeKind};

use crate::cli::gateway::{GatewayArgs, loopback};
use crate::cli::web::WebArgs;
use crate::commands::node::{gpu, label, taint};

/// What a node offers: something.
fn capacity(text: &str) -> Result<Amounts, String> {
    let capacity: Amounts = text.parse().map_err(|error| format!("{error}"))?;
    match capacity.lacks_unit() {
        Some(why) => Err(why),
        None if capacity.is_empty() => {
            Err("a node offers something, such as cpu=8,memory=16Gi".to_owned())
        }
        None => Ok(capacity),
    }
}

/// Users of a node; 0 is nobody's.
fn uids(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (first, last) = text.split_once("..").ok_or("write FIRST..LAST")?;
    let number = |text: &str| text.parse::<u32>().map_err(|error| error.to_string());
    match (number(first)?, number(last)?) {
        (first, last) if (1..=last).contains(&first) && last < u32::MAX => Ok(first..=last),
        _ => Err("name users from 1 up, the first one first".to_owned()),
    }
}

/// Seconds that a lease may last: a broker's round trip must fit well into it.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    match (1.0..=86_400.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("from 1 to 86400 seconds".to_owned()),
    }
}

/// A unit starts an agent again after a second, and it needs about one more to be there.
const LEAST_GONE: Duration = Duration::from_secs(3);

fn gone_after(text: &str) -> Result<Duration, String> {
    let after = seconds(text)?;
    match after < LEAST_GONE {
        true => Err(format!(
            "at least {} seconds: an agent that is started again needs them",
            LEAST_GONE.as_secs()
        )),
        false => Ok(after),
    }
}

/// `up`.
#[derive(Debug, Clone, Args)]
pub struct UpArgs {
    /// Number of nodes; 0: agents join from elsewhere.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(..=1000))]
    pub nodes: u32,
    /// What each node offers. Default: this machine's processors and memory, divided.
    #[arg(long, value_name = "AMOUNTS", value_parser = capacity)]
    pub capacity: Option<Amounts>,
    /// What tenants are shown of their jobs is published in JSON too, under status.TENANT._json.
    #[arg(long, env = "DORMOUSE_JSON_STATUS")]
    pub json_status: bool,
    /// What runs the containers.
    #[arg(long, default_value = "process")]
    pub runtime: RuntimeArg,
    /// When the broker writes to disk: survive a killed process, or a power failure too.
    #[arg(long, default_value = "default")]
    pub sync: SyncArg,
    /// Port of the broker. Default: a free one.
    #[arg(long)]
    pub port: Option<u16>,
    /// Where the gateway to services listens, on this machine. Default: a free port, then the same.
    #[arg(long, value_name = "ADDRESS", value_parser = loopback)]
    pub gateway: Option<SocketAddr>,
    /// Where the page listens, on this machine. Default: a free port, then the same.
    #[arg(long, value_name = "ADDRESS", value_parser = loopback)]
    pub page: Option<SocketAddr>,
    /// What ended containers printed is kept so long.
    #[command(flatten)]
    pub keep: KeepArgs,
    /// Address of the Prometheus metrics, such as 127.0.0.1:9464.
    #[arg(long, env = "DORMOUSE_METRICS", value_name = "ADDRESS")]
    pub metrics: Option<std::net::SocketAddr>,
    /// Nothing holds from earlier starts: a flag that is not given has its default. Without this, it
    /// is as it was last given.
    #[arg(long)]
    pub defaults: bool,
    /// The flags that are given here, as they are written.
    #[arg(skip)]
    pub given: BTreeMap<String, String>,
}

/// What is kept on a node.
#[derive(Debug, Clone, Copy, Args)]
pub struct KeepArgs {
    /// Days for which a node keeps what ended containers printed; 0: without limit.
    #[arg(
        long = "keep-logs",
        env = "DORMOUSE_KEEP_LOGS",
        default_value_t = 30,
        value_name = "DAYS"
    )]
    pub days: u32,
    /// A container's output and its errors are cut when one of them is longer than this.
    #[arg(
        long,
        env = "DORMOUSE_LOG_SIZE",
        default_value_t = 64,
        value_parser = clap::value_parser!(u32).range(1..),
        value_name = "MIB"
    )]
    pub log_size: u32,
    /// How many files of that length are kept of each, with the one that is written.
    #[arg(
        long,
        env = "DORMOUSE_LOG_FILES",
        default_value_t = 2,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=100)
    )]
    pub log_files: u32,
    /// How many of a job's checkpoints are kept; those that the log may name are in any case.
    #[arg(
        long,
        env = "DORMOUSE_KEEP_CHECKPOINTS",
        default_value_t = 2,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(2..)
    )]
    pub keep_checkpoints: u32,
    /// A tenant that uses more of the disk, for what its containers leave on a node and for its
    /// checkpoints, is stopped there; of the query service: what a tenant may have stored of packed
    /// folders; 0: no bound.
    #[arg(
        long,
        env = "DORMOUSE_TENANT_STORAGE",
        default_value_t = 0,
        value_name = "MIB"
    )]
    pub tenant_storage: u64,
    /// A tenant that has more files and folders there is stopped, too; 0: a million, where
    /// `--tenant-storage` bounds what it uses.
    #[arg(
        long,
        env = "DORMOUSE_TENANT_FILES",
        default_value_t = 0,
        value_name = "N"
    )]
    pub tenant_files: u64,
}

impl KeepArgs {
    /// As the agent takes it.
    #[must_use]
    pub fn retention(self) -> Retention {
        let days = u64::from(self.days);
        Retention {
            logs: (days > 0).then(|| Duration::from_secs(days * 86_400)),
            log_bounds: LogBounds {
                bytes: u64::from(self.log_size) << 20,
                files: self.log_files,
            },
            checkpoints: self.keep_checkpoints as usize,
            tenant_bytes: (self.tenant_storage > 0).then_some(self.tenant_storage << 20),
            tenant_files: (self.tenant_files > 0).then_some(self.tenant_files),
        }
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

impl From<RuntimeArg> for RuntimeKind {
    fn from(runtime: RuntimeArg) -> Self {
        match runtime {
            RuntimeArg::Process => Self::Process,
            RuntimeArg::Docker => Self::Docker,
        }
    }
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
    #[arg(
        long,
        env = "DORMOUSE_CAPACITY",
        value_parser = capacity,
        required_if_eq("service", "agent")
    )]
    pub capacity: Option<Amounts>,
    /// A label of the node, which jobs' constraints name; may be given several times.
    #[arg(long = "label", value_name = "LABEL=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// A taint of the node, which keeps jobs away that do not tolerate it; several times.
    #[arg(long = "taint", value_name = "TAINT", value_parser = taint)]
    pub taints: Vec<String>,
    /// A GPU of the node: its UUID, model and memory, as `nvidia-smi -L` says; several times, in
    /// the order of the devices.
    #[arg(long = "gpu", value_name = "UUID,MODEL,MEMORY", value_parser = gpu)]
    pub gpus: Vec<Gpu>,
    /// Where other nodes reach this one: an IP address.
    #[arg(long, env = "DORMOUSE_ADDRESS", default_value = "127.0.0.1")]
    pub address: IpAddr,
    /// What runs the containers.
    #[arg(long, env = "DORMOUSE_RUNTIME", default_value = "process")]
    pub runtime: RuntimeArg,
    /// Where checkpoints go: a folder, on a file system that all nodes share, or
    /// s3://BUCKET/PREFIX, for nodes that share none. Default: below --data.
    #[arg(long, env = "DORMOUSE_CHECKPOINTS", value_name = "PLACE")]
    pub checkpoints: Option<Place>,
    /// Options and credentials of that bucket, as AWS_…=VALUE lines in a file that only its owner
    /// may read; they win over the agent's environment.
    #[arg(long, env = "DORMOUSE_CHECKPOINTS_OPTIONS", value_name = "FILE")]
    pub checkpoints_options: Option<PathBuf>,
    /// What ended containers printed is kept so long.
    #[command(flatten)]
    pub keep: KeepArgs,
    /// Run jobs as the agent's own user, without walls: for a node whose tenants trust each other.
    #[arg(long, env = "DORMOUSE_TRUST_JOBS")]
    pub trust_jobs: bool,
    /// Users that tenants become on the nodes, one each; the same on every node.
    #[arg(
        long,
        env = "DORMOUSE_UIDS",
        default_value = "200000..265535",
        value_name = "FIRST..LAST",
        value_parser = uids
    )]
    pub uids: RangeInclusive<u32>,
    /// Where the agent dies and none is back after so many seconds, the node's containers are ended and
    /// their jobs go on elsewhere at once. Default: they run on, and the node's lease is waited for.
    #[arg(long, env = "DORMOUSE_GONE_AFTER", value_name = "SECONDS", value_parser = gone_after)]
    pub gone_after: Option<Duration>,
    /// By the node's keeper: this life of the agent is over, and its containers have ended.
    #[arg(long, hide = true, value_name = "LIFE")]
    pub gone: Option<u64>,
    /// Seconds until a standing-by copy takes over.
    #[arg(long, default_value = "2", value_name = "SECONDS", value_parser = seconds)]
    pub takeover: Duration,
    /// Of the queries: what tenants are shown of their jobs is published in JSON too, under
    /// status.TENANT._json.
    #[arg(long, env = "DORMOUSE_JSON_STATUS")]
    pub json_status: bool,
    /// The gateway.
    #[command(flatten)]
    pub gateway: GatewayArgs,
    /// The page.
    #[command(flatten)]
    pub web: WebArgs,
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
    /// How many replicas each service has.
    Autoscaler,
    /// The queries.
    Api,
    /// One node.
    Agent,
    /// The way to services.
    Gateway,
    /// Posts tenants' events to their webhooks.
    Webhook,
    /// The page: the cluster at every moment of its log, in a browser.
    Web,
}

/// `configure`.
#[derive(Debug, Clone, Args)]
pub struct ConfigureArgs {
    /// The document; - is standard input. Without it the policy in force is shown.
    pub file: Option<PathBuf>,
    /// The broker's streams.
    #[command(flatten)]
    pub streams: StreamArgs,
    /// Make the reader of the log for the agent or gateway whose key may make none: node-NAME or
    /// gateway-NAME.
    #[arg(long, value_name = "NAME")]
    pub reader: Vec<String>,
}
