//! What an agent is told about its node.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use dormouse_messages::events::{CHECKPOINTS_RESUMABLE, Gpu};
use dormouse_messages::job::Mount;
use dormouse_messages::policy::LeaseTerm;
use dormouse_messages::{Amounts, NodeId};

use crate::layout::Layout;
use crate::nvml;
use crate::rotate::LogBounds;
use crate::runtime::User;
use crate::store::settings::StoreSettings;

/// What runs the containers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RuntimeKind {
    /// Plain processes.
    #[default]
    Process,
    /// Docker.
    Docker,
}

/// What a node keeps of jobs on its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// How long the directories of ended containers are kept, with what they printed; absent:
    /// always.
    pub logs: Option<Duration>,
    /// How much a container may leave of what it prints.
    pub log_bounds: LogBounds,
    /// How many of a job's checkpoints; those that the log may name are kept in any case.
    pub checkpoints: usize,
    /// How much of the disk a tenant may use, for what its containers leave here and for its
    /// checkpoints; absent: as much as there is.
    pub tenant_bytes: Option<u64>,
    /// How many files and folders a tenant may have there; absent: where its bytes are bounded, as
    /// many as are counted.
    pub tenant_files: Option<u64>,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            logs: None,
            log_bounds: LogBounds::default(),
            checkpoints: CHECKPOINTS_RESUMABLE,
            tenant_bytes: None,
            tenant_files: None,
        }
    }
}

/// How a node keeps jobs from each other and from itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contain {
    /// Users that tenants become, in the order in which they appear on the log, where they were not
    /// granted one.
    pub uids: RangeInclusive<u32>,
    /// How many processes a container may have.
    pub processes: u64,
}

impl Default for Contain {
    /// Users that no distribution gives to people or services, above those of containers' tools.
    fn default() -> Self {
        Self {
            uids: 200_000..=265_535,
            processes: 4096,
        }
    }
}

impl Contain {
    /// Whether this process may make sandboxes.
    #[must_use]
    pub fn is_possible() -> bool {
        nix::unistd::geteuid().is_root()
    }

    /// The user of the tenant that appeared on the log as number `order`, from 0.
    ///
    /// # Errors
    /// When there are more tenants than users.
    pub fn user(&self, order: u32) -> Result<User, String> {
        let uid = self.uids.start().checked_add(order);
        match uid.filter(|uid| self.uids.contains(uid)) {
            Some(uid) => Ok(User { uid, gid: uid }),
            None => Err(format!(
                "no user is left for its tenant; give the agents more than --uids {}..{}, or the tenant one of its own (dormouse tenant set NAME --run-as UID:GID)",
                self.uids.start(),
                self.uids.end()
            )),
        }
    }
}

/// This very program, in its other role.
fn keeper_command() -> Vec<String> {
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("dormouse"));
    vec![program.display().to_string(), "keeper".to_owned()]
}

/// Where the library for parts of GPUs lies that came with this program: beside it, or where
/// packages put it.
#[must_use]
pub fn gpu_library() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let beside = program.parent()?;
    let folders = ["", "deps", "../lib/dormouse"];
    let paths = folders.map(|folder| beside.join(folder).join(GPU_LIBRARY));
    paths.into_iter().find(|path| path.is_file())
}

/// How often the use of shared GPUs is told: as often as other observations, at most.
const GPU_WINDOW: Duration = Duration::from_secs(10);

/// Its name.
pub const GPU_LIBRARY: &str = "libdormouse_gpu.so";

