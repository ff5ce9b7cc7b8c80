//! `serve`: runs one service, with the code that `up` runs too.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use dormouse_admission::{Admission, AdmissionState, recorded, shed};
use dormouse_autoscaler::Autoscaler;
use dormouse_bucket::{BucketSettings, Place};
use dormouse_checkpointer::Checkpointer;
use dormouse_gateway::{Config as GatewayConfig, Gateway, Keep, Key, Trust, read_secret};
use dormouse_messages::events::{GatewayLost, NodeFenced, NodeLost};
use dormouse_messages::{Decider, Event, NodeId, Writer};
use dormouse_node_agent::AgentConfig;
use dormouse_node_agent::config::{Contain, IfGone};
use dormouse_optimizer::Optimizer;
use dormouse_placer::Placer;
use dormouse_runtime::{
    AppendError, IngressSource, Inputs, IntakeOf, LeaseWatcher, LocalNodes, Log, Lost, LostGateway,
    ServiceOptions, Settings, Watched, run_service, telemetry,
};
use dormouse_state::{ClusterState, NodePhase};
use tokio_util::sync::CancellationToken;

use crate::clock::steady_s;
use crate::context::Context;
use crate::error::DONE;
use crate::serve::args::{GatewayArgs, ServeArgs, ServiceArg};
use crate::{build_id, web};

mod api;
pub mod args;
mod role;

pub use role::Role;

const SAY_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the name of a service.
#[must_use]
pub fn name(service: ServiceArg) -> &'static str {
    match service {
        ServiceArg::Admission => "admission",
        ServiceArg::Optimizer => "optimizer",
        ServiceArg::Placer => "placer",
        ServiceArg::Checkpointer => "checkpointer",
        ServiceArg::Autoscaler => "autoscaler",
        ServiceArg::Api => "api",
        ServiceArg::Agent => "agent",
        ServiceArg::Gateway => "gateway",
        ServiceArg::Webhook => "webhook",
        ServiceArg::Web => "web",
    }
}

/// Runs a service until `shutdown`.
///
/// # Errors
/// The reason of an early end.
pub async fn service(
    service: ServiceArg,
    log: Log,
    role: &Role,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    match service {
        ServiceArg::Admission => {
            let intake = IntakeOf {
                stand: AdmissionState::stand,
                received: recorded,
                shed,
            };
            let ingress = IngressSource::new(log.clone(), intake);
            decider(Admission, log, role, Some(Box::new(ingress)), shutdown).await
        }
        ServiceArg::Optimizer => {
            decider(Optimizer::timed(steady_s), log, role, None, shutdown).await
        }
        ServiceArg::Placer => {
            let leases = LeaseWatcher::new(&log, role.local.clone(), watched, lost, lost_gateway);
            decider(Placer, log, role, Some(Box::new(leases)), shutdown).await
        }
        ServiceArg::Checkpointer => {
            decider(Checkpointer::default(), log, role, None, shutdown).await
        }
        ServiceArg::Autoscaler => decider(Autoscaler, log, role, None, shutdown).await,
        ServiceArg::Api => api::run(log, role, shutdown).await,
        ServiceArg::Agent | ServiceArg::Gateway | ServiceArg::Webhook | ServiceArg::Web => {
            anyhow::bail!("agents, gateways, webhooks and the page are started by themselves")
        }
    }
}

async fn decider<D: Decider>(
    decider: D,
    log: Log,
    role: &Role,
    inputs: Option<Box<dyn Inputs<D::State>>>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let options = ServiceOptions {
        lease_ttl: role.takeover,
        own_thread: role.own_thread,
        // Three services fold the same state to different positions.
        snapshot_dir: Some(role.data.join("snapshots").join(D::WRITER.as_str())),
        build: build_id::build(),
        ..ServiceOptions::default()
    };
    run_service(decider, log, options, inputs, shutdown).await?;
    Ok(())
}

fn watched(state: &ClusterState) -> Watched {
    let up = state
        .nodes
        .iter()
        .filter(|(_, node)| node.phase == NodePhase::Up);
    let up = up.map(|(name, node)| (name.clone(), node.incarnation));
    Watched {
        ttl: Duration::from_millis(state.policy.lease().lease_ms),
        expected: up.collect(),
        gateway_ttl: dormouse_gateway::LEASE,
        gateways: state.gateways.iter().cloned().collect(),
    }
}

fn lost_gateway(lost: LostGateway) -> Event {
    Event::from(GatewayLost {
        gateway: lost.gateway,
        last_seen: lost.last_seen,
    })
}

fn lost(lost: Lost) -> Event {
    Event::from(NodeLost {
        node: lost.node,
        incarnation: lost.incarnation,
        last_seen: lost.last_seen,
    })
}

/// Runs an agent until `shutdown`; its containers run on.
///
/// # Errors
/// The reason of an early end.
pub async fn agent(
    mut config: AgentConfig,
    log: Log,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    config.build = build_id::build();
    dormouse_node_agent::run(config, log, shutdown.cancelled_owned()).await?;
    Ok(())
}

/// Sets up logs, traces and metrics of a service.
///
/// # Errors
/// If the metrics' address is taken.
pub fn telemetry(
    service: &str,
    metrics: Option<std::net::SocketAddr>,
) -> anyhow::Result<telemetry::Guard> {
    let json = std::env::var("DORMOUSE_LOG_FORMAT").is_ok_and(|format| format == "json");
    let format = if json {
        telemetry::Format::Json
    } else {
        telemetry::Format::Pretty
    };
    telemetry::init(service, format, metrics).context("telemetry")
}

