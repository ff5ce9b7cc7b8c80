//! The agent's three ties to the cluster, faked in tests: the log it hears, the outlet it
//! reports to, the lease it holds.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use dormouse_messages::{ContainerId, Event, Recorded, Sequence};

use crate::code::CodeSource;
use crate::exec::ExecAsked;
use crate::kept::Kept;
use crate::logs::Alive;
use crate::store::Store;

/// What is heard of the log.
#[derive(Debug, Clone)]
pub enum Heard {
    /// The next event.
    Event(Arc<Recorded>),
    /// Everything up to here was heard: the head of the log, as it was asked.
    CaughtUp(Sequence),
}

/// Where the agent's events go.
pub trait Outlet: Send + 'static {
    /// Appends an event; retries through outages.
    fn append(
        &mut self,
        event: Event,
        causes: Vec<Sequence>,
    ) -> BoxFuture<'_, Result<Sequence, OutletError>>;
}

/// Why an event can never be appended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutletError {
    /// Someone else writes as this node.
    #[error("another agent writes as this node: {0}")]
    Conflict(String),
    /// The broker refuses.
    #[error("the broker refuses this agent's events: {0}")]
    Denied(String),
    /// This one event cannot be stored; others can.
    #[error("the event cannot be stored: {0}")]
    Refused(String),
}

/// The node's lease.
pub trait Lease: Send + 'static {
    /// Takes or renews it, for `ttl`; returns only once the broker has confirmed or refused.
    fn renew(&mut self, ttl: Duration) -> BoxFuture<'_, Result<(), LeaseError>>;
}

/// Why the lease is not held.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// Someone else holds it.
    #[error("the lease is held by {by}")]
    Held {
        /// Who.
        by: String,
        /// The holder's last write: it moves with each renewal.
        revision: u64,
    },
    /// The broker could not be asked.
    #[error("the lease could not be renewed: {0}")]
    Unreachable(String),
}

/// Somebody who may asks for a notebook's token.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct TokenAsked {
    /// The notebook's container.
    pub container: ContainerId,
    /// The token, or why there is none.
    pub answer: oneshot::Sender<Result<String, String>>,
}

/// All ties together.
pub struct Wires {
    /// The log, from the first event on that is not folded.
    pub heard: mpsc::Receiver<Heard>,
    /// Where events go.
    pub outlet: Box<dyn Outlet>,
    /// The lease; without one the agent never fences itself.
    pub lease: Option<Box<dyn Lease>>,
    /// What people ask of the node.
    pub asked: Option<mpsc::Receiver<TokenAsked>>,
    /// What people ask it to run in containers.
    pub execs: Option<mpsc::Receiver<ExecAsked>>,
    /// What is folded already, and where that is kept; absent: nothing is, nowhere.
    pub kept: Option<Kept>,
    /// Where the code of jobs comes from; absent: none starts that has some.
    pub code: Option<Arc<dyn CodeSource>>,
    /// Where checkpoints are stored; absent: they stay in their folder, which the nodes share.
    pub checkpoints: Option<Store>,
    /// Which containers run, for who reads what they print.
    pub alive: Alive,
}
