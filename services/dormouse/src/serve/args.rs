//! Flags of `serve`.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use dormouse_bucket::Place;
use dormouse_messages::events::Gpu;
use dormouse_messages::{Amounts, GatewayId, NodeId};

use crate::cli::node::{KeepArgs, RuntimeArg, capacity, gpu, label, taint};
use crate::cli::streams::StreamArgs;
use crate::web::WebArgs;

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

/// Run one service of a cluster
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse serve optimizer --server nats://broker:4222\n  dormouse serve agent --node n1 --capacity cpu=16,memory=64Gi --runtime docker\n  dormouse serve gateway --name g0 --listen 0.0.0.0:8080 --url http://serving.example.org --secret gateway.secret\n  dormouse serve web --log log.parquet                # the page, of a log file\n\nRun two copies of a service: the second stands by and takes over within seconds. Gateways all work at once, each under its own name."
)]
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

fn wait(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if (0.0..=3_600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("from 0 to 3600 seconds".to_owned())
    }
}

fn url(text: &str) -> Result<String, String> {
    if text.starts_with("http://") || text.starts_with("https://") {
        Ok(text.to_owned())
    } else {
        Err("an address such as http://serving.example.org".to_owned())
    }
}

/// Arguments of `serve gateway`.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Of a gateway")]
pub struct GatewayArgs {
    /// Name of the gateway; no other gateway may write under this name.
    #[arg(
        long,
        env = "DORMOUSE_GATEWAY",
        value_name = "NAME",
        required_if_eq("service", "gateway")
    )]
    pub name: Option<GatewayId>,
    /// Address on which the gateway listens.
    #[arg(
        long,
        env = "DORMOUSE_GATEWAY_LISTEN",
        default_value = "127.0.0.1:8080",
        value_name = "ADDRESS"
    )]
    pub listen: SocketAddr,
    /// URL for clients; services have names of their own below this host. Default: the listen address.
    #[arg(long, env = "DORMOUSE_GATEWAY_URL", value_name = "URL", value_parser = url)]
    pub url: Option<String>,
    /// File with the gateways' secret: 64 hexadecimal digits. All keys and the webhooks' secrets derive from
    /// this secret.
    #[arg(long, env = "DORMOUSE_GATEWAY_SECRET", value_name = "FILE")]
    pub secret: Option<PathBuf>,
    /// Seconds for which a request waits for a replica.
    #[arg(long, env = "DORMOUSE_GATEWAY_WAIT", default_value = "30", value_name = "SECONDS", value_parser = wait)]
    pub wait: Duration,
}
