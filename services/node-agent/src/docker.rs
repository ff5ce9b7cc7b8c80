//! The Docker runtime, through bollard.
//!
//! - Cluster, node and id name a container, so the engine refuses a duplicate.
//! - An init process forwards signals, because a first process without a handler ignores SIGTERM.
//! - Folders keep their host paths, as under the process runtime.
//!
//! Files: `body` create requests, `deadline` ends all containers, `exec` attached programs, `layers` other
//! writes, `network` ports and addresses, `output` copied output, `pauses` removals, `starting` starts.

pub(crate) mod body;
mod deadline;
mod exec;
mod layers;
mod network;
mod output;
mod pauses;
mod starting;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::{ContainerInspectResponse, ContainerStateStatusEnum, ContainerSummary};
use bollard::query_parameters::{
    InspectContainerOptions, KillContainerOptions, ListContainersOptions, RemoveContainerOptions,
    WaitContainerOptions,
};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use nix::sys::signal::Signal;
use tokio::sync::oneshot;

use dormouse_agent_core::Exit;
use dormouse_messages::{ContainerId, Sequence};

use crate::NO_PROGRAM;
use crate::config::AgentConfig;
use crate::container_plan::ContainerPlan;
use crate::container_record::ContainerRecords;
use crate::exec::attached::{Attach, Attached};
use crate::layout::{self, Layout};
use crate::preparing::Preparing;
use crate::runtime::{ContainerDriver, Exits, Found, RuntimeError};
pub use deadline::end_all;
pub(crate) use deadline::supervisor;
use dormouse_sandbox::procfs;
use output::Copying;
use pauses::Pauses;

/// The default socket of this machine's engine.
const SOCKET: &str = "/var/run/docker.sock";

const RETRY: Duration = Duration::from_millis(500);

const CLEARING: Duration = Duration::from_secs(2);

/// Wait for the first process's pid. The engine answers in a millisecond, unless the process has ended.
const PID_WAIT: Duration = Duration::from_millis(2);

/// Wait for the last output. Later output follows the exit's report.
const LAST_OUTPUT: Duration = Duration::from_secs(10);

const LAST_WORDS_BYTES: u64 = 4096;

/// Wait for the engine's report of an out-of-memory kill, which takes a busy machine tens of milliseconds.
const LATE_WORD: Duration = Duration::from_millis(250);

/// Runs Docker containers.
#[derive(Clone)]
pub struct DockerRuntime {
    inner: Arc<Inner>,
}

struct Inner {
    docker: Docker,
    config: AgentConfig,
    layout: Layout,
    marks: ContainerRecords,
    exits: Exits,
    pauses: Pauses,
    preparing: Preparing,
}

impl DockerRuntime {
    /// Connects to the engine at `DOCKER_HOST`, or to the local engine.
    ///
    /// # Errors
    /// If the engine does not answer.
    pub async fn connect(
        config: &AgentConfig,
        marks: ContainerRecords,
        exits: Exits,
    ) -> Result<Self, RuntimeError> {
        let docker = engine_answers().await?;
        Ok(Self {
            inner: Arc::new(Inner {
                docker,
                config: config.clone(),
                layout: config.layout(),
                marks,
                exits,
                pauses: Pauses::default(),
                preparing: Preparing::default(),
            }),
        })
    }
}

/// Returns a connection to this machine's engine.
///
/// # Errors
/// If no engine answers.
pub(crate) async fn engine_answers() -> Result<Docker, RuntimeError> {
    let connect = async {
        let docker = Docker::connect_with_defaults()?;
        docker.negotiate_version().await
    };
    connect.await.map_err(engine)
}

fn engine(error: Error) -> RuntimeError {
    let is_forbidden = std::env::var_os("DOCKER_HOST").is_none()
        && rustix::fs::access(SOCKET, rustix::fs::Access::WRITE_OK)
            == Err(rustix::io::Errno::ACCESS);
    RuntimeError::Engine(if is_forbidden {
        format!(
            "this user may not open {SOCKET}; root may, and members of the group docker (usermod -aG docker USER)"
        )
    } else {
        format!("{error}; is dockerd running?")
    })
}

