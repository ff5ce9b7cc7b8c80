//! `serve agent`: runs one node.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use dormouse_bucket::{BucketSettings, Place};
use dormouse_messages::events::{Gpu, NodeFenced};
use dormouse_messages::{Amounts, Event, NodeId, Resource, Writer};
use dormouse_node_agent::AgentConfig;
use dormouse_node_agent::config::{Allocation, Contain, IfGone};
use dormouse_runtime::{AppendError, Log, Settings};
use tokio_util::sync::CancellationToken;

use super::CommonArgs;
use crate::build_id;
use crate::cli::duration::{Limit, Span, between};
use crate::cli::node::{KeepArgs, RuntimeArg, capacity, gpu, label, taint};
use crate::cli::slurm_node;
use crate::context::Context;
use crate::error::DONE;
use crate::up::machine;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

const SAY_TIMEOUT: Duration = Duration::from_secs(10);

fn uids(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (first, last) = text.split_once("..").ok_or("write FIRST..LAST")?;
    let number = |text: &str| text.parse::<u32>().map_err(|error| error.to_string());
    match (number(first)?, number(last)?) {
        (first, last) if (1..=last).contains(&first) && last < u32::MAX => Ok(first..=last),
        _ => Err("name users from 1 up, the first one first".to_owned()),
    }
}

/// Systemd needs a second to restart an agent, and the agent about one more to start.
const LEAST_GONE: Duration = Duration::from_secs(3);

fn gone_after(text: &str) -> Result<Duration, String> {
    between(text, LEAST_GONE..=Duration::from_hours(24)).map_err(|why| {
        format!(
            "{why}; an agent that is started again needs {}",
            Span(LEAST_GONE)
        )
    })
}

/// Run one node: its containers, their checkpoints and their output
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse serve agent --node n1 --capacity cpu=16,memory=64Gi --runtime docker\n  dormouse serve agent --node n2 --capacity cpu=16,memory=64Gi,gpu=2 --checkpoints s3://bucket/checkpoints"
)]
pub struct AgentArgs {
    /// Node of the agent.
    #[arg(long, env = "DORMOUSE_NODE", required_unless_present = "slurm")]
    pub node: Option<NodeId>,
    /// Capacity of the node, such as cpu=8,memory=16Gi.
    #[arg(
        long,
        env = "DORMOUSE_CAPACITY",
        required_unless_present = "slurm",
        value_parser = capacity
    )]
    pub capacity: Option<Amounts>,
    /// Name of the Slurm allocation: the node is NAME-<number>, with capacity, GPUs and address from Slurm.
    #[arg(long, value_name = "NAME", conflicts_with = "node")]
    pub slurm: Option<String>,
    /// Time between Slurm's warning, SIGUSR1, and the allocation's end.
    #[arg(long, value_name = "TIME", requires = "slurm", default_value = "60s")]
    pub drain: Limit,
    /// Label of the node for jobs' constraints; may be repeated.
    #[arg(long = "label", value_name = "LABEL=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// Taint of the node, which keeps jobs without a toleration away; may be repeated.
    #[arg(long = "taint", value_name = "TAINT", value_parser = taint)]
    pub taints: Vec<String>,
    /// GPU of the node; repeated in the order of `nvidia-smi -L`.
    #[arg(long = "gpu", value_name = "UUID,MODEL,MEMORY", value_parser = gpu)]
    pub gpus: Vec<Gpu>,
    /// IP address at which other nodes reach this one. Default: 127.0.0.1.
    #[arg(long, env = "DORMOUSE_ADDRESS")]
    pub address: Option<IpAddr>,
    /// Container runtime.
    #[arg(long, env = "DORMOUSE_RUNTIME", default_value = "process")]
    pub runtime: RuntimeArg,
    /// Checkpoint storage: a folder that all nodes share, or s3://BUCKET/PREFIX. Default: below --data.
    #[arg(long, env = "DORMOUSE_CHECKPOINTS", value_name = "PLACE")]
    pub checkpoints: Option<Place>,
    /// AWS_…=VALUE lines for the bucket, readable by the owner only.
    #[arg(long, env = "DORMOUSE_CHECKPOINTS_OPTIONS", value_name = "FILE")]
    pub checkpoints_options: Option<PathBuf>,
    #[command(flatten)]
    pub keep: KeepArgs,
    /// Run jobs as the agent's own user, without a sandbox.
    #[arg(long, env = "DORMOUSE_TRUST_JOBS")]
    pub trust_jobs: bool,
    /// Users that tenants become, one each; the same on every node.
    #[arg(
        long,
        env = "DORMOUSE_UIDS",
        default_value = "200000..265535",
        value_name = "FIRST..LAST",
        value_parser = uids
    )]
    pub uids: RangeInclusive<u32>,
    /// Time after the agent's death, without a new agent, until the node's jobs go on elsewhere. Default: the
    /// end of its lease.
    #[arg(long, env = "DORMOUSE_GONE_AFTER", value_name = "TIME", value_parser = gone_after)]
    pub gone_after: Option<Duration>,
    /// Set by the supervisor: this incarnation of the agent is over, and its containers have ended.
    #[arg(long, hide = true, value_name = "INCARNATION")]
    pub gone: Option<u64>,
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Runs `serve agent`.
///
/// # Errors
/// The reason of an early end.
pub async fn run(context: &Context, args: &AgentArgs) -> anyhow::Result<u8> {
    let (args, node) = (&resolved(args)?, node(args)?);
    let reader = Some(format!("node-{node}"));
    if let Some(incarnation) = args.gone {
        let settings = Settings {
            reader,
            ..context.settings("agent")
        };
        return gone(&settings, &node, incarnation).await;
    }
    let started = args.common.start(context, "agent", reader).await?;
    let config = agent_config(context, args)?;
    let ends = config.allocation.is_some().then(|| config.clone());
    let run = |log, shutdown| serve(config, log, shutdown);
    let ended = started.run(run).await;
    if let Some(config) = ends {
        // Slurm takes the node back: nothing may run on.
        dormouse_node_agent::abandon(&config).await?;
    }
    ended
}

