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
pub(crate) use procfs::{children, handles};
pub(crate) use procfs::{is_supervisor, parse_stat};

use crate::config::AgentConfig;
use crate::layout::Layout;
use crate::marks::{Mark, Marks};
use crate::runtime::{
    ContainerPlan, ContainerRuntime, Exit, Exits, Found, NotStarted, RuntimeError,
};
use record::{Recorded, Records};
use supervisor::Waiting;

/// A supervisor that cannot open its files says so by this exit code.
const NO_RECORDS: i32 = 125;

/// How long a supervisor whose program was killed may take to write the exit: a shell needs a
/// millisecond, a starved machine a hundred.
const RECORD_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a supervisor may take from its own start to its program's: a shell needs a
/// millisecond, a starved machine a hundred.
const START_TIMEOUT: Duration = Duration::from_secs(2);

/// How long what a container left behind may take to die; longer, and it is not killable.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs plain processes.
#[derive(Clone)]
pub struct ProcessRuntime {
    inner: Arc<Inner>,
}

struct Inner {
    layout: Layout,
    marks: Marks,
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
    records: Records,
}

impl ProcessRuntime {
    /// The runtime of a node; says once, loudly, if this machine takes no limits.
    #[must_use]
    pub fn new(config: &AgentConfig, marks: Marks, exits: Exits) -> Self {
        let owner = format!("{:016x}-{}", fnv(&config.data_dir), config.node);
        let cgroups = Cgroups::detect(&owner);
        if let Cgroups::Absent(why) = &cgroups {
            tracing::warn!(node = %config.node, why, "containers run WITHOUT memory and CPU limits; run the agent as root, or with a delegated cgroup, to have them");
        }
        Self::with_cgroups(config, marks, cgroups, exits)
    }

    /// The runtime of a node with these control groups.
    #[must_use]
    pub fn with_cgroups(
        config: &AgentConfig,
        marks: Marks,
        cgroups: Cgroups,
        exits: Exits,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                layout: config.layout(),
                marks,
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

    fn remember(&self, mark: &Mark, identity: Identity) {
        let live = Live {
            identity,
            group: self.group_of(mark),
            records: Records::of(&self.marks, mark),
        };
        self.live().insert(mark.container.clone(), live);
    }

    /// The control groups of a marked container.
    fn group_of(&self, mark: &Mark) -> Group {
        let name = mark.supervised.as_ref().map_or("", |it| it.group.as_str());
        self.cgroups.group_of(&mark.container, name)
    }

    /// Waits for a process that is not this agent's child.
    fn adopt(self: &Arc<Self>, mark: &Mark, identity: Identity) {
        let (inner, container) = (Arc::clone(self), mark.container.clone());
        inner.remember(mark, identity);
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
        sweep(&container, &live).await;
        let exit = match live.records.exit() {
            Some(exit) => exit,
            // Nothing ran: the supervisor opens its files first.
            None if status.and_then(|status| status.code()) == Some(NO_RECORDS) => {
                record::unwritten(&container)
            }
            None => unrecorded(status),
        };
        let exit = completed(&live.group, exit);
        let _ = self.exits.send((container, exit));
    }

    fn list(self: &Arc<Self>) -> Result<Vec<Found>, RuntimeError> {
        let (mut found, mut groups) = (Vec::new(), Vec::new());
        let marks = self.marks.all();
        for mark in marks.map_err(|error| RuntimeError::List(error.to_string()))? {
            let Some(supervised) = &mark.supervised else {
                continue;
            };
            let group = self.group_of(&mark);
            let status = match Records::of(&self.marks, &mark).read(supervised) {
                // A former agent died before it gave its orders: it is started again.
                Recorded::Nothing => {
                    self.marks.remove(&mark.container, mark.request);
                    continue;
                }
                Recorded::Running(identity) => {
                    self.adopt(&mark, identity);
                    Ok(identity.pid)
                }
                Recorded::Ended(exit) => Err(completed(&group, exit)),
                Recorded::Vanished => Err(completed(&group, unrecorded(None))),
            };
            groups.push(group);
            found.push(Found {
                container: mark.container,
                request: mark.request,
                status,
            });
        }
        self.cgroups.remove_unused(&groups);
        Ok(found)
    }

    async fn kill(&self, container: &ContainerId) {
        let Some(live) = self.get(container) else {
            return;
        };
        let until = tokio::time::Instant::now() + RECORD_TIMEOUT;
        while live.identity.is_alive() {
            procfs::kill_members(live.group.members(), live.identity);
            if tokio::time::Instant::now() > until {
                live.group.kill();
                let _ = live.identity.signal_group(Signal::SIGKILL);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// An exit with what its control group adds to it.
fn completed(group: &Group, exit: Exit) -> Exit {
    let out_of_memory = !exit.is_success() && group.ran_out_of_memory();
    Exit {
        out_of_memory,
        ..exit
    }
}

/// Kills what the container left behind.
async fn sweep(container: &ContainerId, live: &Live) {
    let until = tokio::time::Instant::now() + SWEEP_TIMEOUT;
    // The supervisor is gone: now the kernel may kill whatever is left at once.
    if !live.identity.is_alive() {
        live.group.kill();
    }
    while procfs::kill_members(live.group.members(), live.identity) > 0 {
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
                Err(error) => Err(NotStarted::from(error.to_string()).into()),
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

    fn notify<'a>(
        &'a self,
        container: &'a ContainerId,
        signal: Signal,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        if let Some(live) = self.inner.get(container) {
            procfs::notify_members(live.group.members(), live.identity, signal);
        }
        futures::future::ready(Ok(())).boxed()
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
        let (inner, container) = (Arc::clone(&self.inner), container.clone());
        // It waits for whoever moves a process at this moment.
        let removing = tokio::task::spawn_blocking(move || {
            if let Some(mark) = inner.marks.get(&container, request) {
                inner.group_of(&mark).remove();
            }
            inner.marks.remove(&container, request);
        });
        removing.map(drop).boxed()
    }
}
