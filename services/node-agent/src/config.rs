//! An agent's configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use dormouse_bucket::BucketSettings;
use dormouse_messages::events::{CHECKPOINTS_RESUMABLE, Gpu};
use dormouse_messages::job::Mount;
use dormouse_messages::policy::LeaseTerm;
use dormouse_messages::{Amounts, NodeId};
use dormouse_sandbox::folder::User;

use crate::layout::Layout;
use crate::nvml;
use crate::rotate::LogBounds;

/// The runtime of the containers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RuntimeKind {
    #[default]
    Process,
    Docker,
}

/// Limits on the data of jobs on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Time to keep ended containers' directories. `None`: always.
    pub logs: Option<Duration>,
    pub log_bounds: LogBounds,
    /// Checkpoints to keep per job, besides those that the log may name.
    pub checkpoints: usize,
    /// Disk limit of a tenant, checkpoints included. `None`: unlimited.
    pub tenant_bytes: Option<u64>,
    /// Limit on a tenant's files. `None`: the counting limit if bytes are bounded.
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

/// Isolation of jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contain {
    /// Users for tenants without a grant, in the tenants' order on the log.
    pub uids: RangeInclusive<u32>,
    pub processes: u64,
}

impl Default for Contain {
    /// Users that no distribution gives away, above those of container tools.
    fn default() -> Self {
        Self {
            uids: 200_000..=265_535,
            processes: 4096,
        }
    }
}

impl Contain {
    /// Reports whether this process may make sandboxes.
    #[must_use]
    pub fn is_possible() -> bool {
        nix::unistd::geteuid().is_root()
    }

    /// Returns the user of the tenant with index `order` on the log, from 0.
    ///
    /// # Errors
    /// If there are more tenants than users.
    pub fn user(&self, order: u32) -> Result<User, String> {
        let uid = self.uids.start().checked_add(order);
        match uid.filter(|uid| self.uids.contains(uid)) {
            Some(uid) => Ok(User { uid, gid: uid }),
            None => Err(format!(
                "no user is left for its tenant; give the agents more than --uids {}..{}, or the tenant one of its own (dormouse tenant grant NAME --run-as UID:GID)",
                self.uids.start(),
                self.uids.end()
            )),
        }
    }
}

fn supervisor_command() -> Vec<String> {
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("dormouse"));
    vec![program.display().to_string(), "supervisor".to_owned()]
}

/// Finds the GPU share library: next to this program, or where packages install it.
#[must_use]
pub fn gpu_library() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let program_folder = program.parent()?;
    let folders = ["", "deps", "../lib/dormouse"];
    let paths = folders.map(|folder| program_folder.join(folder).join(GPU_LIBRARY));
    paths.into_iter().find(|path| path.is_file())
}

/// Period of GPU usage reports, as of other observations.
const GPU_WINDOW: Duration = Duration::from_secs(10);

/// File name of the GPU share library.
pub const GPU_LIBRARY: &str = "libdormouse_gpu.so";

/// An agent's configuration.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// Distinguishes clusters on one Docker engine, as label and in names.
    pub cluster: String,
    /// Snapshots of other builds are not used.
    pub build: String,
    pub node: NodeId,
    pub capacity: Amounts,
    pub labels: BTreeMap<String, String>,
    pub taints: BTreeSet<String>,
    pub gpus: Vec<Gpu>,
    /// The IP for other nodes. MXNet's scheduler refuses host names.
    pub address: String,
    pub runtime: RuntimeKind,
    pub data_dir: PathBuf,
    /// Root of the checkpoints, shared by the cluster unless checkpoints go to a store.
    pub checkpoint_dir: PathBuf,
    pub checkpoint_store: Option<BucketSettings>,
    /// Term of the lease. `None`: the policy on the log decides.
    pub lease: Option<LeaseTerm>,
    /// True if containers end without a renewed lease. False if the broker runs in this process.
    pub fenced: bool,
    /// The action after the agent's death. `None`: the lease runs out.
    pub gone: Option<IfGone>,
    /// The node belongs to an allocation that ends.
    pub allocation: Option<Allocation>,
    /// Folders in front of `PATH`. In Docker they need mounts.
    pub path: Vec<PathBuf>,
    /// Working directory, to be mounted in Docker. `None`: the container's directory.
    pub working_dir: Option<PathBuf>,
    pub mounts: Vec<Mount>,
    pub keep: Retention,
    pub supervisor: Vec<String>,
    /// Isolation of jobs. `None`: jobs run as the agent's user.
    pub contain: Option<Contain>,
    /// The library for GPU shares. `None`: shares are only advisory.
    pub gpu_library: Option<PathBuf>,
    /// NVIDIA's management library. Without it nothing is compared.
    pub nvml: PathBuf,
    pub gpu_window: Duration,
    /// True if the agent has its own thread, false in the caller's actix system.
    pub own_thread: bool,
}

/// The supervisor's action after the agent dies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IfGone {
    pub after: Duration,
    /// The command that reports an incarnation's end, with the incarnation appended. It inherits environment
    /// and working directory.
    pub command: Vec<String>,
}

/// An allocation of another scheduler, which warns by SIGUSR1 and then ends every process of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    /// Seconds from the warning to the end.
    pub drain_s: u32,
}

impl Allocation {
    /// Returns the drain's deadline: containers that cannot move get some seconds to end.
    #[must_use]
    pub fn deadline_s(self) -> u32 {
        self.drain_s.saturating_sub(30).max(self.drain_s / 2)
    }
}

impl AgentConfig {
    /// Returns a configuration with plain processes at 127.0.0.1 and checkpoints under `data_dir`.
    #[must_use]
    pub fn local(node: NodeId, capacity: Amounts, data_dir: PathBuf) -> Self {
        Self {
            cluster: "dormouse".to_owned(),
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
            allocation: None,
            path: Vec::new(),
            working_dir: None,
            mounts: Vec::new(),
            keep: Retention::default(),
            supervisor: supervisor_command(),
            contain: None,
            gpu_library: gpu_library(),
            nvml: PathBuf::from(nvml::LIBRARY),
            gpu_window: GPU_WINDOW,
            own_thread: true,
        }
    }

    /// Returns the paths of all files.
    #[must_use]
    pub fn layout(&self) -> Layout {
        Layout::new(&self.data_dir, &self.checkpoint_dir, &self.node)
    }
}
