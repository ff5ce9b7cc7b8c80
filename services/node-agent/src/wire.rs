//! The agent's connections to the cluster, with fakes in tests: log, outlet and lease.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use dormouse_messages::{ContainerId, Event, Recorded, Sequence};

use crate::code::CodeSource;
use crate::exec::ExecAsked;
use crate::logs::Alive;
use crate::snapshot::AgentSnapshot;
use crate::store::Store;

/// An item of the log.
#[derive(Debug, Clone)]
pub enum Heard {
    Event(Arc<Recorded>),
    /// All events up to the log's head at the time of asking were delivered.
    CaughtUp(Sequence),
}

/// The destination of the agent's events.
pub trait Outlet: Send + 'static {
    /// Appends an event, and retries during outages.
    fn append(
        &mut self,
        event: Event,
        causes: Vec<Sequence>,
    ) -> BoxFuture<'_, Result<Sequence, OutletError>>;
}

/// The reason why an event can never be appended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutletError {
    #[error("another agent writes as this node: {0}")]
    Conflict(String),
    #[error("the broker refuses this agent's events: {0}")]
    Denied(String),
    /// Only this event cannot be stored.
    #[error("the event cannot be stored: {0}")]
    Refused(String),
}

/// The node's lease.
pub trait Lease: Send + 'static {
    /// Takes or renews the lease for `ttl`. Returns once the broker has confirmed or refused.
    fn renew(&mut self, ttl: Duration) -> BoxFuture<'_, Result<(), LeaseError>>;
}

/// The reason why the lease is not held.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    #[error("the lease is held by {by}")]
    Held {
        by: String,
        /// Revision of the holder's last renewal.
        revision: u64,
    },
    #[error("the lease could not be renewed: {0}")]
    Unreachable(String),
}

/// An authorised request for a notebook's token.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct TokenAsked {
    pub container: ContainerId,
    pub answer: oneshot::Sender<Result<String, String>>,
}

/// All connections together.
pub struct Wires {
    pub heard: mpsc::Receiver<Heard>,
    pub outlet: Box<dyn Outlet>,
    /// The lease. Without one the agent never fences itself.
    pub lease: Option<Box<dyn Lease>>,
    pub asked: Option<mpsc::Receiver<TokenAsked>>,
    pub execs: Option<mpsc::Receiver<ExecAsked>>,
    /// The snapshots. `None`: nothing is folded or saved.
    pub kept: Option<AgentSnapshot>,
    /// The source of jobs' code. `None`: jobs with code do not start.
    pub code: Option<Arc<dyn CodeSource>>,
    /// The store for checkpoints. `None`: they stay in the shared folder.
    pub checkpoints: Option<Store>,
    pub alive: Alive,
}
