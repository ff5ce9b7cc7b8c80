//! The interface of container drivers: plain processes, or Docker.

use std::path::PathBuf;

use futures::FutureExt;
use futures::future::BoxFuture;
use nix::sys::signal::Signal;
use tokio::sync::mpsc;

use dormouse_agent_core::{Exit, NotStarted};
use dormouse_messages::{ContainerId, Sequence};

use crate::container_plan::ContainerPlan;
use crate::exec::attached::{Attach, Attached};

/// A container found at the agent's start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub container: ContainerId,
    pub request: Sequence,
    /// The first process's pid, or the exit.
    pub status: Result<u32, Exit>,
}

/// A failure of a driver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    #[error(transparent)]
    Start(#[from] NotStarted),
    #[error("signalling {container}: {why}")]
    Signal { container: ContainerId, why: String },
    #[error("listing the containers of this node: {0}")]
    List(String),
    #[error("the node's supervisor cannot be reached: {0}")]
    Supervisor(String),
    #[error("the container engine cannot be reached: {0}")]
    Engine(String),
}

/// Exits of containers, from a driver to the agent.
pub type Exits = mpsc::UnboundedSender<(ContainerId, Exit)>;

/// A container driver. Each container's end is reported once, on the driver's channel.
pub trait ContainerDriver: Send + Sync + 'static {
    /// Returns `process` or `docker`.
    fn name(&self) -> &'static str;

    /// Provides the job's files before the start. May take minutes, and may be cancelled.
    fn provide<'a>(&'a self, plan: &'a ContainerPlan) -> BoxFuture<'a, Result<(), RuntimeError>> {
        let _ = plan;
        async { Ok(()) }.boxed()
    }

    /// Starts a container, or adopts it for this request. Returns its first process's pid.
    fn start(&self, plan: ContainerPlan) -> BoxFuture<'_, Result<u32, RuntimeError>>;

    /// Returns the pid of a running container's first process, in the agent's pid namespace.
    fn first_process<'a>(&'a self, container: &'a ContainerId) -> BoxFuture<'a, Option<u32>>;

    /// Signals its processes.
    fn signal<'a>(
        &'a self,
        container: &'a ContainerId,
        signal: Signal,
    ) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Signals only processes with a handler, because the signal would end others.
    fn notify<'a>(
        &'a self,
        container: &'a ContainerId,
        signal: Signal,
    ) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Kills all its processes.
    fn kill<'a>(&'a self, container: &'a ContainerId) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Starts another program, with the container's user, sandbox, limits and environment.
    fn exec(&self, plan: ContainerPlan, attach: Attach) -> BoxFuture<'_, Result<Attached, String>>;

    /// Runs another program to its end, without an attached user. `Err` explains a failure.
    fn run(&self, plan: ContainerPlan) -> BoxFuture<'_, Result<(), String>> {
        let words = format!("{:?}", plan.argv);
        let program = self.exec(plan, Attach::Nobody);
        async move {
            let mut program = program.await?;
            while program.output.recv().await.is_some() {}
            let ended = program.ended.await.success();
            ended.map_err(|why| format!("{words}: {why}"))
        }
        .boxed()
    }

    /// Lists running containers, and ended ones not yet removed. Begins to watch the running ones.
    fn recover(&self) -> BoxFuture<'_, Result<Vec<Found>, RuntimeError>>;

    /// Frees the container of `request` except its logs. The name is free at once, and the future does the
    /// rest.
    fn remove(&self, container: &ContainerId, request: Sequence) -> BoxFuture<'static, ()>;

    /// Lists folders that a running container may write to, besides its plan's.
    fn writes_elsewhere<'a>(&'a self, container: &'a ContainerId) -> BoxFuture<'a, Vec<PathBuf>>;

    /// Finishes postponed work. The containers run on.
    fn leave(&self) -> BoxFuture<'_, ()> {
        futures::future::ready(()).boxed()
    }
}
