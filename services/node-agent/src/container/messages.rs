//! What a container's actor is told, and what it tells.

use std::time::Duration;

use actix::prelude::*;
use nix::sys::signal::Signal;

use dormouse_messages::events::NodeFault;
use dormouse_messages::{ContainerId, Sequence};

use crate::folder::{Below, aside_in_time};
use crate::jupyter::Doing;
use crate::members::Answer;
use crate::runtime::{ContainerPlan, Exit, NotStarted};
use crate::tasks::{Orders, Results};
use crate::watch::{Line, Saved};

/// What a container's actor tells the agent.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Note {
    /// The container.
    pub container: ContainerId,
    /// What happened.
    pub what: What,
}

/// What happened to a container.
#[derive(Debug)]
pub enum What {
    /// It runs.
    Running(u32),
    /// It is over.
    Ended(Exit),
    /// A checkpoint is complete; the request that it answers, and how long it took.
    Saved(Saved, Option<(Sequence, Duration)>),
    /// The checkpoint that it is to resume from cannot be read: which, and why.
    Rejected(String, String),
    /// A checkpoint did not come, or could not be stored; the request that it was to answer.
    SaveFailed(Option<Sequence>, String),
    /// It reports progress.
    Progress(Line),
    /// Tasks of a task set have ended in it.
    TasksEnded(Results),
    /// It can take part; how long after its start.
    Ready(Duration),
    /// It cannot, or no longer; why.
    Unready(String),
    /// What a notebook does.
    Does(Doing),
    /// It says something of a change of its members.
    Answered(Answer),
}

/// Start it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Start {
    /// How.
    pub plan: ContainerPlan,
    /// The checkpoint that this member has to look at before the gang resumes from it.
    pub resume: Option<Below>,
    /// What is to be done on the disk first.
    pub before: Vec<Before>,
}

/// Work on the disk before a start, on a thread of its own: where the lease is renewed, no file is
/// touched.
pub struct Before(Box<dyn FnOnce() -> Result<(), NotStarted> + Send>);

impl Before {
    /// Such work; blocking.
    #[must_use]
    pub fn new(work: impl FnOnce() -> Result<(), NotStarted> + Send + 'static) -> Self {
        Self(Box::new(work))
    }

    /// Does it.
    ///
    /// # Errors
    /// Why it cannot be done, or that it takes too long.
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

/// Ask it to save.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Save {
    /// The request.
    pub request: Sequence,
    /// How long it may take.
    pub grace: Duration,
    /// Whether saving ends it.
    pub ends_it: bool,
    /// How it is asked.
    pub how: How,
}

/// Give it tasks.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Give(pub Orders);

/// How a container is asked to save.
#[derive(Debug)]
pub enum How {
    /// It leaves between two tasks: what has ended is on the log, and nothing is to be saved.
    Drain,
    /// By a signal.
    Signal(Signal),
    /// By a command beside it.
    Command(Box<ContainerPlan>),
    /// Another member is: this one is not disturbed.
    NotAtAll,
}

/// Its time is nearly over: those of its processes that handle the signal are sent it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Warn(pub Signal);

/// Stop it: SIGTERM, and a kill after `grace`.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Stop {
    /// How long it may take.
    pub grace: Duration,
}

/// Take it away.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Evict {
    /// Why.
    pub reason: String,
    /// How long it may take.
    pub grace: Duration,
}

/// Its members are others: the file says so.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Announced {
    /// The change.
    pub generation: u32,
    /// What it is told by, beside the file.
    pub signal: Option<Signal>,
}

/// It has ended.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Ended(pub Exit);
