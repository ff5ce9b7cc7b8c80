//! `serve web`: the page, also of `up`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use dormouse_admission::AdmissionState;
use dormouse_archiver::ArchiverState;
use dormouse_autoscaler::AutoscalerState;
use dormouse_messages::{Recorded, Sequence};
use dormouse_projections::ReadModel;
use dormouse_replay::LogReader;
use dormouse_replay::history::fork::Fork;
use dormouse_replay::history::slice::States;
use dormouse_runtime::{Log, LogItem, LogWentBack};
use dormouse_state::ClusterState;
use dormouse_web::{Access, Config, Page, Past, Server};
use tokio_util::sync::CancellationToken;

use super::{MetricsArg, telemetry, until_asked};
use crate::build_id;
use crate::cli::log_range::LogFileArg;
use crate::commands::account::keys::random_hex;
use crate::context::Context;
use crate::describe::describe;
use crate::error::DONE;
use crate::print;

/// Serve the page: the cluster at every moment of its log, in a browser
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse serve web --server nats://broker:4222\n  dormouse serve web --log log.parquet                # the page, of a log file"
)]
pub struct WebArgs {
    /// Address of the page. Beyond this machine it needs token, certificate and key.
    #[arg(
        long,
        env = "DORMOUSE_PAGE",
        default_value = "127.0.0.1:8090",
        value_name = "ADDRESS"
    )]
    pub page: SocketAddr,
    /// Host name of the page in browsers; may be repeated.
    #[arg(long, env = "DORMOUSE_PAGE_HOST", value_name = "NAME[:PORT]")]
    pub page_host: Vec<String>,
    /// File with the page's token: …/#token=TOKEN. Without it, a cluster's page makes and prints a token at each start.
    #[arg(long, env = "DORMOUSE_PAGE_TOKEN", value_name = "FILE")]
    pub page_token: Option<PathBuf>,
    /// File with its certificates, in PEM.
    #[arg(long, env = "DORMOUSE_PAGE_CERT", value_name = "FILE")]
    pub page_cert: Option<PathBuf>,
    /// File with the certificate's key, in PEM.
    #[arg(long, env = "DORMOUSE_PAGE_KEY", value_name = "FILE")]
    pub page_key: Option<PathBuf>,
    #[command(flatten)]
    pub log: LogFileArg,
    #[command(flatten)]
    pub metrics: MetricsArg,
}

/// Queries are answered between batches.
const BATCH: usize = 1_024;

/// Runs `serve web`, of the cluster's log or of a file.
///
/// # Errors
/// If the page does not start, or the log cannot be read.
pub async fn run(context: &Context, args: &WebArgs) -> anyhow::Result<u8> {
    let _telemetry = telemetry("web", args.metrics.address)?;
    let shutdown = until_asked();
    page(context, args, shutdown).await?;
    Ok(DONE)
}

async fn page(
    context: &Context,
    args: &WebArgs,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let access = Access::read(
        args.page,
        args.page_token.as_deref(),
        args.page_cert.as_deref(),
        args.page_key.as_deref(),
    )?;
    let Some(file) = &args.log.file else {
        // Tenants' jobs on this machine must not see the page.
        let (access, opening) = match access {
            Access::Loopback => {
                let token = random_hex(16)?;
                let opening = format!("#token={token}");
                (Access::Token { token, tls: None }, opening)
            }
            access => (access, "#token=… with the token of the file".to_owned()),
        };
        let config = config(args.page, args.page_host.clone(), access);
        let log = Log::connect(&context.settings("web")).await?;
        let page = Page::new(Past::new(&log.identity(), true));
        let server = Server::bind(config, page.clone())?;
        print::aside(format!("The page is at {}{opening}", server.url()));
        let reading = async {
            page.want();
            follow(&log, &page).await
        };
        return tokio::select! {
            served = server.run(shutdown) => Ok(served?),
            read = reading => read,
            newer = log.outdated() => Err(newer.into()),
        };
    };
    let config = config(args.page, args.page_host.clone(), access);
    let page = Page::new(open(file)?);
    let server = Server::bind(config, page.clone())?;
    print::aside(format!(
        "The page of {} is at {}",
        file.display(),
        server.url()
    ));
    let (file, past) = (file.clone(), Arc::clone(&page.past));
    let mut reading = tokio::task::spawn_blocking(move || read(&file, &past));
    let mut serving = std::pin::pin!(server.run(shutdown));
    tokio::select! {
        served = &mut serving => return Ok(served?),
        read = &mut reading => read??,
    }
    Ok(serving.await?)
}

