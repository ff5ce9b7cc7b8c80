//! The agent's ties to a real cluster: the log it follows, the subjects it writes, its lease.

use std::fs;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::mpsc;

use dormouse_messages::{Event, Sequence, Writer};
use dormouse_runtime::{
    AppendError, Appender, Clock, Followed, Hold, Log, RenewError, SystemClock, home,
};

use crate::AgentError;
use crate::config::AgentConfig;
use crate::kept::Kept;
use crate::logs::Alive;
use crate::wire::{Heard, Lease, LeaseError, Outlet, OutletError, Wires};

/// Events that may wait for the agent.
const WAITING: usize = 1_024;

/// Ties an agent to the cluster behind `log`; it goes on from its last snapshot.
pub async fn wires(config: &AgentConfig, log: &Log) -> Result<Wires, AgentError> {
    let folder = config.layout().node().to_owned();
    let home = fs::create_dir_all(&folder).and_then(|()| home(&folder.join("home")));
    let home = home.map_err(|error| AgentError::Directory {
        path: folder,
        error,
    })?;
    let kept = Kept::load(config, log).await;
    tracing::info!(node = %config.node, from = %kept.next(), "following the log");
    let (heard_tx, heard) = mpsc::channel(WAITING);
    tokio::spawn(hear(log.follow(kept.next()), heard_tx));
    let started = u64::try_from(SystemClock.now().as_micros()).unwrap_or(1);
    // The lease names the agent by when it started: later than any life of it on the log, so that
    // a successor on the same folder takes its predecessor's lease over at once, and the
    // predecessor hears of it.
    let lease = log
        .leases()
        .hold_node(&config.node, started, home, config.fenced);
    let appender = log.appender(Writer::Node, Some(config.node.clone()));
    Ok(Wires {
        heard,
        outlet: Box::new(appender),
        lease: Some(Box::new(lease)),
        kept: Some(kept),
        alive: Alive::default(),
    })
}

async fn hear(mut followed: mpsc::Receiver<Followed>, heard: mpsc::Sender<Heard>) {
    while let Some(followed) = followed.recv().await {
        let passed_on = match followed {
            Followed::Event(recorded) => Heard::Event(recorded),
            Followed::CaughtUp(sequence) => Heard::CaughtUp(sequence),
            // Said and counted by the reader; folded by nobody.
            Followed::Flagged { .. } => continue,
        };
        if heard.send(passed_on).await.is_err() {
            return;
        }
    }
}

impl Outlet for Appender {
    fn append(
        &mut self,
        event: Event,
        causes: Vec<Sequence>,
    ) -> BoxFuture<'_, Result<Sequence, OutletError>> {
        async move {
            let appended = Self::append(self, event, &causes).await;
            appended.map_err(|error| match error {
                AppendError::Superseded { .. } => OutletError::Conflict(error.to_string()),
                AppendError::Denied { .. } => OutletError::Denied(error.to_string()),
                _ => OutletError::Refused(error.to_string()),
            })
        }
        .boxed()
    }
}

impl Lease for Hold {
    fn renew(&mut self, ttl: Duration) -> BoxFuture<'_, Result<(), LeaseError>> {
        async move {
            self.lasts(ttl);
            Self::renew(self).await.map_err(|error| match error {
                RenewError::Held { by, revision } => LeaseError::Held {
                    by: format!("{}, incarnation {}", by.holder, by.incarnation),
                    revision,
                },
                RenewError::Unanswered { why } => LeaseError::Unreachable(why),
            })
        }
        .boxed()
    }
}
