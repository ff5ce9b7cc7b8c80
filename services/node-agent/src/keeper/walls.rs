//! The walls around a container that is a plain process.
//!
//! 1. A guard that waits ([`prepare`]) is the first process of its namespace of processes already.
//!    It takes namespaces of mounts, of System V and POSIX queues, and builds a new root in memory:
//!    the node's programs and their configuration, read-only, a `/dev` of harmless devices, a
//!    `/dev/shm` and a `/proc` of its own. Nothing else of the node is in it.
//! 2. With its orders ([`enter`]) it adds what is the container's: its directory, its checkpoints,
//!    what it resumes from, granted mounts, a `/tmp` of its own, the devices of its GPUs. It makes that its root, and lets
//!    the old one go. One that is to have no network leaves the node's.
//! 3. Each program ([`wear`]) becomes the tenant's user, without groups, capabilities, core files
//!    or a way to new privileges, and (where the kernel has Landlock) without abstract sockets of
//!    the node.
//!
//! What lies below a folder that a job writes is opened without following a link on the way, and
//! mounted by the descriptor.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use landlock::{Ruleset, RulesetAttr, Scope};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Gid, Uid, pivot_root, setgroups, setresgid, setresuid};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
use serde::{Deserialize, Serialize};

use dormouse_messages::events::NodeFault;

use super::alone::leave_the_network;
use super::devices;
use crate::folder::Below;
use crate::runtime::NotStarted;

/// Where the new root is built, in the keeper's folder.
const ROOT: &str = "root";

/// Programs, their libraries and their configuration. Who may read what of it is the node's to say.
pub const SYSTEM: [&str; 10] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix",
];

/// Where the resolver's configuration lies, which `/etc/resolv.conf` may be a link to.
const RESOLVER: &str = "/run/systemd/resolve";

const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Links that programs expect in `/dev`.
const DEVICE_LINKS: [(&str, &str); 4] = [
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
];

/// Files that a container may hold open, where the node lets it have more.
pub const FILES_LIMIT: u64 = 65_536;

/// A capability's number is below this.
const CAPABILITIES: u32 = 64;

/// What all containers of a node see of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// Folders, read-only, at their own paths.
    pub shown: Vec<PathBuf>,
    /// Folders of which nothing is seen even where one of those holds them.
    pub hidden: Vec<PathBuf>,
}

/// What one container sees of the node, and who it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Walls {
    /// The tenant's user.
    pub uid: u32,
    /// The tenant's group.
    pub gid: u32,
    /// Its temporary files.
    pub temporary: Vec<Shown>,
    /// What its tenant was granted.
    pub mounts: Vec<Shown>,
    /// What is its own: shown even where it lies in a hidden folder.
    pub own: Vec<Shown>,
    /// Whether it has GPUs: what a keeper of an earlier build goes by, which shows the devices of all.
    pub gpus: bool,
    /// Its GPUs by UUID: it sees the devices of these.
    #[serde(default)]
    pub gpu_uuids: Vec<String>,
    /// What it may do on the network.
    #[serde(default)]
    pub network: Network,
    /// Processes that its tenant may have on this node, where no control group counts them.
    pub processes: Option<u64>,
}

/// What a container may do on the network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// What every process of the node may.
    #[default]
    Host,
    /// Nothing but talk to itself: it has a network of its own, which leads nowhere.
    None,
}

/// A folder (or a file) of the node that a container sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// A folder that no job can replace.
    pub root: PathBuf,
    /// The way down from there, on which no link is followed.
    pub way: PathBuf,
    /// Where it is seen.
    pub target: PathBuf,
    /// Whether it can only be read.
    pub read_only: bool,
}

fn of_node(what: &str, error: impl std::fmt::Display) -> NotStarted {
    let why = format!(
        "{what}: {error}; the agent must run as root, on Linux 5.9 or later, or with --trust-jobs"
    );
    NotStarted::of_node(NodeFault::Processes, why)
}

/// Builds what all containers see, in namespaces of this process's own.
///
/// # Errors
/// What the kernel refuses.
pub fn prepare(base: &Base, folder: &Path) -> Result<(), NotStarted> {
    let root = folder.join(ROOT);
    build(base, &root).map_err(|error| of_node("no walls for it", error))
}

