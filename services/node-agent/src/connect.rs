//! The agent's ties to a real cluster: the log it follows, the subjects it writes, its lease.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::mpsc;

use dormouse_messages::{Event, NodeId, Sequence, Writer};
use dormouse_runtime::{AppendError, Appender, Followed, Leases, Log};

use crate::config::AgentConfig;
use crate::wire::{Heard, Lease, LeaseError, Outlet, OutletError, Wires};

/// Events that may wait for the agent.
const WAITING: usize = 1_024;

/// Ties an agent to the cluster behind `log`.
#[must_use]
pub fn wires(config: &AgentConfig, log: &Log) -> Wires {
    let (heard_tx, heard) = mpsc::channel(WAITING);
    tokio::spawn(hear(log.follow(Sequence(1)), heard_tx));
    let started = SystemTime::now().duration_since(UNIX_EPOCH);
    let started = started.map_or(1, |since| u64::try_from(since.as_micros()).unwrap_or(1));
    let appender = log.appender(Writer::Node, Some(config.node.clone()));
    Wires {
        heard,
        outlet: Box::new(appender),
        lease: Some(Box::new(NodeLease {
            leases: log.leases(),
            node: config.node.clone(),
            started,
            ttl: config.lease_ttl,
        })),
    }
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

/// The lease names the agent by when it started: later than any life of it on the log. A
/// successor renews its predecessor's lease without waiting for its end; a second agent of the
/// name is found out by its first event.
struct NodeLease {
    leases: Leases,
    node: NodeId,
    started: u64,
    ttl: Duration,
}

impl Lease for NodeLease {
    fn renew(&mut self) -> BoxFuture<'_, Result<(), LeaseError>> {
        async move {
            let renewed = self
                .leases
                .renew_node(&self.node, self.started, self.ttl)
                .await;
            renewed.map_err(|error| LeaseError::Unreachable(error.to_string()))
        }
        .boxed()
    }
}
