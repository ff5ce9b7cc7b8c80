//! Plain processes: each container is a program under an init of the node's supervisor ([`crate::supervisor`]),
//! so it survives the agent.
//!
//! - Leftover processes are killed before the exit's report, so that none overlaps the next incarnation.
//! - A mark precedes the start request. If it names another supervisor, its container is gone. If it names
//!   the present one, or one that left in order, an unknown container never ran.
//!
//! Files: `exec` attached programs, `sandboxed` sandboxes, `start` preparation.

mod exec;
pub(crate) mod sandboxed;
mod start;

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use nix::sys::signal::Signal;

use dormouse_agent_core::{Exit, NotStarted};
use dormouse_messages::events::NodeFault;
use dormouse_messages::{ContainerId, Sequence};
use dormouse_sandbox::isolation::HostView;
use dormouse_sandbox::protocol::{Orders, Settings};
use dormouse_sandbox::supervisor::Supervised;

use crate::config::{AgentConfig, Contain};
use crate::container_plan::{ContainerPlan, PythonPlan};
use crate::container_record::{ContainerRecord, ContainerRecords};
use crate::exec::attached::{Attach, Attached};
use crate::layout::Layout;
use crate::preparing::Preparing;
use crate::runtime::{ContainerDriver, Exits, Found, RuntimeError};
use crate::supervisor::{self, Supervisor};

/// Time limit of a start, which takes seconds on a starved machine.
const START_WITHIN: Duration = Duration::from_secs(60);

/// Limit of the following kill. A slower init dies in the kernel before it runs the program.
const KILLED_WITHIN: Duration = Duration::from_secs(10);

/// Runs plain processes.
#[derive(Clone)]
pub struct ProcessRuntime {
    inner: Arc<Inner>,
}

struct Inner {
    layout: Layout,
    marks: ContainerRecords,
    supervisor: Supervisor,
    path: Vec<PathBuf>,
    working_dir: Option<PathBuf>,
    has_gpus: bool,
    limits: Result<(), String>,
    contain: Option<Contain>,
    view: Option<HostView>,
    preparing: Preparing,
}

/// Returns the configuration of a node's supervisor, with or without limits for containers.
#[must_use]
pub fn supervisor_config(config: &AgentConfig, with_limits: bool) -> supervisor::Config {
    let owner = format!("{:016x}-{}", fnv(&config.data_dir), config.node);
    supervisor::Config {
        folder: config.layout().supervisor(),
        command: config.supervisor.clone(),
        settings: Settings {
            groups: with_limits.then_some(owner),
            view: sandboxed::view(config),
            engine: None,
        },
    }
}

impl ProcessRuntime {
    /// Connects to the node's supervisor. Logs one warning if the machine supports no limits.
    ///
    /// # Errors
    /// If no supervisor can be started.
    pub async fn connect(
        config: &AgentConfig,
        marks: ContainerRecords,
        exits: Exits,
        with_limits: bool,
    ) -> Result<Self, RuntimeError> {
        let (supervisor, welcome) =
            Supervisor::connect(supervisor_config(config, with_limits), exits).await?;
        if let Err(why) = &welcome.limits {
            tracing::warn!(node = %config.node, why, "containers run WITHOUT memory and CPU limits; run the agent as root, or with a delegated cgroup, to have them");
        }
        Ok(Self {
            inner: Arc::new(Inner {
                layout: config.layout(),
                marks,
                supervisor,
                path: config.path.clone(),
                working_dir: config.working_dir.clone(),
                has_gpus: !config.gpus.is_empty(),
                limits: welcome.limits,
                contain: config.contain.clone(),
                view: sandboxed::view(config),
                preparing: Preparing::default(),
            }),
        })
    }

    /// Reports whether containers have limits.
    #[must_use]
    pub fn has_limits(&self) -> bool {
        self.inner.limits.is_ok()
    }

    /// Returns the node's supervisor.
    #[must_use]
    pub fn supervisor(&self) -> Supervisor {
        self.inner.supervisor.clone()
    }
}

