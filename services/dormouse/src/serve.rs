//! `serve`: one service of a cluster, the same code as in `up`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use dormouse_admission::{Admission, AdmissionState, received};
use dormouse_autoscaler::Autoscaler;
use dormouse_checkpointer::Checkpointer;
use dormouse_gateway::{Config as GatewayConfig, Gateway, Trust, read_secret};
use dormouse_messages::events::NodeLost;
use dormouse_messages::{Decider, Event, Fold, Recorded, Sequence, TenantId};
use dormouse_node_agent::AgentConfig;
use dormouse_optimizer::Optimizer;
use dormouse_placer::Placer;
use dormouse_projections::queries::{self, QueryError};
use dormouse_projections::{ReadModel, status::StatusView};
use dormouse_runtime::{
    Asked, Followed, IngressSource, Inputs, LeaseWatcher, LocalNodes, Log, Lost, Published,
    ServiceOptions, Settings, Watched, run_service, telemetry,
};
use dormouse_state::{ClusterState, NodePhase};
use serde_json::Value;
use tokio::sync::{RwLock, watch};
use tokio_util::sync::CancellationToken;

use crate::cli::{GatewayArgs, ServeArgs, ServiceArg};
use crate::clock;
use crate::cluster_metrics;
use crate::context::Context;
use crate::error::DONE;

/// How long a query waits for the service to read the log after its start.
const READING: Duration = Duration::from_secs(3);

/// How a service of this process runs.
#[derive(Debug, Clone)]
pub struct Role {
    /// Its folder: snapshots.
    pub data: PathBuf,
    /// The nodes whose agents run in this process.
    pub local: LocalNodes,
    /// How long until a standing-by copy takes over.
    pub takeover: Duration,
    /// Whether it has a thread of its own.
    pub own_thread: bool,
}

/// What a service is called.
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
    }
}

