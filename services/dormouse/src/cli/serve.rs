//! Arguments of `up`, `demo`, `serve` and `configure`.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use dormouse_messages::events::Gpu;
use dormouse_messages::{Amounts, NodeId};
use dormouse_node_agent::store::settings::Place;

use crate::cli::gateway::{GatewayArgs, loopback};
use crate::cli::node::{KeepArgs, RuntimeArg, capacity, gpu, label, taint};
use crate::cli::web::WebArgs;

fn uids(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (first, last) = text.split_once("..").ok_or("write FIRST..LAST")?;
    let number = |text: &str| text.parse::<u32>().map_err(|error| error.to_string());
    match (number(first)?, number(last)?) {
        (first, last) if (1..=last).contains(&first) && last < u32::MAX => Ok(first..=last),
        _ => Err("name users from 1 up, the first one first".to_owned()),
    }
}

/// A broker's round trip must fit well into a lease.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if (1.0..=86_400.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("from 1 to 86400 seconds".to_owned())
    }
}

/// Systemd needs a second to restart an agent, and the agent about one more to start.
const LEAST_GONE: Duration = Duration::from_secs(3);

fn gone_after(text: &str) -> Result<Duration, String> {
    let after = seconds(text)?;
    if after < LEAST_GONE {
        Err(format!(
            "at least {} seconds: an agent that is started again needs them",
            LEAST_GONE.as_secs()
        ))
    } else {
        Ok(after)
    }
}

/// Arguments of `up`.
#[derive(Debug, Clone, Args)]
pub struct UpArgs {
    /// Number of nodes; 0: agents join from elsewhere.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(..=1000))]
    pub nodes: u32,
    /// Capacity of each node. Default: this machine's processors and memory, divided.
    #[arg(long, value_name = "AMOUNTS", value_parser = capacity)]
    pub capacity: Option<Amounts>,
    /// Also publish tenants' job states as JSON, under status.TENANT._json.
    #[arg(long, env = "DORMOUSE_JSON_STATUS")]
    pub json_status: bool,
    /// Container runtime.
    #[arg(long, default_value = "process")]
    pub runtime: RuntimeArg,
    /// When the broker writes to disk: survive a killed process, or a power failure too.
    #[arg(long, default_value = "default")]
    pub sync: SyncArg,
    /// Broker port. Default: a free port.
    #[arg(long)]
    pub port: Option<u16>,
    /// Local address of the gateway to services. Default: a free port, kept for the next starts.
    #[arg(long, value_name = "ADDRESS", value_parser = loopback)]
    pub gateway: Option<SocketAddr>,
    /// Local address of the page. Default: a free port, kept for the next starts.
    #[arg(long, value_name = "ADDRESS", value_parser = loopback)]
    pub page: Option<SocketAddr>,
    #[command(flatten)]
    pub keep: KeepArgs,
    /// Address of the Prometheus metrics, such as 127.0.0.1:9464.
    #[arg(long, env = "DORMOUSE_METRICS", value_name = "ADDRESS")]
    pub metrics: Option<std::net::SocketAddr>,
    /// Forget the flags of earlier starts: a flag that is not given has its default. Without --defaults, it
    /// keeps its last value.
    #[arg(long)]
    pub defaults: bool,
    /// The flags given on this command line, as written.
    #[arg(skip)]
    pub given: BTreeMap<String, String>,
}

/// When the broker writes to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SyncArg {
    /// Every two minutes; a killed process loses nothing.
    Default,
    /// Before every acknowledgement.
    Always,
}

/// Arguments of `demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// Folder of the example jobs.
    #[arg(long, default_value = "deploy/examples", value_name = "DIR")]
    pub examples: PathBuf,
    /// File for the exported log.
    #[arg(long, default_value = "demo/log.jsonl", value_name = "FILE")]
    pub export: PathBuf,
}

