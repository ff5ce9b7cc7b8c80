//! The sandbox of a container that is a plain process.
//!
//! The order is what keeps tenants in: everything of the sandbox's own comes before anything that a
//! tenant names, and what a tenant names is mounted by descriptor.
//!
//! 1. An init that waits ([`prepare`]) is the first process of its namespace of processes. It takes
//!    namespaces of mounts and of System V and POSIX queues and a session keyring of its own, and
//!    builds a new root in memory: the node's programs and their configuration, read-only, a `/dev`
//!    of harmless devices with terminals of its own, `/dev/shm`, `/proc` and `/sys` ([`root`]).
//! 2. With its orders ([`enter`]) it adds the sandbox's own things first: temporary files, the
//!    devices of its GPUs, its directory, its checkpoints, the network. Then it adds the tenant's mounts
//!    ([`mounts`]), makes the root its own and lets the node's go.
//! 3. Each program ([`restrict`]) becomes the tenant's user, without groups, capabilities, core files
//!    or new privileges, with the ports that are its own (Landlock), and with the system calls that a
//!    container engine allows ([`syscalls`]).
//!
//! After the tenant's mounts, root opens nothing by a path: the files of the sandbox's own that a
//! program needs are open by then ([`Sandbox`]).

mod mounts;
mod restrict;
mod root;
pub mod syscalls;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{fchdir, pivot_root};
use serde::{Deserialize, Serialize};

use dormouse_messages::events::NodeFault;

use super::devices;
use super::netns;
use crate::folder::Folder;
use crate::runtime::NotStarted;
use mounts::Mounts;

/// Programs, their libraries and their configuration. The node decides who may read what of it.
pub const SYSTEM: [&str; 10] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix",
];

/// Files that a container may hold open, where the node lets it have more.
pub const FILES_LIMIT: u64 = 65_536;

/// What every container of a node sees of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostView {
    /// Folders, read-only, at their own paths.
    pub shown: Vec<PathBuf>,
    /// The agent's own folders, of which nothing is seen even where a shown folder holds them.
    pub hidden: Vec<PathBuf>,
}

/// What one container sees of the node, and its user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// The tenant's user.
    pub uid: u32,
    /// The tenant's group.
    pub gid: u32,
    /// Its temporary files.
    pub temporary: Vec<BindMount>,
    /// The container's directory, which its programs print to.
    pub directory: BindMount,
    /// More of its own, shown even where it lies in a hidden folder.
    pub own: Vec<BindMount>,
    /// The mounts of its job's document.
    pub mounts: Vec<BindMount>,
    /// Its GPUs by UUID: it sees the devices of these.
    pub gpu_uuids: Vec<String>,
    /// What it may do on the network.
    pub network: Network,
    /// Processes that its tenant may have on this node, where no control group counts them.
    pub processes: Option<u64>,
}

/// What a container may do on the network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// All that an unprivileged process of the node may.
    #[default]
    Host,
    /// The node's network; TCP listens only on the ports of its placement, the first and how many, and
    /// on those that the kernel picks.
    OwnPorts(u16, u16),
    /// A network of its own, which leads nowhere.
    None,
}

/// A folder or a file of the node that a container sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindMount {
    /// A folder that no job can replace.
    pub root: PathBuf,
    /// The way down from there, on which no link is followed.
    pub way: PathBuf,
    /// Where it is seen.
    pub target: PathBuf,
    /// Whether it can only be read.
    pub read_only: bool,
}

/// A root that is built and waits for a container.
#[derive(Debug)]
pub struct Prepared {
    root: OwnedFd,
    null: File,
    proc: OwnedFd,
}

/// The inside of a sandbox: what its programs start with, opened before anything of a tenant's was there.
#[derive(Debug)]
pub struct Sandbox {
    /// What it was made by.
    pub spec: SandboxSpec,
    /// `/dev/null`, to read.
    pub null: File,
    /// The container's directory.
    pub directory: Folder,
    /// `/proc`.
    pub proc: OwnedFd,
}

