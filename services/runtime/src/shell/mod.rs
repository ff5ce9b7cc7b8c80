//! The one shell around every decider: three actors, on a thread of the service's own or on the
//! caller's, that drive the machine of `dormouse_shell`.
//!
//! 1. The follower actor hands the log to the decider actor in batches, and waits for each to be
//!    folded: what is not folded yet stays in the broker.
//! 2. The decider actor tells the machine what has happened, and does what it asks for (a slow
//!    decision is made on another thread while the folding goes on).
//! 3. The appender actor appends what was decided, under the fence, and reports. Only the fold
//!    says what is on the log: after an acknowledgement the service waits until its append comes
//!    back, after any doubt it folds to the head and decides again.
//!
//! On a cluster a service has its own thread because a decision computes; the broker's connection,
//! the following and the lease stay on the caller's runtime and go on meanwhile. Where all services
//! are in one process they share its one thread: waking threads for every event cost more than all
//! that they had to do, and nobody waits to take over.

mod appending;
mod decider;
mod follower;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix::Actor;
use dormouse_messages::{Decider, Fold, Sequence};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, SteadyClock};
use crate::error::{LogError, LogWentBack};
use crate::inputs::Inputs;
use crate::lease::LeaseState;
use crate::log::Log;
use crate::mark::MarkFile;
use crate::snapshot::{Snapshot, Snapshots};

/// How long a service that starts waits until somebody leads the log: several elections, and the
/// start of a broker over a long log. What restarts services gives up on one that ends at once.
const NO_LEADER_PATIENCE: Duration = Duration::from_secs(60);

/// Between two questions meanwhile.
const NO_LEADER_PAUSE: Duration = Duration::from_millis(500);

/// How a service runs.
#[derive(Clone)]
pub struct ServiceOptions {
    /// How long after its last sign of life another copy becomes active.
    pub lease_ttl: Duration,
    /// Whether the lease chooses the active copy. Without, every copy is active: correct all the
    /// same, but they are in each other's way.
    pub lease: bool,
    /// This copy's name in the lease.
    pub holder: String,
    /// Whether its actors have a thread of their own, or live in the actix system that
    /// [`run_service`] is called in.
    pub own_thread: bool,
    /// Write a snapshot after so many events.
    pub snapshot_every: u64,
    /// Where, and what tells how long it was away when it starts again; `None`: neither.
    pub snapshot_dir: Option<PathBuf>,
    /// The build, recorded in every decision.
    pub build: String,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        Self {
            lease_ttl: Duration::from_secs(2),
            lease: true,
            holder: format!("pid-{}", std::process::id()),
            own_thread: true,
            // A fold of 20,000 events takes a tenth of a second at the next start.
            snapshot_every: 20_000,
            snapshot_dir: None,
            build: concat!("dormouse-", env!("CARGO_PKG_VERSION")).to_owned(),
            clock: Arc::new(SteadyClock),
        }
    }
}

/// Why a service has stopped.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// An event of a type or version that this build does not know, by an operator or a decider.
    #[error(
        "the event at {sequence} is {type_name}, which this build ({build}) does not know; run the build that wrote it, or a later one"
    )]
    UnknownVersion {
        /// Where.
        sequence: Sequence,
        /// Its type.
        type_name: String,
        /// This build.
        build: String,
    },
    /// What was folded contradicts itself.
    #[error(
        "after the event at {sequence} the state of {service} contradicts itself: {what}; it decides nothing on that. Nothing runs differently meanwhile. Export the log up to there (`dormouse log export -o log.dmlog --to {sequence}`), report it with this text, and start a build that mends it, or the one that ran before"
    )]
    Contradiction {
        /// Which service.
        service: &'static str,
        /// The event.
        sequence: Sequence,
        /// What cannot be.
        what: String,
    },
    /// The log has lost what was folded.
    #[error("event {folded} was folded, and {LogWentBack}")]
    LogWentBack {
        /// The last sequence folded.
        folded: Sequence,
    },
    /// The fold or the decider panicked.
    #[error("{0} panicked; the log up to the panic reproduces it")]
    Panicked(&'static str),
}