fn build(base: &Base, root: &Path) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC)?;
    // What the node unmounts while this waits goes here, too; nothing goes the other way.
    mount_it(
        "none",
        Path::new("/"),
        None,
        MsFlags::MS_REC | MsFlags::MS_SLAVE,
    )?;
    fs::create_dir_all(root)?;
    let quiet = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount_with("tmpfs", root, quiet, "mode=755,size=4m")?;
    let system = SYSTEM.iter().chain(&[RESOLVER]).map(Path::new);
    for path in system.chain(base.shown.iter().map(PathBuf::as_path)) {
        show_system(root, path)?;
    }
    for path in &base.hidden {
        hide(root, path)?;
    }
    harmless_devices(root)?;
    let proc = made(root, Path::new("/proc"))?;
    mount_with("proc", &proc, quiet | MsFlags::MS_NOEXEC, "")?;
    let sys = made(root, Path::new("/sys"))?;
    bind(Path::new("/sys"), &sys, true)
}

fn mount_it(source: &str, target: &Path, kind: Option<&str>, flags: MsFlags) -> io::Result<()> {
    Ok(mount(Some(source), target, kind, flags, None::<&str>)?)
}

fn mount_with(kind: &str, target: &Path, flags: MsFlags, data: &str) -> io::Result<()> {
    Ok(mount(Some(kind), target, Some(kind), flags, Some(data))?)
}

/// Where a path of the new root is now.
fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// The same, made as a folder where it is missing.
fn made(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let path = inside(root, path);
    fs::create_dir_all(&path)?;
    Ok(path)
}

fn bind(source: &Path, target: &Path, read_only: bool) -> io::Result<()> {
    // What is mounted below a folder that can only be read is not seen: it could be written to.
    let deep = match read_only {
        true => MsFlags::empty(),
        false => MsFlags::MS_REC,
    };
    let none = None::<&str>;
    mount(Some(source), target, none, MsFlags::MS_BIND | deep, none)?;
    let mut flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    if read_only {
        flags |= MsFlags::MS_RDONLY;
    }
    Ok(mount(none, target, none, flags, none)?)
}

/// Shows a folder of the node read-only; a link as a link.
fn show_system(root: &Path, path: &Path) -> io::Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    let target = inside(root, path);
    if found.is_symlink() {
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        return match symlink(fs::read_link(path)?, target) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            done => done,
        };
    }
    if path == Path::new("/") || target.exists() {
        return Ok(());
    }
    bind_onto(root, path, path, true)
}

/// What is missing on the way to the target is made, and no link is followed there: it may lie in a
/// folder that a job writes.
fn bind_onto(root: &Path, source: &Path, target: &Path, read_only: bool) -> io::Result<()> {
    let is_folder = fs::metadata(source)?.is_dir();
    let way = target.strip_prefix("/").unwrap_or(target);
    if is_folder {
        Below::new(root.to_owned(), way).make()?;
    } else {
        let name = way.file_name().and_then(|name| name.to_str());
        let parent = way.parent().unwrap_or(Path::new(""));
        let folder = Below::new(root.to_owned(), parent).make()?;
        folder.append(name.unwrap_or_default())?;
    }
    bind(source, &root.join(way), read_only)
}

/// Puts an empty folder over one that can be seen.
fn hide(root: &Path, path: &Path) -> io::Result<()> {
    let target = inside(root, path);
    if !target.is_dir() {
        return Ok(());
    }
    mount_with(
        "tmpfs",
        &target,
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
        "mode=755,size=1m",
    )
}

fn harmless_devices(root: &Path) -> io::Result<()> {
    let dev = made(root, Path::new("/dev"))?;
    for name in DEVICES {
        bind_device(&dev, name)?;
    }
    for (to, name) in DEVICE_LINKS {
        symlink(to, dev.join(name))?;
    }
    let shm = made(root, Path::new("/dev/shm"))?;
    mount_with(
        "tmpfs",
        &shm,
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
        "mode=1777",
    )
}

fn bind_device(dev: &Path, name: &str) -> io::Result<()> {
    let source = Path::new("/dev").join(name);
    if !source.exists() {
        return Ok(());
    }
    let target = dev.join(name);
    fs::write(&target, "")?;
    let none = None::<&str>;
    Ok(mount(Some(&source), &target, none, MsFlags::MS_BIND, none)?)
}