fn status_code(error: &Error) -> Option<u16> {
    match error {
        Error::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

fn words(error: &Error) -> String {
    match error {
        Error::DockerResponseServerError { message, .. } => message.trim().to_owned(),
        other => other.to_string(),
    }
}

/// The init process reports death by signal n as 128 + n, like a shell.
fn exit_of(code: i64, out_of_memory: bool) -> Exit {
    let code = i32::try_from(code).unwrap_or(-1);
    let signal = code - 128;
    let is_signal = (1..=31).contains(&signal);
    Exit {
        code: (!is_signal).then_some(code),
        signal: is_signal.then_some(signal),
        out_of_memory,
        ..Exit::default()
    }
}

fn pid_of(found: &ContainerInspectResponse) -> u32 {
    let pid = found.state.as_ref().and_then(|state| state.pid);
    pid.and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0)
}

fn request_of(found: &ContainerInspectResponse) -> Option<Sequence> {
    let labels = found.config.as_ref()?.labels.as_ref()?;
    labels.get(body::REQUEST)?.parse().ok().map(Sequence)
}

fn exit_in(found: &ContainerInspectResponse) -> Option<Exit> {
    use ContainerStateStatusEnum::{DEAD, EXITED};
    let state = found.state.as_ref()?;
    matches!(state.status, Some(EXITED | DEAD)).then(|| {
        let out_of_memory = state.oom_killed.unwrap_or(false);
        exit_of(state.exit_code.unwrap_or(-1), out_of_memory)
    })
}

impl Inner {
    fn name(&self, container: &ContainerId) -> String {
        let id = container.to_string().replace('/', ".");
        format!("{}-{}-{id}", self.config.cluster, self.config.node)
    }

    async fn inspect(&self, name: &str) -> Result<ContainerInspectResponse, Error> {
        let options = None::<InspectContainerOptions>;
        self.docker.inspect_container(name, options).await
    }

    async fn remove(docker: &Docker, name: &str) -> Result<(), Error> {
        let options = RemoveContainerOptions {
            force: true,
            v: true,
            ..RemoveContainerOptions::default()
        };
        docker.remove_container(name, Some(options)).await
    }

    fn watch(
        self: &Arc<Self>,
        container: ContainerId,
        request: Sequence,
        name: String,
        is_found: bool,
    ) {
        let inner = Arc::clone(self);
        tokio::spawn(async move {
            let copying = Copying {
                directory: inner.layout.container_below(&container),
                marks: inner.marks.clone(),
                container: container.clone(),
                request,
            };
            let docker = inner.docker.clone();
            let (told, ended) = oneshot::channel();
            let output = output::copy(docker, name.clone(), copying, is_found, ended);
            let output = tokio::spawn(output);
            let exit = inner.ended(&name).await;
            let _ = told.send(());
            let _ = tokio::time::timeout(LAST_OUTPUT, output).await;
            let exit = inner.explained(exit, &container);
            let _ = inner.exits.send((container, exit));
        });
    }

    async fn ended(&self, name: &str) -> Exit {
        loop {
            let options = None::<WaitContainerOptions>;
            let waited = self.docker.wait_container(name, options).next().await;
            let found = self.inspect(name).await;
            match found {
                Ok(found) => {
                    if let Some(exit) = exit_in(&found) {
                        return self.with_late_word(name, exit).await;
                    }
                }
                Err(error) if status_code(&error) == Some(404) => {
                    return Exit::evicted("it was removed from the engine".to_owned());
                }
                Err(error) => tracing::warn!(name, %error, "the engine does not answer"),
            }
            if !matches!(waited, Some(Ok(_))) {
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    /// The engine may report an out-of-memory kill late.
    async fn with_late_word(&self, name: &str, exit: Exit) -> Exit {
        if exit.signal != Some(9) || exit.out_of_memory {
            return exit;
        }
        tokio::time::sleep(LATE_WORD).await;
        let found = self.inspect(name).await.ok();
        found.as_ref().and_then(exit_in).unwrap_or(exit)
    }

    /// Explains exit 126 or 127 of the engine's init process by its standard error: no such program.
    fn explained(&self, exit: Exit, container: &ContainerId) -> Exit {
        if !matches!(exit.code, Some(126 | 127)) {
            return exit;
        }
        let directory = self.layout.container_below(container);
        let text = directory.open().and_then(|it| it.file(layout::STDERR));
        let mut bytes = Vec::new();
        let read = text.and_then(|text| text.take(LAST_WORDS_BYTES).read_to_end(&mut bytes));
        let text = String::from_utf8_lossy(&bytes);
        if read.is_err() {
            return exit;
        }
        match text
            .split_once("[FATAL tini")
            .and_then(|(_, rest)| rest.split_once("] "))
        {
            Some((_, why)) => {
                let why = why.lines().next().unwrap_or_default();
                let why = format!("{why}; in the image {NO_PROGRAM}");
                Exit::cannot_start(&why.into())
            }
            None => exit,
        }
    }

    async fn labelled(&self, cluster: &str) -> Result<Vec<ContainerSummary>, RuntimeError> {
        let labels = vec![
            format!("{}={cluster}", body::CLUSTER),
            format!("{}={}", body::NODE, self.config.node),
        ];
        let options = ListContainersOptions {
            all: true,
            filters: Some(HashMap::from([("label".to_owned(), labels)])),
            ..ListContainersOptions::default()
        };
        let listed = self.docker.list_containers(Some(options)).await;
        listed.map_err(engine)
    }

    async fn list(self: &Arc<Self>) -> Result<Vec<Found>, RuntimeError> {
        let listed = self.labelled(&self.config.cluster).await?;
        let mut found = Vec::new();
        for summary in listed {
            let labels = summary.labels.unwrap_or_default();
            let Some(name) = summary.id else { continue };
            let Some(id) = labels.get(body::CONTAINER) else {
                // A network helper of a killed agent.
                let _ = Self::remove(&self.docker, &name).await;
                continue;
            };
            let Ok(container) = id.parse() else { continue };
            if let Some(entry) = self.find(container, &name).await? {
                found.push(entry);
            }
        }
        Ok(found)
    }

    async fn find(
        self: &Arc<Self>,
        container: ContainerId,
        name: &str,
    ) -> Result<Option<Found>, RuntimeError> {
        let inspected = match self.inspect(name).await {
            Err(error) if status_code(&error) == Some(404) => return Ok(None),
            other => other.map_err(engine)?,
        };
        let Some(request) = request_of(&inspected) else {
            return Ok(None);
        };
        let running = inspected.state.as_ref().and_then(|state| state.running);
        let status = match exit_in(&inspected) {
            Some(exit) => Err(exit),
            None if running == Some(true) => {
                self.watch(container.clone(), request, name.to_owned(), true);
                Ok(pid_of(&inspected))
            }
            None => return Ok(None),
        };
        Ok(Some(Found {
            container,
            request,
            status,
        }))
    }

    async fn signal(&self, container: &ContainerId, signal: Signal) -> Result<(), RuntimeError> {
        let options = KillContainerOptions {
            signal: signal.as_str().to_owned(),
        };
        let name = self.name(container);
        match self.docker.kill_container(&name, Some(options)).await {
            Ok(()) => Ok(()),
            Err(error) if matches!(status_code(&error), Some(404 | 409)) => Ok(()),
            Err(error) => Err(RuntimeError::Signal {
                container: container.clone(),
                why: words(&error),
            }),
        }
    }

    async fn notify(&self, container: &ContainerId, signal: Signal) -> Result<(), RuntimeError> {
        let found = self.inspect(&self.name(container)).await.ok();
        let init = found.as_ref().map_or(0, pid_of);
        let ends = |pid: &u32| procfs::handles(*pid, signal) == Some(false);
        if init != 0 && procfs::children(init).iter().any(ends) {
            return Ok(());
        }
        self.signal(container, signal).await
    }
}

impl ContainerDriver for DockerRuntime {
    fn name(&self) -> &'static str {
        "docker"
    }

    fn start(&self, plan: ContainerPlan) -> BoxFuture<'_, Result<u32, RuntimeError>> {
        self.inner
            .start(plan)
            .map(|started| started.map_err(RuntimeError::Start))
            .boxed()
    }

    fn first_process<'a>(&'a self, container: &'a ContainerId) -> BoxFuture<'a, Option<u32>> {
        async move {
            let found = self.inner.inspect(&self.inner.name(container)).await;
            found.ok().as_ref().map(pid_of).filter(|pid| *pid > 0)
        }
        .boxed()
    }

    fn signal<'a>(
        &'a self,
        container: &'a ContainerId,
        signal: Signal,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.inner.signal(container, signal).boxed()
    }

    fn notify<'a>(
        &'a self,
        container: &'a ContainerId,
        signal: Signal,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.inner.notify(container, signal).boxed()
    }

    fn kill<'a>(&'a self, container: &'a ContainerId) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.inner.preparing.end(container);
        self.inner.signal(container, Signal::SIGKILL).boxed()
    }

    fn exec(&self, plan: ContainerPlan, attach: Attach) -> BoxFuture<'_, Result<Attached, String>> {
        exec::exec(Arc::clone(&self.inner), plan, attach).boxed()
    }

    fn recover(&self) -> BoxFuture<'_, Result<Vec<Found>, RuntimeError>> {
        self.inner.list().boxed()
    }

    fn remove(&self, container: &ContainerId, request: Sequence) -> BoxFuture<'static, ()> {
        let inner = Arc::clone(&self.inner);
        let name = inner.name(container);
        let (marks, container) = (inner.marks.clone(), container.clone());
        inner.pauses.expect_removal();
        async move {
            let _ = tokio::task::spawn_blocking(move || marks.remove(&container, request)).await;
            let _removing = inner.pauses.removal().await;
            // A container of a later request keeps the name.
            if let Ok(found) = inner.inspect(&name).await
                && request_of(&found) == Some(request)
                && let Err(error) = Inner::remove(&inner.docker, &name).await
            {
                tracing::warn!(name, %error, "it stays in the engine until the agent's restart");
            }
        }
        .boxed()
    }

    fn writes_elsewhere<'a>(&'a self, container: &'a ContainerId) -> BoxFuture<'a, Vec<PathBuf>> {
        let name = self.inner.name(container);
        async move {
            let found = self.inner.inspect(&name).await.ok();
            found.as_ref().map_or_else(Vec::new, layers::written)
        }
        .boxed()
    }

    fn leave(&self) -> BoxFuture<'_, ()> {
        self.inner.pauses.end(CLEARING).boxed()
    }
}