/// Sets up logs only if `RUST_LOG` is set.
///
/// # Errors
/// Those of [`telemetry`].
pub fn telemetry_quiet(service: &str) -> anyhow::Result<Option<telemetry::Guard>> {
    match std::env::var_os("RUST_LOG") {
        Some(_) => telemetry(service, None).map(Some),
        None => Ok(None),
    }
}

/// Resolves on ^C or SIGTERM.
pub async fn asked_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

/// Runs `serve`.
///
/// # Errors
/// The reason of an early end.
pub async fn run(context: &Context, args: &ServeArgs) -> anyhow::Result<u8> {
    let name = name(args.service);
    if let (Some(life), Some(node)) = (args.gone, &args.node) {
        let settings = Settings {
            reader: reader(args),
            ..context.settings(name)
        };
        return gone(&settings, node, life).await;
    }
    let _telemetry = telemetry(name, args.metrics)?;
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    tokio::spawn(async move {
        asked_to_stop().await;
        stop.cancel();
    });
    if args.service == ServiceArg::Web {
        web::run(context, &args.web, shutdown).await?;
        return Ok(DONE);
    }
    let settings = Settings {
        replicas: args.streams.replicas,
        reader: reader(args),
        ..context.settings(name)
    };
    let log = Log::connect(&settings).await?;
    if args.streams.ensure_streams {
        log.ensure_streams().await?;
    }
    if args.service == ServiceArg::Agent {
        let config = agent_config(context, args)?;
        agent(config, log, shutdown).await?;
        return Ok(DONE);
    }
    if args.service == ServiceArg::Webhook {
        dormouse_webhook::run(log, webhook_config(args)?, shutdown).await?;
        return Ok(DONE);
    }
    if args.service == ServiceArg::Gateway {
        let gateway = Gateway::bind(gateway_config(context, &args.gateway)?).await?;
        gateway.run(log, shutdown).await?;
        return Ok(DONE);
    }
    let role = Role {
        data: context.data.clone(),
        local: LocalNodes::default(),
        takeover: args.takeover,
        own_thread: true,
        json_status: args.json_status,
        tenant_bytes: args.keep.retention().tenant_bytes,
    };
    service(args.service, log, &role, shutdown).await?;
    Ok(DONE)
}

/// Records that a dead agent's containers have ended, unless a newer agent of the node has written already.
async fn gone(settings: &Settings, node: &NodeId, life: u64) -> anyhow::Result<u8> {
    let fenced = NodeFenced {
        node: node.clone(),
        incarnation: life,
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

fn webhook_config(args: &ServeArgs) -> anyhow::Result<dormouse_webhook::Config> {
    let secret = args.gateway.secret.as_deref();
    let secret =
        read_secret(secret.context("posts are signed: give --secret FILE, the gateways' secret")?)?;
    Ok(dormouse_webhook::Config {
        holder: ServiceOptions::default().holder,
        takeover: args.takeover,
        secret_of: Arc::new(move |tenant| {
            dormouse_webhook::Secret::new(Key::of_tenant(&secret, tenant).webhook_secret())
        }),
    })
}

fn reader(args: &ServeArgs) -> Option<String> {
    match args.service {
        ServiceArg::Agent => args.node.as_ref().map(|node| format!("node-{node}")),
        ServiceArg::Gateway => {
            let name = args.gateway.name.as_ref();
            name.map(|name| format!("gateway-{name}"))
        }
        _ => None,
    }
}

fn gateway_config(context: &Context, args: &GatewayArgs) -> anyhow::Result<GatewayConfig> {
    let name = args.name.clone().context("a gateway needs --name")?;
    let url = args.url.as_deref().map(str::parse).transpose()?;
    let trust = match &args.secret {
        Some(secret) => Trust::Secret(read_secret(secret)?),
        None => Trust::Loopback,
    };
    Ok(GatewayConfig {
        url,
        trust,
        wait: args.wait,
        keep: Some(Keep::new(
            context.data.join("gateways").join(name.as_str()),
            build_id::build(),
        )),
        ..GatewayConfig::new(name, args.listen)
    })
}

/// Warns if jobs run without a sandbox.
fn contain(args: &ServeArgs) -> Option<Contain> {
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
fn checkpoints(args: &ServeArgs, local: &AgentConfig) -> (PathBuf, Option<BucketSettings>) {
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

fn agent_config(context: &Context, args: &ServeArgs) -> anyhow::Result<AgentConfig> {
    let node = args.node.clone().context("an agent needs --node")?;
    // The engine label uses the canonical path.
    std::fs::create_dir_all(&context.data)
        .with_context(|| format!("cannot make {}", context.data.display()))?;
    let prefix = context.global().prefix.as_str();
    let capacity = args.capacity.clone().context("an agent needs --capacity")?;
    let local = AgentConfig::local(node, capacity, context.data.clone());
    let (checkpoint_dir, checkpoint_store) = checkpoints(args, &local);
    Ok(AgentConfig {
        contain: contain(args),
        runtime: args.runtime.into(),
        gpus: args.gpus.clone(),
        labels: args.labels.iter().cloned().collect(),
        taints: args.taints.iter().cloned().collect(),
        address: args.address.to_string(),
        checkpoint_dir,
        checkpoint_store,
        keep: args.keep.retention(),
        working_dir: Some(std::env::current_dir()?),
        cluster: engine_label(prefix, &context.data),
        gone: args.gone_after.map(if_gone).transpose()?,
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
