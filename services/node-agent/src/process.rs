//! Plain processes: a process group a container, under a supervising shell that records how the
//! program ended, so that neither the agent's death nor its restart loses anything.
//!
//! - A process is known by its number, its start time and the machine's boot; nothing else is
//!   ever signalled.
//! - The container ends with its program: what it leaves behind is killed before the exit is
//!   reported, so that nothing runs beside the next incarnation.
//! - Signals go to the process group, the supervisor's number: `kill -TERM -- -PID`.

mod cgroup;
mod procfs;
mod record;
mod start;
mod supervisor;

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use dormouse_messages::{ContainerId, Sequence};
use dormouse_runtime::{Clock, SystemClock};

pub use cgroup::{Cgroups, Group};
pub use procfs::{Identity, stat};

use crate::config::AgentConfig;
use crate::layout::{self, Layout};
use crate::runtime::{ContainerPlan, ContainerRuntime, Exit, Exits, Found, RuntimeError};
use record::Recorded;
use supervisor::Waiting;

/// A supervisor that found another one at work says so by this exit code.
const NOT_MINE: i32 = 125;

/// How long a supervisor whose program was killed may take to write the exit: a shell needs a
/// millisecond, a starved machine a hundred.
const RECORD_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a supervisor may take from its own start to its program's: a shell needs a
/// millisecond, a starved machine a hundred.
const START_TIMEOUT: Duration = Duration::from_secs(2);

/// How long what a container left behind may take to die; longer, and it is not killable.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a successor waits, in all, for supervisors that its predecessor started as it died:
/// a shell needs a millisecond to write its record.
const SETTLE_TIMEOUT: Duration = Duration::from_millis(500);

/// Runs plain processes.
#[derive(Clone)]
pub struct ProcessRuntime {
    inner: Arc<Inner>,
}

struct Inner {
    layout: Layout,
    cgroups: Cgroups,
    exits: Exits,
    path: Vec<PathBuf>,
    working_dir: Option<PathBuf>,
    has_gpus: bool,
    live: Mutex<BTreeMap<ContainerId, Live>>,
    /// Supervisors that wait for a container.
    waiting: Mutex<Vec<Waiting>>,
    is_filling: AtomicBool,
    groups_made: AtomicU64,
    /// Tells the groups of this life of the agent from a former one's.
    life: i64,
}

#[derive(Debug, Clone)]
struct Live {
    identity: Identity,
    group: Group,
    directory: PathBuf,
}

impl ProcessRuntime {
    /// The runtime of a node; says once, loudly, if this machine takes no limits.
    #[must_use]
    pub fn new(config: &AgentConfig, exits: Exits) -> Self {
        let owner = format!("{:016x}-{}", fnv(&config.data_dir), config.node);
        let cgroups = Cgroups::detect(&owner);
        if let Cgroups::Absent(why) = &cgroups {
            tracing::warn!(node = %config.node, why, "containers run WITHOUT memory and CPU limits; run the agent as root, or with a delegated cgroup, to have them");
        }
        Self::with_cgroups(config, cgroups, exits)
    }

    /// The runtime of a node with these control groups.
    #[must_use]
    pub fn with_cgroups(config: &AgentConfig, cgroups: Cgroups, exits: Exits) -> Self {
        Self {
            inner: Arc::new(Inner {
                layout: config.layout(),
                cgroups,
                exits,
                path: config.path.clone(),
                working_dir: config.working_dir.clone(),
                has_gpus: !config.gpus.is_empty(),
                live: Mutex::default(),
                waiting: Mutex::default(),
                is_filling: AtomicBool::new(false),
                groups_made: AtomicU64::new(0),
                life: SystemClock.now().as_micros(),
            }),
        }
    }

    /// Whether containers have limits.
    #[must_use]
    pub fn has_limits(&self) -> bool {
        !matches!(self.inner.cgroups, Cgroups::Absent(_))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end_waiting();
        self.cgroups.remove_if_empty();
    }
}