/// Runs a service until `shutdown`.
///
/// # Errors
/// Why it cannot go on.
pub async fn service(
    service: ServiceArg,
    log: Log,
    role: &Role,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    match service {
        ServiceArg::Admission => {
            let position = |state: &AdmissionState| state.last_ingress;
            let ingress = IngressSource::new(log.clone(), position, received);
            decider(Admission, log, role, Some(Box::new(ingress)), shutdown).await
        }
        ServiceArg::Optimizer => decider(Optimizer::default(), log, role, None, shutdown).await,
        ServiceArg::Placer => {
            let leases = LeaseWatcher::new(&log, role.local.clone(), watched, lost);
            decider(Placer, log, role, Some(Box::new(leases)), shutdown).await
        }
        ServiceArg::Checkpointer => {
            decider(Checkpointer::default(), log, role, None, shutdown).await
        }
        ServiceArg::Autoscaler => decider(Autoscaler, log, role, None, shutdown).await,
        ServiceArg::Api => api(log, role, shutdown).await,
        ServiceArg::Agent | ServiceArg::Gateway => {
            anyhow::bail!("agents and gateways are started by themselves")
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
        // A folder a service: three of them fold the same state to different positions.
        snapshot_dir: Some(role.data.join("snapshots").join(D::WRITER.as_str())),
        build: build(),
        ..ServiceOptions::default()
    };
    run_service(decider, log, options, inputs, shutdown).await?;
    Ok(())
}

/// This build: its version, and what tells its executable from another of the same version. A
/// snapshot of another build is not believed.
pub(crate) fn build() -> String {
    let executable = std::env::current_exe().and_then(std::fs::metadata);
    let modified = executable
        .as_ref()
        .ok()
        .and_then(|file| file.modified().ok());
    let modified = modified.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    match (executable, modified) {
        (Ok(file), Some(at)) => {
            format!(
                "{}-{:x}-{:x}",
                env!("CARGO_PKG_VERSION"),
                file.len(),
                at.as_secs()
            )
        }
        _ => env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// The nodes whose leases are to be watched.
fn watched(state: &ClusterState) -> Watched {
    let up = state
        .nodes
        .iter()
        .filter(|(_, node)| node.phase == NodePhase::Up);
    let up = up.map(|(name, node)| (name.clone(), node.incarnation));
    Watched {
        ttl: Duration::from_millis(state.policy.lease().lease_ms),
        expected: up.collect(),
    }
}

fn lost(lost: Lost) -> Event {
    Event::from(NodeLost {
        node: lost.node,
        incarnation: lost.incarnation,
        last_seen: lost.last_seen,
    })
}

/// The query service: folds the log, answers from the fold; shows tenants what becomes of their
/// jobs.
async fn api(log: Log, role: &Role, shutdown: CancellationToken) -> anyhow::Result<()> {
    let model = Arc::new(RwLock::new(ReadModel::default()));
    let holder = ServiceOptions::default().holder;
    let mut events = log.follow(Sequence(1));
    let folded = Arc::clone(&model);
    // Until it has read the log as it was, what it would answer is not so any more.
    let (caught_up, ready) = watch::channel(false);
    cluster_metrics::describe();
    let showing = show_metrics(Arc::clone(&model), ready.clone());
    let folding = async move {
        let (mut batch, mut is_live) = (Vec::new(), false);
        while events.recv_many(&mut batch, 1_024).await > 0 {
            let mut model = folded.write().await;
            for followed in batch.drain(..) {
                match followed {
                    Followed::Event(recorded) => {
                        model.evolve(&recorded);
                        if is_live {
                            cluster_metrics::observe(&model, &recorded);
                        }
                    }
                    Followed::Flagged { sequence, why, .. } => model.flag(sequence, why),
                    Followed::CaughtUp(_) => {
                        is_live = true;
                        caught_up.send_replace(true);
                    }
                }
            }
        }
        anyhow::Ok(())
    };
    let answer = move |asked: Asked| {
        let (model, mut ready) = (Arc::clone(&model), ready.clone());
        let refuse = |code: &str, why: String| (code.to_owned(), why);
        let answering = move || {
            let answer = answer(&model.blocking_read(), &asked)
                .map_err(|error| (error.code, error.message))?;
            serde_json::to_vec(&answer).map_err(|error| refuse("internal", error.to_string()))
        };
        async move {
            let read = tokio::time::timeout(READING, ready.wait_for(|ready| *ready));
            if read.await.is_err() {
                let why = "the query service is still reading the log; ask again in a moment";
                return Err(refuse("unavailable", why.to_owned()));
            }
            // A long answer holds up nobody else on this thread.
            let answered = tokio::task::spawn_blocking(answering).await;
            answered.unwrap_or_else(|error| Err(refuse("internal", error.to_string())))
        }
    };
    tokio::select! {
        folded = folding => folded.and_then(|()| anyhow::bail!("the log can no longer be followed")),
        served = log.serve_api(&queries::NAMES, &queries::TENANT_NAMES, answer) => {
            served.map_err(anyhow::Error::from)
        }
        shown = log.publish_status(&holder, role.takeover, shown, shutdown.clone()) => {
            shown.map_err(anyhow::Error::from)
        }
        never = showing => never,
        () = shutdown.cancelled() => Ok(()),
    }
}

/// Sets the cluster's metrics every few seconds, once the log is read.
async fn show_metrics(
    model: Arc<RwLock<ReadModel>>,
    mut ready: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    ready.wait_for(|ready| *ready).await?;
    loop {
        let model = Arc::clone(&model);
        let shown = move || cluster_metrics::show(&model.blocking_read(), clock::now());
        tokio::task::spawn_blocking(shown).await?;
        tokio::time::sleep(cluster_metrics::SHOW_EVERY).await;
    }
}

/// What a query is answered: a tenant's about itself, or anybody else's.
fn answer(model: &ReadModel, asked: &Asked) -> Result<Value, QueryError> {
    let refuse = |error: &dyn std::fmt::Display| QueryError {
        code: "bad_request".to_owned(),
        message: error.to_string(),
    };
    let request: Value = match asked.request.is_empty() {
        true => Value::Null,
        false => serde_json::from_slice(&asked.request).map_err(|error| refuse(&error))?,
    };
    tracing::debug!(query = asked.name, tenant = asked.tenant, "asked");
    let Some(tenant) = &asked.tenant else {
        return queries::answer(model, &asked.name, request, clock::now());
    };
    let tenant = TenantId::new(tenant.as_str()).map_err(|error| refuse(&error))?;
    queries::answer_tenant(model, &tenant, &asked.name, request, clock::now())
}

/// What tenants are shown of each event.
fn shown() -> impl FnMut(&Recorded) -> Vec<Published> {
    let mut view = StatusView::default();
    move |recorded| {
        let shown = view.show(recorded).into_iter();
        let encoded = shown.filter_map(|shown| {
            let payload = shown.envelope.to_msgpack().ok()?.into();
            Some(Published {
                subjects: shown.subjects,
                payload,
            })
        });
        encoded.collect()
    }
}

/// Runs an agent until `shutdown`; its containers run on.
///
/// # Errors
/// Why it cannot go on.
pub async fn agent(
    mut config: AgentConfig,
    log: Log,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    config.build = build();
    dormouse_node_agent::run(config, log, shutdown.cancelled_owned()).await?;
    Ok(())
}

/// Logs, traces and metrics of a service.
///
/// # Errors
/// When the metrics' address is taken.
pub fn telemetry(
    service: &str,
    metrics: Option<std::net::SocketAddr>,
) -> anyhow::Result<telemetry::Guard> {
    let json = std::env::var("DORMOUSE_LOG_FORMAT").is_ok_and(|format| format == "json");
    let format = match json {
        true => telemetry::Format::Json,
        false => telemetry::Format::Pretty,
    };
    telemetry::init(service, format, metrics).context("telemetry")
}

/// Logs to nowhere unless `RUST_LOG` asks for them: the demo tells its own story.
///
/// # Errors
/// Never in practice.
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

/// `serve`.
///
/// # Errors
/// Why the service cannot go on.
pub async fn run(context: &Context, args: &ServeArgs) -> anyhow::Result<u8> {
    let name = name(args.service);
    let _telemetry = telemetry(name, args.metrics)?;
    let settings = Settings {
        replicas: args.streams.replicas,
        ..context.settings(name)
    };
    let log = Log::connect(&settings).await?;
    if args.streams.ensure_streams {
        log.ensure_streams().await?;
    }
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    tokio::spawn(async move {
        asked_to_stop().await;
        stop.cancel();
    });
    if args.service == ServiceArg::Agent {
        let config = agent_config(context, args)?;
        agent(config, log, shutdown).await?;
        return Ok(DONE);
    }
    if args.service == ServiceArg::Gateway {
        let gateway = Gateway::bind(gateway_config(&args.gateway)?).await?;
        gateway.run(log, shutdown).await?;
        return Ok(DONE);
    }
    let role = Role {
        data: context.data.clone(),
        local: LocalNodes::default(),
        takeover: args.takeover,
        own_thread: true,
    };
    service(args.service, log, &role, shutdown).await?;
    Ok(DONE)
}

fn gateway_config(args: &GatewayArgs) -> anyhow::Result<GatewayConfig> {
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
        ..GatewayConfig::new(name, args.listen)
    })
}

fn agent_config(context: &Context, args: &ServeArgs) -> anyhow::Result<AgentConfig> {
    let node = args.node.clone().context("an agent needs --node")?;
    let capacity = args.capacity.clone().context("an agent needs --capacity")?;
    let local = AgentConfig::local(node, capacity, context.data.clone());
    Ok(AgentConfig {
        runtime: args.runtime.into(),
        address: args.address.to_string(),
        checkpoint_dir: args
            .checkpoints
            .clone()
            .unwrap_or_else(|| local.checkpoint_dir.clone()),
        keep: args.keep.retention(),
        working_dir: Some(std::env::current_dir()?),
        cluster: context.global().prefix.as_str().to_owned(),
        ..local
    })
}
