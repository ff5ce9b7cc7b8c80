//! The node agent: runs the containers that the log asks of one node, and reports events.
//!
//! ```text
//!  log ──► Agent (drives the core's machine) ──► Container, one each ──► ContainerDriver
//!  lease ─►   │ ▲                                   │  ▲ (watch: checkpoints, progress)
//!             ▼ └────────────── notes ──────────────┘  └─ exits
//!          Reports ──► log
//! ```
//!
//! The pure [`dormouse_agent_core`] decides, this crate acts.
//!
//! - A restarted agent folds the log ([`snapshot`]) and adopts containers, so nothing runs twice. Stopping the
//!   agent stops none.
//! - Without a renewed lease containers end before the lease does, if need be by the [`supervisor`].
//! - An agent that finds another writing for its node stops.
//!
//! Open [`agent`] and [`container`] for actors, [`plan`] and [`executor`] for command lines, [`process`] and
//! [`docker`] for runtimes, [`supervisor`] for the connection to the privileged half ([`dormouse_sandbox`]).

/// Last words of each reason about a missing program.
pub const NO_PROGRAM: &str = "install it, or correct the command";

pub mod able;
pub mod agent;
pub mod blocking;
pub mod cache;
pub mod checkpoint_snapshot;
pub mod code;
pub mod config;
pub mod connect;
pub mod container;
pub mod container_plan;
pub mod container_record;
mod disk_error;
pub mod docker;
pub mod exec;
pub mod executor;
pub mod gpu_doubts;
pub mod jupyter;
pub mod layout;
pub mod lease;
pub mod listening;
pub mod logs;
pub mod members;
mod mounts;
pub mod network;
pub mod nvml;
pub mod plan;
mod preparing;
pub mod probe;
pub mod process;
mod provided;
pub mod prune;
pub mod python;
pub mod report;
pub mod rotate;
pub mod runtime;
pub mod secrets;
pub mod snapshot;
pub mod store;
pub mod supervisor;
pub mod tasks;
pub mod usage;
pub mod watch;
pub mod wire;

use std::fs::{self, File};
use std::future::{Future, ready};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix::prelude::*;
use tokio::sync::{mpsc, oneshot, watch as latest};

use dormouse_agent_core::Exit;
pub use dormouse_agent_core::{reconcile, state};
use dormouse_runtime::retry;

pub use config::{AgentConfig, Retention, RuntimeKind};
pub use layout::{Logs, logs_path, open_log, task_output};
pub use rotate::{LogBounds, log_parts};
use wire::Heard;
pub use wire::Wires;

use agent::{Agent, Batch, Drain, Leave, LogLost, RuntimeExit};
use code::{Cache, CodeSource};
use container_record::ContainerRecords;
use docker::DockerRuntime;
use process::ProcessRuntime;
use provided::Provided;
use python::Environments;
use report::Reports;
use runtime::{ContainerDriver, Exits, RuntimeError};
use supervisor::Supervisor;

const BATCH: usize = 1_024;

/// Signals of one end arrive within this time.
const MAY_END_TOGETHER: Duration = Duration::from_secs(1);