/// Adds what is the container's, and goes in.
///
/// # Errors
/// What is missing, or what the kernel refuses.
pub fn enter(base: &Base, walls: &Walls, folder: &Path) -> Result<(), NotStarted> {
    let root = folder.join(ROOT);
    // Before all that may lie below them.
    for shown in &walls.temporary {
        let covered = |path: &&PathBuf| path.starts_with(&shown.target);
        let done = show(&root, shown).and_then(|()| {
            let mut covered = base.shown.iter().filter(covered);
            covered.try_for_each(|path| show_system(&root, path))
        });
        done.map_err(|error| of_node("no temporary files for it", error))?;
    }
    for shown in &walls.mounts {
        show(&root, shown).map_err(|error| {
            let path = shown.root.join(&shown.way);
            NotStarted::from(format!(
                "{} cannot be mounted: {error}; see mounts",
                path.display()
            ))
        })?;
    }
    let go = || {
        let may_show = !walls.mounts.is_empty();
        for path in base.hidden.iter().filter(|_| may_show) {
            hide(&root, path)?;
        }
        for name in devices::of(Path::new("/"), &walls.gpu_uuids)? {
            bind_device(&root.join("dev"), &name)?;
        }
        for shown in &walls.own {
            show(&root, shown)?;
        }
        if walls.network == Network::None {
            alone(&root)?;
        }
        go_in(&root)
    };
    go().map_err(|error: io::Error| of_node("no walls for it", error))
}

/// Leaves the node's network; what `/sys` shows of links is that of the own one then.
fn alone(root: &Path) -> io::Result<()> {
    leave_the_network()?;
    let quiet = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let sys = inside(root, Path::new("/sys"));
    mount_with("sysfs", &sys, quiet | MsFlags::MS_RDONLY, "")
}

fn show(root: &Path, shown: &Shown) -> io::Result<()> {
    if shown.way.as_os_str().is_empty() {
        return bind_onto(root, &shown.root, &shown.target, shown.read_only);
    }
    let folder = Below::new(shown.root.clone(), &shown.way).open()?;
    let source = PathBuf::from(format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd()));
    bind_onto(root, &source, &shown.target, shown.read_only)
}

/// Makes the new root this process's, and lets go of the node's.
fn go_in(root: &Path) -> io::Result<()> {
    for folder in ["/tmp", "/var/tmp"] {
        let folder = made(root, Path::new(folder))?;
        if fs::metadata(&folder)?.permissions().mode() & 0o777 == 0o755 {
            // Nothing was given for it: a small one.
            let _ = fs::set_permissions(&folder, fs::Permissions::from_mode(0o1777));
        }
    }
    std::env::set_current_dir(root)?;
    pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    std::env::set_current_dir("/")?;
    let none = None::<&str>;
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    let quiet = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    Ok(mount(none, "/", none, flags | quiet, none)?)
}

/// Makes this process the tenant's, for good.
///
/// # Errors
/// What the kernel refuses.
pub fn wear(walls: &Walls) -> Result<(), NotStarted> {
    let change = || -> io::Result<()> {
        setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
        let (_, files) = getrlimit(Resource::RLIMIT_NOFILE)?;
        let files = files.min(FILES_LIMIT);
        let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
        setrlimit(Resource::RLIMIT_NOFILE, soft.min(files), files)?;
        if let Some(processes) = walls.processes {
            setrlimit(Resource::RLIMIT_NPROC, processes, processes)?;
        }
        for number in 0..CAPABILITIES {
            // The kernel refuses the numbers that it does not know.
            let one = CapabilitySet::from_bits_retain(1 << number);
            let _ = remove_capability_from_bounding_set(one);
        }
        prctl::set_no_new_privs()?;
        setgroups(&[])?;
        let (uid, gid) = (Uid::from_raw(walls.uid), Gid::from_raw(walls.gid));
        setresgid(gid, gid, gid)?;
        setresuid(uid, uid, uid)?;
        Ok(())
    };
    change().map_err(|error| of_node("it cannot become its tenant's user", error))?;
    shut_in().map_err(|error| of_node("Landlock", error))
}

/// Landlock: as much of it as the kernel has.
fn shut_in() -> Result<(), landlock::RulesetError> {
    let rules = Ruleset::default().scope(Scope::AbstractUnixSocket)?;
    rules.create()?.restrict_self().map(drop)
}
