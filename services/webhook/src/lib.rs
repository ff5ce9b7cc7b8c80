//! Posts tenants' events to the addresses that the operator configured (`webhook.configured`).
//!
//! 1. Only the lease holder posts.
//! 2. Tenants get the events of `<prefix>.status.<tenant>.>`.
//! 3. A job's next event is posted after the receiver accepted the one before.
//! 4. Positions are noted for the next holder. An event may come twice, with equal `webhook-id`, and is
//!    dropped only if its address refuses it for a day.
//! 5. A silent address delays only its own tenant.
//!
//! Files: `sender` runs one task per tenant, `job_queues` queues, `post` posts and
//! retries, `signature` signs.

mod job_queues;
mod post;
mod sender;
mod signature;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dormouse_messages::{Fold, TenantId};
use dormouse_runtime::{LeaseState, Log, LogItem, LogWentBack, StartError};
use dormouse_state::hooks::{Hook, Hooks};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use crate::signature::Secret;

/// Name of the lease, and prefix of the keys of noted positions.
const LEASE: &str = "webhooks";

/// Reason for the service's end.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    WentBack(#[from] LogWentBack),
}

/// Settings of the service.
#[derive(Clone)]
pub struct Config {
    /// This copy's name.
    pub holder: String,
    /// Time until another copy takes over.
    pub takeover: Duration,
    /// Returns the secret that signs a tenant's posts.
    pub secret_of: Arc<dyn Fn(&TenantId) -> Secret + Send + Sync>,
}

/// Posts until `shutdown`.
///
/// # Errors
/// If the log cannot be followed from here, or no longer.
pub async fn run(
    log: Log,
    config: Config,
    shutdown: CancellationToken,
) -> Result<(), WebhookError> {
    let lease = log.leases().seek(LEASE, &config.holder, 0, config.takeover);
    let mut state = lease.watch();
    let ended = loop {
        tokio::select! {
            () = LeaseState::until(&mut state, true) => {}
            () = shutdown.cancelled() => break Ok(()),
        }
        let ended = while_held(&log, &config, &mut state, &shutdown).await;
        if ended.is_err() || shutdown.is_cancelled() {
            break ended;
        }
    };
    lease.release().await;
    ended
}

async fn while_held(
    log: &Log,
    config: &Config,
    state: &mut watch::Receiver<LeaseState>,
    shutdown: &CancellationToken,
) -> Result<(), WebhookError> {
    let started = log.start::<Hooks>(None).await?;
    let mut events = log.follow(started.sequence.next());
    let (mut hooks, mut senders, mut caught_up) = (started.state, Senders::default(), false);
    loop {
        let followed = tokio::select! {
            biased;
            () = LeaseState::until(state, false) => break,
            () = shutdown.cancelled() => break,
            followed = events.recv() => followed,
        };
        match followed {
            Some(LogItem::Event(recorded)) => {
                hooks.evolve(&recorded);
                if caught_up && recorded.event().is_some_and(Hooks::concerns) {
                    senders.follow(&hooks, log, config).await;
                }
            }
            Some(LogItem::Flagged { .. }) => {}
            Some(LogItem::CaughtUp(_)) => {
                caught_up = true;
                senders.follow(&hooks, log, config).await;
            }
            None => {
                senders.stop().await;
                return Err(LogWentBack.into());
            }
        }
    }
    senders.stop().await;
    Ok(())
}

#[derive(Default)]
struct Senders {
    running: BTreeMap<TenantId, Sender>,
}

struct Sender {
    hook: Hook,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Senders {
    /// Starts, ends and replaces senders to match `hooks`.
    async fn follow(&mut self, hooks: &Hooks, log: &Log, config: &Config) {
        let kept = |tenant: &TenantId, sender: &Sender| hooks.get(tenant) == Some(&sender.hook);
        let (kept, ended): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut self.running)
            .into_iter()
            .partition(|(tenant, sender)| kept(tenant, sender));
        self.running = kept;
        for sender in ended.into_values() {
            sender.end().await;
        }
        for (tenant, hook) in hooks.iter() {
            if self.running.contains_key(tenant) {
                continue;
            }
            let stop = CancellationToken::new();
            let secret = (config.secret_of)(tenant);
            let sending = sender::run(
                log.clone(),
                tenant.clone(),
                hook.clone(),
                secret,
                stop.clone(),
            );
            let sender = Sender {
                hook: hook.clone(),
                stop,
                task: tokio::spawn(sending),
            };
            self.running.insert(tenant.clone(), sender);
        }
    }

    async fn stop(self) {
        for sender in self.running.into_values() {
            sender.end().await;
        }
    }
}

impl Sender {
    async fn end(self) {
        self.stop.cancel();
        let _ = self.task.await;
    }
}