/// Waits until the supervisor has started its program, or has ended.
async fn until_it_runs(supervisor: Identity) {
    let until = Instant::now() + START_TIMEOUT;
    while supervisor.is_alive() && !supervisor.runs_program() && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// FNV-1a: names an agent's control groups after its data directory.
fn fnv(path: &Path) -> u64 {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl Inner {
    fn live(&self) -> MutexGuard<'_, BTreeMap<ContainerId, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, container: &ContainerId) -> Option<Live> {
        self.live().get(container).cloned()
    }

    fn remember(&self, container: &ContainerId, identity: Identity, directory: PathBuf) -> Live {
        let live = Live {
            identity,
            group: self.cgroups.group_in(&directory, container),
            directory,
        };
        self.live().insert(container.clone(), live.clone());
        live
    }

    /// Waits for a process that is not this agent's child.
    fn adopt(self: &Arc<Self>, container: ContainerId, identity: Identity, directory: PathBuf) {
        let inner = Arc::clone(self);
        inner.remember(&container, identity, directory);
        tokio::spawn(async move {
            if let Some(watch) = identity.watch() {
                #[expect(
                    deprecated,
                    reason = "its successor is unsafe; this descriptor is owned"
                )]
                let watch = AsyncFd::with_interest(watch, Interest::READABLE);
                match watch {
                    Ok(watch) => drop(watch.readable().await),
                    Err(error) => tracing::warn!(%container, %error, "cannot be watched"),
                }
            }
            while identity.is_alive() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            inner.finish(container, None).await;
        });
    }

    /// The supervisor has ended: sweeps up, and reports.
    async fn finish(self: Arc<Self>, container: ContainerId, status: Option<ExitStatus>) {
        let Some(live) = self.get(&container) else {
            return;
        };
        if let Some(other) = record::supervisor(&live.directory)
            && other != live.identity
            && status.and_then(|status| status.code()) == Some(NOT_MINE)
        {
            self.adopt(container, other, live.directory);
            return;
        }
        sweep(&container, &live).await;
        let exit = match record::exit(&live.directory) {
            Some(exit) => exit,
            // Nothing ran: the supervisor writes its record first.
            None if status.and_then(|status| status.code()) == Some(NOT_MINE)
                && record::supervisor(&live.directory).is_none() =>
            {
                Exit::cannot_start(&format!(
                    "its record cannot be written to {}; free space on this node's disk",
                    live.directory.display()
                ))
            }
            None => unrecorded(status),
        };
        let exit = self.completed(&container, exit);
        let _ = self.exits.send((container, exit));
    }

    fn list(self: &Arc<Self>) -> Result<Vec<Found>, RuntimeError> {
        let patience = Instant::now() + SETTLE_TIMEOUT;
        let (mut found, mut groups) = (Vec::new(), Vec::new());
        for (container, directory) in directories(&self.layout.containers())? {
            let Some(request) = record::request(&directory) else {
                continue;
            };
            if directory.join("told").exists() {
                continue;
            }
            groups.push(self.cgroups.group_in(&directory, &container));
            let status = match record::settled(&directory, patience) {
                Recorded::Nothing => continue,
                Recorded::Running(identity) => {
                    self.adopt(container.clone(), identity, directory);
                    Ok(identity.pid)
                }
                Recorded::Ended(exit) => Err(self.completed(&container, exit)),
                Recorded::Vanished => Err(self.completed(&container, unrecorded(None))),
            };
            found.push(Found {
                container,
                request,
                status,
            });
        }
        self.cgroups.remove_unused(&groups);
        Ok(found)
    }

    /// An exit with what its control group and the agent's notes add to it.
    fn completed(&self, container: &ContainerId, exit: Exit) -> Exit {
        let directory = self.layout.container(container);
        let group = self.cgroups.group_in(&directory, container);
        let out_of_memory = !exit.is_success() && group.ran_out_of_memory();
        let exit = Exit {
            out_of_memory,
            ..exit
        };
        layout::with_eviction(exit, &directory)
    }

    async fn kill(&self, container: &ContainerId) {
        let Some(live) = self.get(container) else {
            return;
        };
        let until = tokio::time::Instant::now() + RECORD_TIMEOUT;
        while live.identity.is_alive() {
            procfs::kill_members(live.group.procs().as_deref(), live.identity);
            if tokio::time::Instant::now() > until {
                let _ = live.identity.signal_group(Signal::SIGKILL);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Kills what the container left behind.
async fn sweep(container: &ContainerId, live: &Live) {
    let until = tokio::time::Instant::now() + SWEEP_TIMEOUT;
    while procfs::kill_members(live.group.procs().as_deref(), live.identity) > 0 {
        if tokio::time::Instant::now() > until {
            tracing::error!(%container, "processes that cannot be killed are left behind");
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// An exit without a record: the supervisor was killed, or could not write.
fn unrecorded(status: Option<ExitStatus>) -> Exit {
    match status {
        Some(status) => Exit {
            code: status.code(),
            signal: status.signal(),
            ..Exit::default()
        },
        None => Exit::evicted(
            "it is gone without an exit record: killed with its supervisor, or the machine \
             restarted"
                .to_owned(),
        ),
    }
}

/// Every container directory: `<tenant>/<name>/<incarnation>/<rank>`.
fn directories(root: &Path) -> Result<Vec<(ContainerId, PathBuf)>, RuntimeError> {
    let mut level = vec![(String::new(), root.to_owned())];
    for _ in 0..4 {
        let mut next = Vec::new();
        for (name, folder) in level {
            let entries = match std::fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => {
                    let why = format!("{}: {error}", folder.display());
                    return Err(RuntimeError::List(why));
                }
            };
            for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
                let last = entry.file_name().to_string_lossy().into_owned();
                let name = if name.is_empty() {
                    last
                } else {
                    format!("{name}/{last}")
                };
                next.push((name, entry.path()));
            }
        }
        level = next;
    }
    let parsed = |(name, folder): (String, PathBuf)| Some((name.parse().ok()?, folder));
    Ok(level.into_iter().filter_map(parsed).collect())
}

impl ContainerRuntime for ProcessRuntime {
    fn name(&self) -> &'static str {
        "process"
    }

    fn start(&self, plan: ContainerPlan) -> BoxFuture<'_, Result<u32, RuntimeError>> {
        let inner = Arc::clone(&self.inner);
        async move {
            let started = tokio::task::spawn_blocking(move || inner.start(&plan)).await;
            match started {
                Ok(started) => started.map_err(RuntimeError::Start),
                Err(error) => Err(RuntimeError::Start(error.to_string())),
            }
        }
        .boxed()
    }

    fn signal<'a>(
        &'a self,
        container: &'a ContainerId,
        signal: Signal,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        let live = self.inner.get(container);
        let container = container.clone();
        async move {
            // Its exit is on the way.
            let Some(live) = live else { return Ok(()) };
            until_it_runs(live.identity).await;
            match live.identity.signal_group(signal) {
                Ok(()) | Err(Errno::ESRCH) => Ok(()),
                Err(errno) => Err(RuntimeError::Signal {
                    container,
                    why: errno.desc().to_owned(),
                }),
            }
        }
        .boxed()
    }

    fn kill<'a>(&'a self, container: &'a ContainerId) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.inner.kill(container).map(Ok).boxed()
    }

    fn beside(&self, plan: ContainerPlan) -> BoxFuture<'_, Result<(), String>> {
        self.inner.beside(plan).boxed()
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Found>, RuntimeError>> {
        let inner = Arc::clone(&self.inner);
        async move {
            let listing = Arc::clone(&inner);
            match tokio::task::spawn_blocking(move || listing.list()).await {
                Ok(found) => {
                    inner.fill_later();
                    found
                }
                Err(error) => Err(RuntimeError::List(error.to_string())),
            }
        }
        .boxed()
    }

    fn forget(&self, container: &ContainerId, request: Sequence) -> BoxFuture<'static, ()> {
        self.inner.live().remove(container);
        let directory = self.inner.layout.container(container);
        let group = self.inner.cgroups.group_in(&directory, container);
        if record::request(&directory) == Some(request) {
            let _ = std::fs::write(directory.join("told"), "");
        }
        // It waits for whoever moves a process at this moment.
        let removing = tokio::task::spawn_blocking(move || group.remove());
        removing.map(drop).boxed()
    }
}