fn of_node(what: &str, error: impl std::fmt::Display) -> NotStarted {
    let why = format!(
        "{what}: {error}; the agent must run as root, on Linux 5.12 or later, or with --trust-jobs"
    );
    NotStarted::of_node(NodeFault::Processes, why)
}

/// A folder of the container's own cannot be shown. Where it is missing, or no folder, its tenant has had a
/// hand in it: an environment of Python packages lies in a folder of the tenant's.
fn of_own(mount: &BindMount, error: io::Error) -> NotStarted {
    use io::ErrorKind::{NotADirectory, NotFound};
    let is_link = error.raw_os_error() == Some(nix::libc::ELOOP);
    if !is_link && !matches!(error.kind(), NotFound | NotADirectory) {
        return of_node("no sandbox for it", error);
    }
    let path = mount.root.join(&mount.way);
    format!("{} cannot be shown to it: {error}", path.display()).into()
}

/// Builds what every container sees, in namespaces of this process's own.
///
/// # Errors
/// The kernel's, which are the node's fault.
pub fn prepare(view: &HostView, folder: &Path) -> Result<Prepared, NotStarted> {
    let no_sandbox = |error: io::Error| of_node("no sandbox for it", error);
    let prepared = root::build(view, folder).map_err(no_sandbox)?;
    syscalls::restrict_init().map_err(|why| of_node("no filter of system calls", why))?;
    Ok(prepared)
}

/// Adds what is the container's, and goes in.
///
/// # Errors
/// A mount of the job's that is missing or out of place, which is the job's fault; the kernel's.
pub fn enter(
    prepared: Prepared,
    view: &HostView,
    spec: SandboxSpec,
) -> Result<Sandbox, NotStarted> {
    let mut mounts = Mounts::new(prepared.root).map_err(|error| of_node("no sandbox", error))?;
    let mut add = || -> io::Result<()> {
        for temporary in &spec.temporary {
            mounts.add_temporary(temporary)?;
            // What lies below is shown, and hidden, again.
            let is_covered = |path: &&PathBuf| path.starts_with(&temporary.target);
            for path in view.shown.iter().filter(is_covered) {
                root::show_system(&mounts, path)?;
            }
            for path in view.hidden.iter().filter(is_covered) {
                root::hide(&mounts, path)?;
            }
        }
        for name in devices::of(Path::new("/"), &spec.gpu_uuids)? {
            root::show_device(&mounts, &name)?;
        }
        if spec.network == Network::None {
            netns::leave_the_network()?;
            // It tells of the links of its own network.
            root::mount_sysfs(&mounts)?;
        }
        Ok(())
    };
    add().map_err(|error| of_node("no sandbox for it", error))?;
    for own in spec.own.iter().chain([&spec.directory]) {
        mounts.add_own(own).map_err(|error| of_own(own, error))?;
    }
    let directory = mounts.folder(&spec.directory.target);
    let directory = directory.map_err(|error| of_own(&spec.directory, error))?;
    mounts.add_tenants(view, &spec)?;
    pivot(&mounts).map_err(|error| of_node("it cannot enter its sandbox", error))?;
    let (null, proc) = (prepared.null, prepared.proc);
    Ok(Sandbox {
        spec,
        null,
        directory,
        proc,
    })
}

/// Makes the new root this process's, and lets go of the node's.
fn pivot(mounts: &Mounts) -> io::Result<()> {
    fchdir(mounts.root())?;
    pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    std::env::set_current_dir("/")?;
    let none = None::<&str>;
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    let quiet = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    Ok(mount(none, "/", none, flags | quiet, none)?)
}

impl Sandbox {
    /// Makes this process the tenant's, for good. Whatever it needs as root is open by then.
    ///
    /// # Errors
    /// The kernel's, which are the node's fault.
    pub fn drop_privileges(&self) -> Result<(), NotStarted> {
        restrict::become_user(&self.spec)
            .map_err(|error| of_node("it cannot become its tenant's user", error))?;
        restrict::landlock(self.spec.network).map_err(|error| of_node("Landlock", error))?;
        syscalls::restrict_program().map_err(|why| of_node("no filter of system calls", why))
    }

    /// Has the kernel end this process before the supervisor where memory is short.
    ///
    /// # Errors
    /// The kernel's.
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