/// Runs a service until `shutdown`, then finishes the append in flight, writes a snapshot and
/// gives the lease back.
///
/// # Errors
/// When the service cannot go on: see [`ServiceError`].
///
/// # Panics
/// Outside of an actix system, where `options.own_thread` is false.
pub async fn run_service<D: Decider>(
    decider: D,
    log: Log,
    options: ServiceOptions,
    inputs: Option<Box<dyn Inputs<D::State>>>,
    shutdown: CancellationToken,
) -> Result<(), ServiceError> {
    let name = D::WRITER.as_str();
    let head = tokio::select! {
        head = awaited_head(&log) => head?,
        () = shutdown.cancelled() => return Ok(()),
    };
    let snapshots = options
        .snapshot_dir
        .as_ref()
        .map(|dir| Snapshots::new(dir, &options.build));
    let snapshot = match &snapshots {
        Some(snapshots) => snapshots.load::<D::State>(&log).await,
        None => None,
    };
    let snapshot = snapshot.unwrap_or_else(|| nothing_folded(&log));
    let mark_file = options.snapshot_dir.as_deref().map(MarkFile::new);
    let mark = match &mark_file {
        Some(file) => file.load().await,
        None => None,
    };
    tracing::info!(service = name, from = %snapshot.sequence, %head, "starting");
    let followed = log.follow(snapshot.sequence.next());
    let lease = options.lease.then(|| {
        log.leases()
            .seek(name, &options.holder, 0, options.lease_ttl)
    });
    let own_thread = options.own_thread;
    let parts = decider::Parts {
        decider: Arc::new(decider),
        log: log.clone(),
        options,
        inputs,
        snapshots,
        snapshot,
        mark_file,
        mark,
        lease: lease.as_ref().map(crate::lease::Lease::watch),
        refused: lease.as_ref().map(crate::lease::Lease::refused),
        // Dropping this future ends the actors as well.
        shutdown: shutdown.child_token(),
    };
    let _end_with_us = parts.shutdown.clone().drop_guard();
    let (result_tx, result) = oneshot::channel();
    let start = move || {
        let actor = decider::DeciderActor::<D>::new(parts, result_tx).start();
        follower::FollowerActor::new(followed, actor).start();
    };
    let result = if own_thread {
        on_own_thread(name, start, result).await
    } else {
        start();
        result.await.ok()
    };
    // Who panicked has dropped its sender.
    let result = result.unwrap_or(Err(ServiceError::Panicked(name)));
    if let Some(lease) = lease {
        lease.release().await;
    }
    tracing::info!(service = name, ok = result.is_ok(), "stopped");
    result
}

/// The log's head, from a leader that there may not be yet: a service that starts waits out an
/// election, as one that runs does.
async fn awaited_head(log: &Log) -> Result<Sequence, LogError> {
    let until = Instant::now() + NO_LEADER_PATIENCE;
    loop {
        match log.head().await {
            Err(error @ LogError::Request { .. }) if Instant::now() < until => {
                tracing::warn!(%error, "not yet; trying again");
            }
            asked => return asked,
        }
        tokio::time::sleep(NO_LEADER_PAUSE).await;
    }
}

/// Starts actors on a thread of their own, and waits until they have ended.
async fn on_own_thread<T: Send + 'static>(
    name: &str,
    start: impl FnOnce() + Send + 'static,
    result: oneshot::Receiver<T>,
) -> Option<T> {
    let (ended_tx, ended) = oneshot::channel();
    let thread = std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            let system = actix::System::new();
            let result = system.block_on(async move {
                start();
                result.await
            });
            let _ = ended_tx.send(result);
        });
    thread.ok()?;
    ended.await.ok()?.ok()
}

fn nothing_folded<F: Fold>(log: &Log) -> Snapshot<F> {
    Snapshot {
        state: F::default(),
        log: log.identity(),
        sequence: Sequence(0),
        stored_at: dormouse_messages::Timestamp::default(),
        own_last: Sequence(0),
    }
}

fn is_held(state: &LeaseState) -> bool {
    matches!(state, LeaseState::Held { .. })
}