/// An agent's configuration.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// What tells this agent's Docker containers from those of other clusters on the same engine: they
    /// carry it as a label, and in their names.
    pub cluster: String,
    /// The label that agents of earlier builds gave: what carries it and works in this agent's folder is
    /// ended.
    pub former_cluster: Option<String>,
    /// This build: a snapshot of another one is not used.
    pub build: String,
    /// The node's name.
    pub node: NodeId,
    /// What it offers.
    pub capacity: Amounts,
    /// The operator's labels.
    pub labels: BTreeMap<String, String>,
    /// What keeps containers away that do not tolerate it.
    pub taints: BTreeSet<String>,
    /// Its GPUs.
    pub gpus: Vec<Gpu>,
    /// Where other nodes reach it: an IP (MXNet's scheduler refuses host names).
    pub address: String,
    /// What runs the containers.
    pub runtime: RuntimeKind,
    /// Containers' directories lie under it.
    pub data_dir: PathBuf,
    /// Checkpoints lie under it: on a cluster, a shared file system, or this node's own, where
    /// they go to a store.
    pub checkpoint_dir: PathBuf,
    /// The store that they go to.
    pub checkpoint_store: Option<StoreSettings>,
    /// How long the node's lease lasts without renewal; absent: as the policy on the log has it.
    pub lease: Option<LeaseTerm>,
    /// Whether its containers end when the lease cannot be renewed. Not where the broker runs in the
    /// same process: nobody else declares the node lost.
    pub fenced: bool,
    /// What is done when the agent dies and none comes back; absent: the node's lease is waited for.
    pub gone: Option<IfGone>,
    /// Folders that come first in the `PATH`; Docker containers see them where a mount shows them.
    pub path: Vec<PathBuf>,
    /// Where programs start (in Docker it must be mounted to hold anything); absent: in the
    /// container's own directory.
    pub working_dir: Option<PathBuf>,
    /// Folders that every Docker container is given, at the same path.
    pub mounts: Vec<Mount>,
    /// What is kept of jobs.
    pub keep: Retention,
    /// The command that becomes the node's keeper: its folder is added to it.
    pub keeper: Vec<String>,
    /// How jobs are contained; absent: they are trusted, and run as the agent's own user.
    pub contain: Option<Contain>,
    /// The library that is loaded before programs with a part of a GPU; absent: parts are told, and
    /// nothing holds a program to them.
    pub gpu_library: Option<PathBuf>,
    /// NVIDIA's library of management, by which the driver says who is on a shared GPU; where it cannot
    /// be loaded nothing is compared.
    pub nvml: PathBuf,
    /// How often the use of shared GPUs is told, and the driver asked.
    pub gpu_window: Duration,
    /// Whether it has a thread of its own, or lives in the actix system that it is run in.
    pub own_thread: bool,
}

/// What a node's keeper does when the agent has died.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IfGone {
    /// How long it waits for another one.
    pub after: Duration,
    /// The program that tells the log that a life's containers have ended, with its arguments; the life is
    /// added. It has the agent's environment and starts where the agent was started.
    pub command: Vec<String>,
}

impl AgentConfig {
    /// A node with plain processes, reached at 127.0.0.1, its checkpoints under `data_dir`.
    #[must_use]
    pub fn local(node: NodeId, capacity: Amounts, data_dir: PathBuf) -> Self {
        Self {
            cluster: "dormouse".to_owned(),
            former_cluster: None,
            build: env!("CARGO_PKG_VERSION").to_owned(),
            node,
            capacity,
            labels: BTreeMap::new(),
            taints: BTreeSet::new(),
            gpus: Vec::new(),
            address: "127.0.0.1".to_owned(),
            runtime: RuntimeKind::Process,
            checkpoint_dir: data_dir.join("checkpoints"),
            checkpoint_store: None,
            data_dir,
            lease: None,
            fenced: true,
            gone: None,
            path: Vec::new(),
            working_dir: None,
            mounts: Vec::new(),
            keep: Retention::default(),
            keeper: keeper_command(),
            contain: None,
            gpu_library: gpu_library(),
            nvml: PathBuf::from(nvml::LIBRARY),
            gpu_window: GPU_WINDOW,
            own_thread: true,
        }
    }

    /// Where everything lies.
    #[must_use]
    pub fn layout(&self) -> Layout {
        Layout::new(&self.data_dir, &self.checkpoint_dir, &self.node)
    }
}
