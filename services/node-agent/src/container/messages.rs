//! The messages to and from a container's actor.

use std::time::Duration;

use actix::prelude::*;
use nix::sys::signal::Signal;

use dormouse_agent_core::{Exit, NotStarted};
use dormouse_messages::events::NodeFault;
use dormouse_messages::{ContainerId, Sequence};
use dormouse_sandbox::folder::Below;

use crate::blocking::aside_in_time;
use crate::container_plan::ContainerPlan;
use crate::jupyter::Doing;
use crate::members::Answer;
use crate::tasks::{Orders, Results};
use crate::watch::{Line, Saved};

/// A container actor's note to the agent.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Note {
    pub container: ContainerId,
    pub what: What,
}

/// An event of a container.
#[derive(Debug)]
pub enum What {
    Running(u32),
    Ended(Exit),
    /// A complete checkpoint, with the answered request and its duration.
    Saved(Saved, Option<(Sequence, Duration)>),
    Rejected(String, String),
    /// A missing or unstored checkpoint, with its request.
    SaveFailed(Option<Sequence>, String),
    Progress(Line),
    TasksEnded(Results),
    Ready(Duration),
    Unready(String),
    Does(Doing),
    Answered(Answer),
}

/// Starts the container.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Start {
    pub plan: ContainerPlan,
    pub resume: Option<Below>,
    pub before: Vec<Before>,
}

/// Disk work before a start, away from the lease's thread.
pub struct Before(Box<dyn FnOnce() -> Result<(), NotStarted> + Send>);

impl Before {
    /// Wraps blocking disk work.
    #[must_use]
    pub fn new(work: impl FnOnce() -> Result<(), NotStarted> + Send + 'static) -> Self {
        Self(Box::new(work))
    }

    /// Runs the work.
    ///
    /// # Errors
    /// A failure, or a timeout.
    pub async fn done(self) -> Result<(), NotStarted> {
        let done = aside_in_time(self.0).await;
        done.unwrap_or_else(|| {
            let why = "the file system of the agent's folders does not answer".to_owned();
            Err(NotStarted::of_node(NodeFault::Disk, why))
        })
    }
}

impl std::fmt::Debug for Before {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Before").finish_non_exhaustive()
    }
}

/// Asks the container to save.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Save {
    pub request: Sequence,
    pub grace: Duration,
    /// True if saving ends the container.
    pub ends_it: bool,
    pub how: How,
}

/// Gives the container tasks.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Give(pub Orders);

/// The way to ask a container to save.
#[derive(Debug)]
pub enum How {
    /// The container leaves between two tasks, and nothing needs saving.
    Drain,
    Signal(Signal),
    /// A command that runs inside the container.
    Command(Box<ContainerPlan>),
    /// Another member is asked to save.
    NotAtAll,
}

/// Warns the container that its time is nearly over.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Warn(pub Signal);

/// Stops the container: SIGTERM, and a kill after `grace`.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Stop {
    pub grace: Duration,
}

/// Evicts the container.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Evict {
    pub reason: String,
    pub grace: Duration,
}

/// Announces a change of members.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Announced {
    pub generation: u32,
    pub signal: Option<Signal>,
}

/// The runtime's notice that the container has ended.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Ended(pub Exit);
