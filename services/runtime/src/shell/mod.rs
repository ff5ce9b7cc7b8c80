//! The driver of a decider's machine (`dormouse_shell`): three actors.
//!
//! 1. `follower` hands the log over in batches, and waits for each fold.
//! 2. `decider` feeds the machine and performs its effects.
//! 3. `appending` appends under the fence.
//!
//! `options` has the service's options and errors.
//!
//! On a cluster a service has its own thread, since decisions compute. Services of one process share one,
//! since waking threads for every event costs more than the work.

mod appending;
mod decider;
mod follower;
mod options;

use std::sync::Arc;
use std::time::Duration;

use actix::Actor;
use dormouse_messages::{Decider, Sequence};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::clock_anchor::MarkFile;
use crate::error::LogError;
use crate::log::Log;
use crate::observations::Inputs;
use crate::retry::retry;
use crate::snapshot::{Snapshot, Snapshots};

pub use options::{ServiceError, ServiceOptions};

/// Covers elections and a broker's start; a supervisor gives up on a service that ends at once.
const NO_LEADER_PATIENCE: Duration = Duration::from_secs(60);

const NO_LEADER_PAUSE: Duration = Duration::from_millis(500);

/// Runs a service until `shutdown`, then finishes its append, writes a snapshot and releases the lease.
///
/// # Errors
/// See [`ServiceError`].
///
/// # Panics
/// Outside of an actix system, if `options.own_thread` is false.
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
    let starting = started::<D>(&log, snapshots.as_ref());
    let snapshot = tokio::select! {
        snapshot = starting => snapshot?,
        () = shutdown.cancelled() => return Ok(()),
    };
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
        // Dropping this future ends the actors too.
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
    // A panic drops the sender.
    let result = result.unwrap_or(Err(ServiceError::Panicked(name)));
    if let Some(lease) = lease {
        lease.release().await;
    }
    tracing::info!(service = name, ok = result.is_ok(), "stopped");
    result
}

/// Waits for the election of a leader.
async fn awaited_head(log: &Log) -> Result<Sequence, LogError> {
    let again = |error: &LogError| {
        let is_unanswered = matches!(error, LogError::Request { .. });
        if is_unanswered {
            tracing::warn!(%error, "not yet; trying again");
        }
        is_unanswered
    };
    retry(NO_LEADER_PAUSE, NO_LEADER_PATIENCE, again, || log.head()).await
}

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

/// Returns the state to start from, with the last own event if it is already folded.
async fn started<D: Decider>(
    log: &Log,
    snapshots: Option<&Snapshots>,
) -> Result<Snapshot<D::State>, ServiceError> {
    let mut snapshot = log.start::<D::State>(snapshots).await?;
    if snapshot.own_last == Sequence(0) && snapshot.sequence > Sequence(0) {
        let filter = log.prefix().writer(D::WRITER, None);
        let last = log.last_message(&filter).await;
        let last = last.map_err(|why| LogError::request("read the last event of", &filter, why))?;
        let last = last.map_or(Sequence(0), |message| Sequence(message.sequence));
        // A later one is folded as the log is followed.
        if last <= snapshot.sequence {
            snapshot.own_last = last;
        }
    }
    Ok(snapshot)
}
