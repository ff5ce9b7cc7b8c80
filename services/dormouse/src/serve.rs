//! `serve …`: runs one service, with the code that `up` runs too. A file each role with flags of its own.

pub mod agent;
pub mod api;
pub mod archiver;
mod forecaster;
pub mod gateway;
mod role;
pub mod service;
pub mod slurm;
pub mod web;
pub mod webhook;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use dormouse_messages::Build;
use dormouse_runtime::{Lease, Log, Settings, telemetry};
use tokio_util::sync::CancellationToken;

pub use role::Role;

use crate::build_id;
use crate::cli::duration::between;
use crate::cli::streams::StreamArgs;
use crate::context::Context;
use crate::error::DONE;
use role::DeciderArgs;
use service::Service;

/// Run one service of a cluster
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  dormouse serve optimizer --server nats://broker:4222\n  dormouse serve agent --node n1 --capacity cpu=16,memory=64Gi --runtime docker\n  dormouse serve web --log log.parquet                # the page, of a log file\n\nRun two copies of a service: the second stands by and takes over within seconds."
)]
pub enum ServeCommand {
    /// Admit submissions, and release jobs from the queues
    #[command(after_help = "Examples:\n  dormouse serve admission --server nats://broker:4222")]
    Admission(DeciderArgs),
    /// Set each job's number of containers
    #[command(after_help = "Examples:\n  dormouse serve optimizer --server nats://broker:4222")]
    Optimizer(DeciderArgs),
    /// Assign containers to nodes
    #[command(after_help = "Examples:\n  dormouse serve placer --server nats://broker:4222")]
    Placer(DeciderArgs),
    /// Start, save and stop containers
    #[command(after_help = "Examples:\n  dormouse serve checkpointer --server nats://broker:4222")]
    Checkpointer(DeciderArgs),
    /// Set each service's number of replicas
    #[command(after_help = "Examples:\n  dormouse serve autoscaler --server nats://broker:4222")]
    Autoscaler(DeciderArgs),
    Archiver(archiver::ArchiverArgs),
    Slurm(slurm::SlurmArgs),
    Api(api::ApiArgs),
    Agent(Box<agent::AgentArgs>),
    Gateway(gateway::GatewayArgs),
    Webhook(webhook::WebhookArgs),
    Web(web::WebArgs),
}

/// Flags of every service.
#[derive(Debug, Clone, Args)]
pub struct CommonArgs {
    #[command(flatten)]
    pub streams: StreamArgs,
    #[command(flatten)]
    pub metrics: MetricsArg,
}

/// Metrics flag.
#[derive(Debug, Clone, Copy, Args)]
pub struct MetricsArg {
    /// Address of the Prometheus metrics, such as 127.0.0.1:9464.
    #[arg(id = "metrics", long, env = "DORMOUSE_METRICS", value_name = "ADDRESS")]
    pub address: Option<SocketAddr>,
}

/// A service that is connected and observed.
pub struct Started {
    log: Log,
    shutdown: CancellationToken,
    presence: Option<Lease>,
    _telemetry: telemetry::Guard,
}

impl Started {
    /// Runs the service. Ends it if the cluster is upgraded to a format that this build does not read.
    ///
    /// # Errors
    /// The reason of an early end.
    pub async fn run<F: Future<Output = anyhow::Result<()>>>(
        self,
        work: impl FnOnce(Log, CancellationToken) -> F,
    ) -> anyhow::Result<u8> {
        let mut work = std::pin::pin!(work(self.log.clone(), self.shutdown.clone()));
        let ended = tokio::select! {
            biased;
            newer = self.log.outdated() => {
                self.shutdown.cancel();
                let _ = tokio::time::timeout(TO_STOP, work).await;
                Err(newer.into())
            }
            ended = &mut work => ended,
        };
        if let Some(presence) = self.presence {
            presence.release().await;
        }
        ended.map(|()| DONE)
    }
}

/// For the end of a service's work.
const TO_STOP: Duration = Duration::from_secs(10);

impl CommonArgs {
    /// Starts telemetry and connects.
    ///
    /// # Errors
    /// If the metrics' address is taken, or the broker does not answer.
    pub async fn start(
        &self,
        context: &Context,
        name: &str,
        reader: Option<String>,
    ) -> anyhow::Result<Started> {
        let telemetry = telemetry(name, self.metrics.address)?;
        let shutdown = until_asked();
        let settings = Settings {
            replicas: self.streams.replicas,
            reader,
            ..context.settings(name)
        };
        let log = Log::connect(&settings).await?;
        if self.streams.ensure_streams {
            log.ensure_streams().await?;
        }
        // The leases of agents and gateways name their builds.
        let is_named = matches!(name, "agent" | "gateway");
        let own = || Build::own(&build_id::build());
        let presence = (!is_named).then(|| log.present(name, own()));
        Ok(Started {
            log,
            shutdown,
            presence,
            _telemetry: telemetry,
        })
    }
}

/// Parses a time into which a broker's round trip must fit well.
fn second(text: &str) -> Result<Duration, String> {
    between(text, Duration::from_secs(1)..=Duration::from_hours(24))
}

/// Returns a token that ^C or SIGTERM cancels.
fn until_asked() -> CancellationToken {
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    tokio::spawn(async move {
        asked_to_stop().await;
        stop.cancel();
    });
    shutdown
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

/// Runs `serve …`.
///
/// # Errors
/// The reason of an early end.
pub async fn run(context: &Context, command: ServeCommand) -> anyhow::Result<u8> {
    let (service, args) = match &command {
        ServeCommand::Admission(args) => (Service::Admission, args),
        ServeCommand::Optimizer(args) => (Service::Optimizer, args),
        ServeCommand::Placer(args) => (Service::Placer, args),
        ServeCommand::Checkpointer(args) => (Service::Checkpointer, args),
        ServeCommand::Autoscaler(args) => (Service::Autoscaler, args),
        ServeCommand::Archiver(args) => return archiver::serve(context, args).await,
        ServeCommand::Slurm(args) => return slurm::run(context, args).await,
        ServeCommand::Api(args) => return api::serve(context, args).await,
        ServeCommand::Agent(args) => return agent::run(context, args).await,
        ServeCommand::Gateway(args) => return gateway::run(context, args).await,
        ServeCommand::Webhook(args) => return webhook::run(context, args).await,
        ServeCommand::Web(args) => return web::run(context, args).await,
    };
    let started = args.common.start(context, service.name(), None).await?;
    let role = args.role(context);
    let run = |log, shutdown| async move { service::run(service, log, &role, shutdown).await };
    started.run(run).await
}