fn node(args: &AgentArgs) -> anyhow::Result<NodeId> {
    let variables = |name: &str| std::env::var(name).ok();
    match (&args.node, &args.slurm) {
        (Some(node), _) => Ok(node.clone()),
        (None, Some(allocation)) => slurm_node::name(allocation, &variables),
        (None, None) => anyhow::bail!("--node is not given"),
    }
}

/// Adds what Slurm says of the node.
fn resolved(args: &AgentArgs) -> anyhow::Result<AgentArgs> {
    let mut args = args.clone();
    if args.slurm.is_none() {
        return Ok(args);
    }
    let variables = |name: &str| std::env::var(name).ok();
    if args.capacity.is_none() {
        let machine = machine(1).get(&Resource::Memory);
        args.capacity = Some(slurm_node::capacity(&variables, machine)?);
    }
    if args.gpus.is_empty() {
        args.gpus = slurm_node::gpus(&variables, &slurm_node::listed_gpus());
    }
    args.address = args.address.or(Some(slurm_node::address(&variables)));
    Ok(args)
}

/// Runs an agent until `shutdown`; its containers run on.
///
/// # Errors
/// The reason of an early end.
pub async fn serve(
    mut config: AgentConfig,
    log: Log,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    config.build = build_id::build();
    dormouse_node_agent::run(config, log, shutdown.cancelled_owned()).await?;
    Ok(())
}

/// Records that a dead agent's containers have ended, unless a newer agent of the node has written already.
async fn gone(settings: &Settings, node: &NodeId, incarnation: u64) -> anyhow::Result<u8> {
    let fenced = NodeFenced {
        node: node.clone(),
        incarnation,
        reason: "its agent died and none came back in time; its supervisor has ended them"
            .to_owned(),
    };
    let say = async {
        let log = Log::connect(settings).await?;
        let mut appender = log.appender(Writer::Node, Some(node.clone()));
        match appender.append(Event::from(fenced), &[]).await {
            Ok(_) | Err(AppendError::Superseded { .. }) => Ok(DONE),
            Err(error) => Err(error.into()),
        }
    };
    tokio::time::timeout(SAY_TIMEOUT, say)
        .await
        .context("the broker does not answer")?
}

