//! The page: `serve web`, and the one of `up`.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use dormouse_messages::{Recorded, Sequence};
use dormouse_replay::LogReader;
use dormouse_replay::history::slice::States;
use dormouse_runtime::{Followed, Log, LogWentBack};
use dormouse_web::{Access, Config, Page, Past, Server};
use tokio_util::sync::CancellationToken;

use crate::cli::WebArgs;
use crate::context::Context;
use crate::describe::describe;
use crate::print;
use crate::serve;

/// Events that are folded at once, between which questions are answered.
const BATCH: usize = 1_024;

/// Serves the page of the cluster's log, or of a file, until `shutdown`.
///
/// # Errors
/// When it does not start, or the log cannot be read.
pub async fn run(
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
    let config = config(args.page, args.page_host.clone(), access);
    let Some(file) = &args.log.file else {
        let log = Log::connect(&context.settings("web")).await?;
        let page = Page::new(Past::new(&log.identity(), true));
        let server = Server::bind(config, page.clone())?;
        print::aside(format!("The page is at {}", server.url()));
        let reading = async {
            page.want();
            follow(&log, &page).await
        };
        return tokio::select! {
            served = server.run(shutdown) => Ok(served?),
            read = reading => read,
        };
    };
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

/// A page for everybody on this machine.
///
/// # Errors
/// When the address is taken.
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
        build: serve::build(),
    }
}

/// Shows the log on the page as it goes on, once somebody looks.
///
/// # Errors
/// When the log can no longer be followed.
pub async fn follow(log: &Log, page: &Page) -> anyhow::Result<()> {
    page.wanted().await;
    let mut events = log.follow(Sequence(1));
    let mut batch = Vec::new();
    while events.recv_many(&mut batch, BATCH).await > 0 {
        let mut recorded = Vec::with_capacity(batch.len());
        for followed in batch.drain(..) {
            match followed {
                Followed::Event(event) => recorded.push(event),
                Followed::Flagged { sequence, why, .. } => page.past.flag(sequence, why),
                Followed::CaughtUp(_) => {
                    page.past.push(recorded.drain(..))?;
                    page.past.caught_up();
                }
            }
        }
        page.past.push(recorded)?;
        // Services of the same thread have their turn.
        tokio::task::yield_now().await;
    }
    Err(LogWentBack.into())
}

/// The past of a log file, of which nothing is read but the beginning.
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