fn fnv(path: &Path) -> u64 {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl Inner {
    fn list(&self) -> Result<Vec<Found>, RuntimeError> {
        let mut found = self.supervisor.held();
        let left = dormouse_sandbox::supervisor::left(&self.layout.supervisor());
        let marks = self.marks.all();
        for mark in marks.map_err(|error| RuntimeError::List(error.to_string()))? {
            let is_held = |it: &Found| it.container == mark.container && it.request == mark.request;
            let Some(supervised) = &mark.supervised else {
                continue;
            };
            if found.iter().any(is_held) {
                continue;
            }
            let identity = supervised.identity();
            let is_present = identity.is_some() && identity == self.supervisor.identity();
            if is_present || left.as_ref() == Some(supervised) {
                // The previous agent died before its request.
                self.marks.remove(&mark.container, mark.request);
                continue;
            }
            found.push(Found {
                container: mark.container,
                request: mark.request,
                status: Err(Exit::unseen()),
            });
        }
        Ok(found)
    }

    /// Starts orders. After a timeout kills the container, so that nothing runs after the failure.
    async fn start(
        &self,
        container: ContainerId,
        request: Sequence,
        orders: Orders,
    ) -> Result<u32, NotStarted> {
        let has_mounts = orders
            .sandbox
            .as_ref()
            .is_some_and(|it| !it.mounts.is_empty());
        let starting = self.supervisor.start(container.clone(), request, orders);
        let mut starting = pin!(starting);
        if let Ok(started) = tokio::time::timeout(START_WITHIN, &mut starting).await {
            return started;
        }
        self.supervisor.kill(&container);
        let why = format!("it did not start in {} s", START_WITHIN.as_secs());
        match tokio::time::timeout(KILLED_WITHIN, starting).await {
            Ok(Ok(pid)) => Ok(pid),
            _ if has_mounts => {
                Err(format!("{why}; see that its mounts answer on this node").into())
            }
            _ => Err(NotStarted::of_node(NodeFault::Processes, why)),
        }
    }

    fn note(&self, plan: &ContainerPlan) -> Result<(), NotStarted> {
        let mark = ContainerRecord::new(plan.container.clone(), plan.request);
        let mut mark = mark.of(plan.admitted);
        let supervisor = self.supervisor.identity();
        mark.supervised = supervisor.map(Supervised::by_supervisor);
        mark.environment = plan.python.as_ref().map(PythonPlan::name);
        let noted = self.marks.put(&mark);
        let path = self.marks.path(&plan.container, plan.request);
        noted.map_err(|error| crate::disk_error::of_disk("cannot write", &path, &error))
    }
}

impl ContainerDriver for ProcessRuntime {
    fn name(&self) -> &'static str {
        "process"
    }

    fn start(&self, plan: ContainerPlan) -> BoxFuture<'_, Result<u32, RuntimeError>> {
        let inner = Arc::clone(&self.inner);
        async move {
            let preparing = Arc::clone(&inner);
            let (container, request) = (plan.container.clone(), plan.request);
            let own = inner.layout.container_below(&container);
            let prepared = inner
                .preparing
                .prepare(&container, own, move || preparing.prepare(&plan));
            let orders = prepared.await?;
            Ok(inner.start(container, request, orders).await?)
        }
        .boxed()
    }

    fn first_process<'a>(&'a self, container: &'a ContainerId) -> BoxFuture<'a, Option<u32>> {
        let held = self.inner.supervisor.held();
        let held = held.into_iter().find(|it| it.container == *container);
        let process = held.and_then(|it| it.status.ok()).filter(|pid| *pid > 0);
        futures::future::ready(process).boxed()
    }

    fn signal<'a>(
        &'a self,
        container: &'a ContainerId,
        signal: Signal,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.inner.supervisor.signal(container, signal as i32);
        futures::future::ready(Ok(())).boxed()
    }

    fn notify<'a>(
        &'a self,
        container: &'a ContainerId,
        signal: Signal,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.inner.supervisor.notify(container, signal as i32);
        futures::future::ready(Ok(())).boxed()
    }

    fn kill<'a>(&'a self, container: &'a ContainerId) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.inner.preparing.end(container);
        self.inner.supervisor.kill(container);
        futures::future::ready(Ok(())).boxed()
    }

    fn exec(&self, plan: ContainerPlan, attach: Attach) -> BoxFuture<'_, Result<Attached, String>> {
        exec::exec(Arc::clone(&self.inner), plan, attach).boxed()
    }

    fn recover(&self) -> BoxFuture<'_, Result<Vec<Found>, RuntimeError>> {
        let inner = Arc::clone(&self.inner);
        async move {
            match tokio::task::spawn_blocking(move || inner.list()).await {
                Ok(found) => found,
                Err(error) => Err(RuntimeError::List(error.to_string())),
            }
        }
        .boxed()
    }

    fn writes_elsewhere<'a>(&'a self, _container: &'a ContainerId) -> BoxFuture<'a, Vec<PathBuf>> {
        futures::future::ready(Vec::new()).boxed()
    }

    fn remove(&self, container: &ContainerId, request: Sequence) -> BoxFuture<'static, ()> {
        self.inner.supervisor.forget(container, request);
        let (inner, container) = (Arc::clone(&self.inner), container.clone());
        let removing = tokio::task::spawn_blocking(move || {
            let tmp = inner.layout.container(&container).join(sandboxed::TMP);
            if inner.contain.is_some() {
                let _ = std::fs::remove_dir_all(tmp);
            }
            inner.marks.remove(&container, request);
        });
        removing.map(drop).boxed()
    }
}