/// Warns if jobs run without a sandbox.
fn contain(args: &AgentArgs) -> Option<Contain> {
    if args.trust_jobs {
        tracing::warn!(
            "--trust-jobs: every job runs as this agent's own user, sees its files and may end its processes"
        );
        return None;
    }
    if !Contain::is_possible() {
        tracing::warn!(
            "jobs are NOT contained: they run as this agent's own user, see its files and may end its processes; run the agent as root, or say --trust-jobs"
        );
        return None;
    }
    Some(Contain {
        uids: args.uids.clone(),
        ..Contain::default()
    })
}

/// With an object store, the folder is the node's own.
fn checkpoints(args: &AgentArgs, local: &AgentConfig) -> (PathBuf, Option<BucketSettings>) {
    match args.checkpoints.clone() {
        None => (local.checkpoint_dir.clone(), None),
        Some(Place::Folder(folder)) => (folder, None),
        Some(Place::S3(url)) => {
            let options = args.checkpoints_options.clone();
            let folder = local.layout().node().join("checkpoints");
            (folder, Some(BucketSettings { url, options }))
        }
    }
}

/// The agent's own command, with `--gone`.
fn if_gone(after: Duration) -> anyhow::Result<IfGone> {
    let own = std::env::current_exe()?.into_os_string();
    let given = std::env::args_os().skip(1);
    let command = std::iter::once(own).chain(given).chain(["--gone".into()]);
    let command = command.map(|it| it.into_string());
    let command = command.collect::<Result<_, _>>();
    let command = command.map_err(|it| anyhow::anyhow!("no text: {}", it.display()))?;
    Ok(IfGone { after, command })
}

/// Returns the Docker label of an agent's containers. Two clusters on one engine may share prefix and node
/// names but not the folder.
pub fn engine_label(prefix: &str, data: &Path) -> String {
    let path = data.canonicalize().unwrap_or_else(|_| data.to_owned());
    format!("{prefix}{}", named_by(&path))
}

/// Injective.
fn named_by(path: &Path) -> String {
    let letters = path.display().to_string();
    let name = letters.chars().map(|letter| match letter {
        '/' => "-".to_owned(),
        plain if plain.is_ascii_alphanumeric() => plain.to_string(),
        other => format!("_{:x}_", u32::from(other)),
    });
    name.collect()
}

fn agent_config(context: &Context, args: &AgentArgs) -> anyhow::Result<AgentConfig> {
    let node = node(args)?;
    // The engine label uses the canonical path.
    std::fs::create_dir_all(&context.data)
        .with_context(|| format!("cannot make {}", context.data.display()))?;
    let prefix = context.global().prefix.as_str();
    let capacity = args.capacity.clone().unwrap_or_default();
    let local = AgentConfig::local(node, capacity, context.data.clone());
    let (checkpoint_dir, checkpoint_store) = checkpoints(args, &local);
    Ok(AgentConfig {
        contain: contain(args),
        runtime: args.runtime.into(),
        gpus: args.gpus.clone(),
        labels: args.labels.iter().cloned().collect(),
        taints: args.taints.iter().cloned().collect(),
        address: args.address.unwrap_or(LOCALHOST).to_string(),
        checkpoint_dir,
        checkpoint_store,
        keep: args.keep.retention(),
        working_dir: Some(std::env::current_dir()?),
        cluster: engine_label(prefix, &context.data),
        gone: args.gone_after.map(if_gone).transpose()?,
        allocation: args.slurm.is_some().then_some(Allocation {
            drain_s: args.drain.0,
        }),
        ..local
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_folders_have_two_names() {
        let named = |path: &str| named_by(Path::new(path));
        assert_eq!(named("/var/lib/dormouse"), "-var-lib-dormouse");
        assert_eq!(named("/a-b"), "-a_2d_b");
        let paths = ["/a/b", "/a-b", "/a_2d_b", "/a.b", "/a_b", "/a/_b", "/ä"];
        let names: std::collections::BTreeSet<String> = paths.map(named).into_iter().collect();
        assert_eq!(names.len(), paths.len());
    }
}
