//! The sandbox of a plain process. The order protects the node:
//!
//! 1. A waiting init ([`prepare`]) takes pid, mount and IPC namespaces and a session keyring. It builds a
//!    root in memory from read-only programs, a minimal `/dev`, `/proc` and `/sys` ([`root`]), and restricts
//!    its own system calls.
//! 2. With orders ([`enter`]) it adds the container's devices, network and own folders.
//! 3. It adds the tenant's mounts by descriptor ([`mounts`]).
//! 4. It pivots.
//! 5. Each program ([`Sandbox::drop_privileges`]) is limited by [`syscalls`] and Landlock, and becomes the
//!    tenant's user without privileges ([`restrict`]).
//!
//! The types keep the order: [`Mounts::add_tenants`] takes the mounts, and leaves a root that can only be
//! entered. After the tenant's mounts root opens nothing by path. Needed files are open already ([`Sandbox`]).
//!
//! A new root shows only listed things. Rules over the node's root (Landlock alone) would leave names,
//! processes and queues of others visible. Landlock adds ports and abstract sockets.

mod devices;
mod mounts;
mod netns;
mod restrict;
mod root;
pub mod syscalls;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::StartError;
use crate::folder::{Below, Folder};
use mounts::Mounts;

/// Programs, libraries and configuration, with the node's permissions.
pub const SYSTEM: [&str; 10] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix",
];

/// Limit on a container's open files, below the node's own limit.
pub const FILES_LIMIT: u64 = 65_536;

/// Every container's view of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostView {
    pub shown: Vec<PathBuf>,
    /// The agent's folders, hidden even inside shown folders.
    pub hidden: Vec<PathBuf>,
}

impl HostView {
    /// Reports whether a path of the node is visible in the sandbox.
    #[must_use]
    pub fn shows(&self, path: &Path) -> bool {
        let mut shown = SYSTEM.iter().map(Path::new);
        let own = || self.shown.iter().any(|it| path.starts_with(it));
        let is_hidden = self.hidden.iter().any(|it| path.starts_with(it));
        // A path with `..` may lead anywhere.
        let goes_up = path.components().any(|it| it == Component::ParentDir);
        !is_hidden && !goes_up && (shown.any(|it| path.starts_with(it)) || own())
    }
}

/// One container's view of the node, and its user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSpec {
    pub uid: u32,
    pub gid: u32,
    pub temporary: Vec<BindMount>,
    pub directory: BindMount,
    /// Further own folders, shown even inside hidden folders.
    pub own: Vec<BindMount>,
    pub mounts: Vec<BindMount>,
    pub gpu_uuids: Vec<String>,
    pub network: Network,
    /// Limit on the tenant's processes, without control groups.
    pub processes: Option<u64>,
}

/// A container's access to the network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    #[default]
    Host,
    /// The node's network. TCP listens only on own ports (first, count) and ports that the kernel picks.
    OwnPorts(u16, u16),
    None,
}

/// A folder or file of the node that a container sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindMount {
    pub source: Below,
    pub target: PathBuf,
    pub read_only: bool,
}

/// A root that is built and waits for a container.
#[derive(Debug)]
pub struct Prepared {
    mounts: Mounts,
    null: File,
    proc: Folder,
}

/// A sandbox from inside, with descriptors from before the tenant's mounts.
#[derive(Debug)]
pub struct Sandbox {
    pub spec: SandboxSpec,
    pub null: File,
    pub directory: Folder,
    pub proc: Folder,
}

fn of_node(what: &str, error: impl std::fmt::Display) -> StartError {
    let why = format!(
        "{what}: {error}; the agent must run as root, on Linux 5.12 or later, or with --trust-jobs"
    );
    StartError::of_node(why)
}

/// Explains a failed own mount. A missing folder is the tenant's fault, who may write to its parent.
fn of_own(mount: &BindMount, error: io::Error) -> StartError {
    use io::ErrorKind::{NotADirectory, NotFound};
    let is_link = error.raw_os_error() == Some(nix::libc::ELOOP);
    if !is_link && !matches!(error.kind(), NotFound | NotADirectory) {
        return of_node("no sandbox for it", error);
    }
    let path = mount.source.path();
    format!("{} cannot be shown to it: {error}", path.display()).into()
}

/// Builds the common root in new namespaces.
///
/// # Errors
/// Kernel errors, the node's fault.
pub fn prepare(view: &HostView, folder: &Path) -> Result<Prepared, StartError> {
    let no_sandbox = |error: io::Error| of_node("no sandbox for it", error);
    let prepared = root::build(view, folder).map_err(no_sandbox)?;
    syscalls::restrict_init().map_err(|why| of_node("no filter of system calls", why))?;
    Ok(prepared)
}

/// Adds the container's mounts and pivots.
///
/// # Errors
/// A bad mount, the job's fault, or kernel errors.
pub fn enter(
    prepared: Prepared,
    view: &HostView,
    spec: SandboxSpec,
) -> Result<Sandbox, StartError> {
    let Prepared {
        mut mounts,
        null,
        proc,
    } = prepared;
    let mut add = || -> io::Result<()> {
        for name in devices::of(Path::new("/"), &spec.gpu_uuids)? {
            root::show_device(&mounts, &name)?;
        }
        if spec.network == Network::None {
            netns::leave_the_network()?;
            // sysfs shows the links of the namespace that mounts it.
            root::mount_sysfs(&mounts)?;
        }
        for temporary in &spec.temporary {
            mounts.add_temporary(temporary)?;
            // The mount covers folders below it: mount them again.
            let is_covered = |path: &&PathBuf| path.starts_with(&temporary.target);
            for path in view.shown.iter().filter(is_covered) {
                root::show_system(&mounts, path)?;
            }
            for path in view.hidden.iter().filter(is_covered) {
                root::hide(&mounts, path)?;
            }
        }
        Ok(())
    };
    add().map_err(|error| of_node("no sandbox for it", error))?;
    for own in spec.own.iter().chain([&spec.directory]) {
        mounts.add_own(own).map_err(|error| of_own(own, error))?;
    }
    let directory = mounts.folder(&spec.directory.target);
    let directory = directory.map_err(|error| of_own(&spec.directory, error))?;
    let root = mounts.add_tenants(view, &spec)?;
    root.enter()
        .map_err(|error| of_node("it cannot enter its sandbox", error))?;
    Ok(Sandbox {
        spec,
        null,
        directory,
        proc,
    })
}

impl Sandbox {
    /// Becomes the tenant's user irrevocably.
    ///
    /// # Errors
    /// Kernel errors, the node's fault.
    pub fn drop_privileges(&self) -> Result<(), StartError> {
        syscalls::restrict_program().map_err(|why| of_node("no filter of system calls", why))?;
        restrict::landlock(self.spec.network).map_err(|error| of_node("Landlock", error))?;
        restrict::become_user(&self.spec)
            .map_err(|error| of_node("it cannot become its tenant's user", error))
    }

    /// Lets the kernel kill this process before the supervisor under memory pressure.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn reset_oom_score(&self) -> io::Result<()> {
        use rustix::fs::{Mode, OFlags, openat};
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let score = openat(
            self.proc.as_fd(),
            "self/oom_score_adj",
            flags,
            Mode::empty(),
        )?;
        rustix::io::write(score, b"0")?;
        Ok(())
    }
}