/// Returns the page of `up`, open to every local client.
///
/// # Errors
/// If the address is taken.
pub fn local(listen: SocketAddr, log: &Log) -> anyhow::Result<(Server, Page)> {
    let page = Page::new(Past::new(&log.identity(), true));
    let config = config(listen, Vec::new(), Access::Loopback);
    Ok((Server::bind(config, page.clone())?, page))
}

fn config(listen: SocketAddr, hosts: Vec<String>, access: Access) -> Config {
    Config {
        listen,
        hosts,
        access,
        describe,
        build: build_id::build(),
    }
}

/// Feeds the log to the page once a browser connects.
///
/// # Errors
/// If the log can no longer be followed.
pub async fn follow(log: &Log, page: &Page) -> anyhow::Result<()> {
    page.wanted().await;
    log.head().await?;
    let mut from = Sequence(1);
    if log.first() > from {
        let states = states(log).await?;
        from = states.fork.sequence.next();
        page.past.begin(states);
    }
    let mut events = log.follow(from);
    let mut batch = Vec::new();
    while events.recv_many(&mut batch, BATCH).await > 0 {
        let mut recorded = Vec::with_capacity(batch.len());
        for followed in batch.drain(..) {
            match followed {
                LogItem::Event(event) => recorded.push(event),
                LogItem::Flagged { sequence, why, .. } => page.past.flag(sequence, why),
                LogItem::CaughtUp(_) => {
                    page.past.push(recorded.drain(..))?;
                    page.past.caught_up();
                }
            }
        }
        page.past.push(recorded)?;
        // Lets other services on this thread run.
        tokio::task::yield_now().await;
    }
    Err(LogWentBack.into())
}

/// Returns the broker's states of one moment.
pub(super) async fn states(log: &Log) -> anyhow::Result<States> {
    // The archiver may be replacing them, one after the other.
    for _ in 0..20 {
        let model = log.start::<ReadModel>(None).await?;
        let admission = log.start::<AdmissionState>(None).await?;
        let cluster = log.start::<ClusterState>(None).await?;
        let autoscaler = log.start::<AutoscalerState>(None).await?;
        let archiver = log.start::<ArchiverState>(None).await?;
        let sequence = model.sequence;
        let others = [
            admission.sequence,
            cluster.sequence,
            autoscaler.sequence,
            archiver.sequence,
        ];
        if others.iter().all(|other| *other == sequence) {
            let fork = Fork {
                now: cluster.state.now,
                admission: admission.state,
                cluster: cluster.state,
                autoscaler: autoscaler.state,
                archiver: archiver.state,
                sequence,
            };
            let model = model.state;
            return Ok(States { fork, model });
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    bail!("the states on the broker are not those of one moment; is the archiver at work?")
}

fn open(file: &Path) -> anyhow::Result<Past> {
    let mut reader = LogReader::open(file)?;
    let first = reader.next().transpose()?;
    let first = first.with_context(|| format!("{} holds no event", file.display()))?;
    let states = reader.head().map(States::of_head).transpose()?;
    if states.is_none() && first.sequence > Sequence(1) {
        bail!(
            "{} begins with event {}: the state before it is not known; export the log from event 1",
            file.display(),
            first.sequence
        );
    }
    Ok(Past::starting_from(
        reader.log(),
        false,
        states.unwrap_or_default(),
    ))
}

fn read(file: &Path, past: &Past) -> anyhow::Result<()> {
    let mut batch: Vec<Arc<Recorded>> = Vec::with_capacity(BATCH);
    for recorded in LogReader::open(file)? {
        batch.push(Arc::new(recorded?));
        if batch.len() == BATCH {
            past.push(batch.drain(..))?;
        }
    }
    past.push(batch)?;
    past.caught_up();
    Ok(())
}