const LOCK_PATIENCE: Duration = Duration::from_secs(1);
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// The reason why an agent stopped. Its containers run on.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error(
        "another agent acts for this node ({0}); give each node a name of its own, or stop the other one"
    )]
    Superseded(String),
    #[error("the broker does not let this agent write ({0}); check its credentials")]
    Denied(String),
    #[error("another agent runs on {0}; stop it, or give this one another data directory")]
    Locked(PathBuf),
    #[error("the agent's directory {path} cannot be used: {error}")]
    Directory {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error(transparent)]
    Start(#[from] dormouse_runtime::StartError),
    #[error("the log holds {0}, which this build does not know; install a newer agent")]
    TooNew(String),
    #[error(transparent)]
    LogLost(#[from] dormouse_runtime::LogWentBack),
    #[error(transparent)]
    Checkpoints(#[from] dormouse_bucket::SettingsError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error("the agent's thread has failed; see its log")]
    Thread,
}

/// Runs an agent of the cluster behind `log` until `shutdown` or a failure. Its containers run on.
///
/// # Errors
/// The reason of a failure.
pub async fn run(
    config: AgentConfig,
    log: dormouse_runtime::Log,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), AgentError> {
    let wires = connect::wires(&config, &log).await?;
    let logs = logs::Printed::new(&config, wires.alive.clone());
    let serving = tokio::spawn(async move { logs.serve(&log).await });
    let ended = run_wired(config, wires, shutdown).await;
    serving.abort();
    ended
}

/// Runs an agent over any connections, as [`run`] does over real ones.
///
/// # Errors
/// The reason of a failure.
///
/// # Panics
/// Outside of an actix system if `config.own_thread` is false.
pub async fn run_wired(
    config: AgentConfig,
    wires: Wires,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), AgentError> {
    if !config.own_thread {
        return live(config, wires, shutdown).await;
    }
    let (done, ended) = oneshot::channel();
    std::thread::Builder::new()
        .name(format!("agent-{}", config.node))
        .spawn(move || {
            let system = actix::System::new();
            let _ = done.send(system.block_on(live(config, wires, shutdown)));
        })
        .map_err(|_| AgentError::Thread)?;
    ended.await.map_err(|_| AgentError::Thread)?
}

/// Checks that the container runtime answers.
///
/// # Errors
/// If the runtime does not answer.
pub async fn check_runtime(kind: RuntimeKind) -> Result<(), AgentError> {
    match kind {
        RuntimeKind::Process => Ok(()),
        RuntimeKind::Docker => Ok(docker::engine_answers().await.map(drop)?),
    }
}

/// Ends the containers of a node without an agent, and returns their number. Nothing is reported.
///
/// # Errors
/// If an agent runs there, or the runtime fails.
pub async fn abandon(config: &AgentConfig) -> Result<usize, AgentError> {
    let _lock = lock(config).await?;
    let (exits, mut exited) = mpsc::unbounded_channel();
    let (runtime, _supervisor) = open_runtime(config, open_marks(config)?, exits).await?;
    let found = runtime.recover().await?;
    let running = || found.iter().filter(|found| found.status.is_ok());
    for found in running() {
        runtime.kill(&found.container).await?;
    }
    for _ in running() {
        exited.recv().await;
    }
    for found in &found {
        runtime.remove(&found.container, found.request).await;
    }
    Ok(running().count())
}

async fn live(
    config: AgentConfig,
    wires: Wires,
    shutdown: impl Future<Output = ()>,
) -> Result<(), AgentError> {
    let _lock = lock(&config).await?;
    let (exits, exited) = mpsc::unbounded_channel();
    let marks = open_marks(&config)?;
    let (runtime, supervisor) = open_runtime(&config, marks.clone(), exits).await?;
    if let Some(supervisor) = supervisor.as_ref().filter(|_| !config.fenced) {
        supervisor.hold_until(None);
    }
    let supervisor = supervisor.filter(|_| config.fenced);
    let (done, ended) = oneshot::channel();
    let Wires {
        heard,
        outlet,
        lease,
        asked,
        execs,
        kept,
        alive,
        code,
        checkpoints,
    } = wires;
    let runtime = provided(&config, runtime, (code, marks.clone()))?;
    let allocation = config.allocation;
    let (term_tx, term) = latest::channel(config.lease.unwrap_or_default());
    let terms = lease::Terms {
        term,
        fenced: config.fenced,
    };
    let agent = Agent::create(|ctx| {
        let address = ctx.address();
        let reports = Reports::new(outlet, address.clone().recipient(), address.recipient());
        Agent::new(
            (config, marks, alive, checkpoints),
            runtime,
            reports,
            kept,
            (term_tx, lease.is_none(), supervisor.clone()),
            done,
        )
    });
    if let Some(lease) = lease {
        actix::spawn(lease::hold(
            lease,
            terms,
            agent.clone().recipient(),
            supervisor,
        ));
    }
    let leaves = allocation.map(|_| Arc::new(AtomicBool::new(false)));
    pass_exits(exited, agent.clone(), leaves.clone());
    if let Some(allocation) = allocation {
        drain_when_warned(allocation, agent.clone());
    }
    pass_on(asked, &agent);
    pass_on(execs, &agent);
    pass_log(heard, agent.clone());
    tokio::pin!(ended);
    tokio::select! {
        result = &mut ended => return result.map_err(|_| AgentError::Thread)?,
        () = shutdown => {
            if let Some(leaves) = leaves {
                leaves.store(true, Ordering::Relaxed);
            }
            agent.do_send(Leave);
        }
    }
    ended.await.map_err(|_| AgentError::Thread)?
}

/// Passes the log to the agent, in batches.
fn pass_log(mut heard: mpsc::Receiver<Heard>, agent: Addr<Agent>) {
    actix::spawn(async move {
        let mut batch = Vec::with_capacity(BATCH);
        while heard.recv_many(&mut batch, BATCH).await > 0 {
            if agent.send(Batch(std::mem::take(&mut batch))).await.is_err() {
                return;
            }
        }
        agent.do_send(LogLost);
    });
}

/// At the end of an allocation every process gets the same signal, and a program that saves and exits with 0
/// has not completed. An agent that leaves reports no exit: the containers are lost with their node.
fn pass_exits(
    mut exited: mpsc::UnboundedReceiver<(dormouse_messages::ContainerId, Exit)>,
    agent: Addr<Agent>,
    leaves: Option<Arc<AtomicBool>>,
) {
    actix::spawn(async move {
        while let Some((container, exit)) = exited.recv().await {
            let (agent, leaves) = (agent.clone(), leaves.clone());
            let Some(leaves) = leaves else {
                agent.do_send(RuntimeExit(container, exit));
                continue;
            };
            actix::spawn(async move {
                tokio::time::sleep(MAY_END_TOGETHER).await;
                if !leaves.load(Ordering::Relaxed) {
                    agent.do_send(RuntimeExit(container, exit));
                }
            });
        }
    });
}

/// Drains the node on SIGUSR1.
fn drain_when_warned(allocation: config::Allocation, agent: Addr<Agent>) {
    let warned = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::user_defined1());
    let Ok(mut warned) = warned else {
        return;
    };
    actix::spawn(async move {
        while warned.recv().await.is_some() {
            tracing::warn!("the allocation ends: the node is drained");
            agent.do_send(Drain(allocation));
        }
    });
}

fn pass_on<M>(asked: Option<mpsc::Receiver<M>>, agent: &Addr<Agent>)
where
    M: Message<Result = ()> + Send + 'static,
    Agent: Handler<M>,
{
    let (Some(mut asked), agent) = (asked, agent.clone()) else {
        return;
    };
    actix::spawn(async move {
        while let Some(question) = asked.recv().await {
            agent.do_send(question);
        }
    });
}

fn provided(
    config: &AgentConfig,
    runtime: Arc<dyn ContainerDriver>,
    (source, marks): (Option<Arc<dyn CodeSource>>, ContainerRecords),
) -> Result<Arc<dyn ContainerDriver>, AgentError> {
    let layout = config.layout();
    let fail = |path: PathBuf| move |error| AgentError::Directory { path, error };
    let code = Cache::open(layout.clone(), source).map_err(fail(layout.code()))?;
    let environments = Environments::open(config).map_err(fail(layout.environments()))?;
    Ok(Arc::new(Provided::new(runtime, code, environments, marks)))
}

/// Locks the directory. A forked child of a leaving agent may hold the lock until its exec, hence the
/// retries.
async fn lock(config: &AgentConfig) -> Result<File, AgentError> {
    let directory = config.layout().node().to_owned();
    let fail = |error| AgentError::Directory {
        path: directory.clone(),
        error,
    };
    fs::create_dir_all(&directory).map_err(fail)?;
    let file = File::create(directory.join("lock")).map_err(fail)?;
    let is_held = |error: &fs::TryLockError| matches!(error, fs::TryLockError::WouldBlock);
    let attempt = || ready(file.try_lock());
    let locked = retry(LOCK_PAUSE, LOCK_PATIENCE, is_held, attempt).await;
    match locked {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(AgentError::Locked(directory)),
        Err(fs::TryLockError::Error(error)) => Err(fail(error)),
    }
}

fn open_marks(config: &AgentConfig) -> Result<ContainerRecords, AgentError> {
    let layout = config.layout();
    ContainerRecords::open(&layout).map_err(|error| AgentError::Directory {
        path: layout.node().to_owned(),
        error,
    })
}

async fn open_runtime(
    config: &AgentConfig,
    marks: ContainerRecords,
    exits: Exits,
) -> Result<(Arc<dyn ContainerDriver>, Option<Supervisor>), AgentError> {
    match config.runtime {
        RuntimeKind::Process => {
            let runtime = ProcessRuntime::connect(config, marks, exits, true).await?;
            let supervisor = runtime.supervisor();
            Ok((Arc::new(runtime), Some(supervisor)))
        }
        RuntimeKind::Docker => {
            let runtime = DockerRuntime::connect(config, marks, exits.clone()).await?;
            let supervisor = if config.fenced {
                Some(docker::supervisor(config, exits).await?)
            } else {
                None
            };
            Ok((Arc::new(runtime), supervisor))
        }
    }
}