/// Arguments of `serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// Service to run.
    pub service: ServiceArg,
    /// Node of the agent.
    #[arg(long, env = "DORMOUSE_NODE", required_if_eq("service", "agent"))]
    pub node: Option<NodeId>,
    /// Capacity of the node, such as cpu=8,memory=16Gi.
    #[arg(
        long,
        env = "DORMOUSE_CAPACITY",
        value_parser = capacity,
        required_if_eq("service", "agent")
    )]
    pub capacity: Option<Amounts>,
    /// Label of the node for jobs' constraints; may be repeated.
    #[arg(long = "label", value_name = "LABEL=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// Taint of the node, which keeps jobs without a toleration away; may be repeated.
    #[arg(long = "taint", value_name = "TAINT", value_parser = taint)]
    pub taints: Vec<String>,
    /// GPU of the node: its UUID, model and memory, from `nvidia-smi -L`; repeated in the order of the
    /// devices.
    #[arg(long = "gpu", value_name = "UUID,MODEL,MEMORY", value_parser = gpu)]
    pub gpus: Vec<Gpu>,
    /// IP address at which other nodes reach this one.
    #[arg(long, env = "DORMOUSE_ADDRESS", default_value = "127.0.0.1")]
    pub address: IpAddr,
    /// Container runtime.
    #[arg(long, env = "DORMOUSE_RUNTIME", default_value = "process")]
    pub runtime: RuntimeArg,
    /// Checkpoint storage: a folder on a file system that all nodes share, or s3://BUCKET/PREFIX. Default:
    /// below --data.
    #[arg(long, env = "DORMOUSE_CHECKPOINTS", value_name = "PLACE")]
    pub checkpoints: Option<Place>,
    /// Options and credentials of the bucket, as AWS_…=VALUE lines in a file readable by its owner only; they
    /// override the agent's environment.
    #[arg(long, env = "DORMOUSE_CHECKPOINTS_OPTIONS", value_name = "FILE")]
    pub checkpoints_options: Option<PathBuf>,
    #[command(flatten)]
    pub keep: KeepArgs,
    /// Run jobs as the agent's own user, without a sandbox: for a node whose tenants trust each other.
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
    /// Seconds after the agent's death without a new agent, after which the node's containers are ended and
    /// their jobs go on elsewhere. Default: containers run on until the node's lease expires.
    #[arg(long, env = "DORMOUSE_GONE_AFTER", value_name = "SECONDS", value_parser = gone_after)]
    pub gone_after: Option<Duration>,
    /// Set by the supervisor: this incarnation of the agent is over, and its containers have ended.
    #[arg(long, hide = true, value_name = "LIFE")]
    pub gone: Option<u64>,
    /// Seconds until a standby copy takes over.
    #[arg(long, default_value = "2", value_name = "SECONDS", value_parser = seconds)]
    pub takeover: Duration,
    /// For the query service: also publish tenants' job states as JSON, under status.TENANT._json.
    #[arg(long, env = "DORMOUSE_JSON_STATUS")]
    pub json_status: bool,
    #[command(flatten)]
    pub gateway: GatewayArgs,
    #[command(flatten)]
    pub web: WebArgs,
    #[command(flatten)]
    pub streams: StreamArgs,
    /// Address of the Prometheus metrics, such as 127.0.0.1:9464.
    #[arg(long, env = "DORMOUSE_METRICS", value_name = "ADDRESS")]
    pub metrics: Option<std::net::SocketAddr>,
}

/// Streams of the broker.
#[derive(Debug, Clone, Args)]
pub struct StreamArgs {
    /// Create or update the streams on the broker first.
    #[arg(long)]
    pub ensure_streams: bool,
    /// Replicas of each stream on a broker of several servers: 1 or 3.
    #[arg(long, env = "DORMOUSE_REPLICAS", default_value_t = 1)]
    pub replicas: usize,
}

/// Services of `serve`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ServiceArg {
    /// Intake and release.
    Admission,
    /// Sets each job's number of containers.
    Optimizer,
    /// Assigns containers to nodes.
    Placer,
    /// Starts, saves and stops containers.
    Checkpointer,
    /// Sets each service's number of replicas.
    Autoscaler,
    /// Answers queries.
    Api,
    /// Runs one node.
    Agent,
    /// Routes requests to services.
    Gateway,
    /// Posts tenants' events to their webhooks.
    Webhook,
    /// The page: the cluster at every moment of its log, in a browser.
    Web,
}

/// Arguments of `configure`.
#[derive(Debug, Clone, Args)]
pub struct ConfigureArgs {
    /// Policy document; - is standard input. Without a document, the current policy is shown.
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub streams: StreamArgs,
    /// Make the log reader for an agent or gateway whose key may not: node-NAME or gateway-NAME.
    #[arg(long, value_name = "NAME")]
    pub reader: Vec<String>,
}
