//! Builds the new root before a container enters.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode as Permissions, umask};
use rustix::fs::{Mode, OFlags};

use super::mounts::Mounts;
use super::{HostView, Prepared, SYSTEM};
use crate::kernel::new_session_keyring;

const ROOT: &str = "root";

/// The resolver's configuration, a frequent target of `/etc/resolv.conf`.
const RESOLVER: &str = "/run/systemd/resolve";

/// An engine bind-mounts these one by one around a containerised agent.
const OF_THE_NETWORK: [&str; 3] = ["/etc/hosts", "/etc/hostname", "/etc/resolv.conf"];

const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

const DEVICE_LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
    ("pts/ptmx", "ptmx"),
];

const QUIET: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV);

pub fn build(view: &HostView, folder: &Path) -> io::Result<Prepared> {
    // Independent of the agent's umask.
    umask(Permissions::from_bits_truncate(0o022));
    let null = File::open("/dev/null")?;
    new_session_keyring()?;
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC)?;
    // Unmounts on the node propagate here, nothing back.
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none)?;
    let root = folder.join(ROOT);
    fs::create_dir_all(&root)?;
    let (tmpfs, size) = (Some("tmpfs"), Some("mode=755,size=4m"));
    mount(tmpfs, &root, tmpfs, QUIET, size)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mounts = Mounts::new(rustix::fs::open(&root, flags, Mode::empty())?)?;
    let system = SYSTEM.iter().chain(&[RESOLVER]).map(Path::new);
    for path in system.chain(view.shown.iter().map(PathBuf::as_path)) {
        show_system(&mounts, path)?;
    }
    for path in OF_THE_NETWORK {
        if let Ok(real) = fs::canonicalize(path) {
            mounts.show(&real)?;
        }
    }
    for path in &view.hidden {
        hide(&mounts, path)?;
    }
    devices(&mounts)?;
    mounts.mount_new("proc", Path::new("/proc"), QUIET | MsFlags::MS_NOEXEC, "")?;
    mounts.show(Path::new("/sys"))?;
    Ok(Prepared {
        proc: mounts.folder(Path::new("/proc"))?,
        mounts,
        null,
    })
}

/// Shows a path of the node read-only if it exists, and a link as a link.
pub fn show_system(mounts: &Mounts, path: &Path) -> io::Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if found.is_symlink() {
        mounts.link(&fs::read_link(path)?, path)?;
        return match fs::canonicalize(path) {
            Ok(real) if real != Path::new("/") && !mounts.has(&real) => mounts.show(&real),
            _ => Ok(()),
        };
    }
    if path == Path::new("/") || mounts.has(path) {
        return Ok(());
    }
    mounts.show(path)
}

/// Shows a device of the node if it exists.
pub fn show_device(mounts: &Mounts, name: &str) -> io::Result<()> {
    let device = Path::new("/dev").join(name);
    if !device.exists() {
        return Ok(());
    }
    mounts.show_device(&device, &device)
}

/// Covers a visible folder with an empty one.
pub fn hide(mounts: &Mounts, path: &Path) -> io::Result<()> {
    // Hide a link's target.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if !mounts.has(&path) {
        return Ok(());
    }
    mounts.mount_new("tmpfs", &path, QUIET, "mode=755,size=1m")
}

fn devices(mounts: &Mounts) -> io::Result<()> {
    for name in DEVICES {
        show_device(mounts, name)?;
    }
    let dev = Path::new("/dev");
    for (to, name) in DEVICE_LINKS {
        mounts.link(Path::new(to), &dev.join(name))?;
    }
    let quiet = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    let terminals = "newinstance,ptmxmode=0666,mode=0620,max=256";
    mounts.mount_new("devpts", &dev.join("pts"), quiet, terminals)?;
    mounts.mount_new("tmpfs", &dev.join("shm"), QUIET, "mode=1777")
}

/// Mounts sysfs for this process's network.
pub fn mount_sysfs(mounts: &Mounts) -> io::Result<()> {
    let flags = QUIET | MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY;
    mounts.mount_new("sysfs", Path::new("/sys"), flags, "")
}
