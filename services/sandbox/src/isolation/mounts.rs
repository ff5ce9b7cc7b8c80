//! Mounts by descriptor: sources are opened once, without links ([`Below::handle`]), and targets resolved inside
//! the new root, so later changes by a tenant have no effect. Mount points are created only out of a tenant's
//! earlier reach.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{fchdir, pivot_root};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxFlags, fstat, mkdirat, openat, openat2,
    statx, symlinkat,
};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use super::{BindMount, HostView, SandboxSpec};
use crate::StartError;
use crate::folder::Folder;
use crate::kernel::restrict_mount;

/// The kernel's file systems, which the sandbox and its programs need.
const KERNELS: [&str; 3] = ["/dev", "/proc", "/sys"];

const NAMED: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

const MOUNT_POINT: Mode = Mode::from_raw_mode(0o755);

/// The new root without a tenant's mounts.
#[derive(Debug)]
pub struct Mounts {
    root: OwnedFd,
    /// Ids of mounts in which a tenant's mount points may be created.
    own: BTreeSet<u64>,
}

#[derive(Debug)]
enum Target {
    Link(PathBuf),
    Missing(PathBuf),
    Kernel(io::Error),
}

impl From<Errno> for Target {
    fn from(error: Errno) -> Self {
        Self::Kernel(error.into())
    }
}

impl From<Target> for io::Error {
    fn from(target: Target) -> Self {
        match target {
            Target::Kernel(error) => error,
            other => Self::other(other.to_string()),
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Link(at) => write!(f, "{} is a link, which is never followed", at.display()),
            Self::Missing(at) => write!(
                f,
                "{} is not in the folder that another mount shows there; make it in that folder first, or choose another target",
                at.display()
            ),
            Self::Kernel(error) => error.fmt(f),
        }
    }
}

impl Mounts {
    /// Wraps a root without a tenant's mounts.
    pub fn new(root: OwnedFd) -> io::Result<Self> {
        let own = [mount_number(root.as_fd())?].into();
        Ok(Self { root, own })
    }

    /// Mounts a path at its own place, read-only.
    pub fn show(&self, path: &Path) -> io::Result<()> {
        let source = rustix::fs::open(path, NAMED, Mode::empty())?;
        Ok(self.attach(source.as_fd(), path, true, false)?)
    }

    /// True if a path exists or contains a link.
    pub fn has(&self, path: &Path) -> bool {
        let mut at = self.root.try_clone();
        for name in path.iter().skip(1) {
            let Ok(here) = &at else { return false };
            match step(here.as_fd(), name) {
                Err(Errno::LOOP) => return true,
                next => at = next.map_err(io::Error::from),
            }
        }
        at.is_ok()
    }

    /// Creates a link unless the path exists.
    pub fn link(&self, to: &Path, path: &Path) -> io::Result<()> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(());
        };
        let parent = self.resolve(parent, true, true)?;
        match symlinkat(to, parent, name) {
            Err(Errno::EXIST) => Ok(()),
            made => Ok(made?),
        }
    }

    /// Mounts a new kernel file system.
    pub fn mount_new(&self, kind: &str, path: &Path, flags: MsFlags, data: &str) -> io::Result<()> {
        let target = self.resolve(path, true, true)?;
        let target = format!("/proc/self/fd/{}", target.as_raw_fd());
        Ok(mount(
            Some(kind),
            target.as_str(),
            Some(kind),
            flags,
            Some(data),
        )?)
    }

    /// Mounts a device of the node.
    pub fn show_device(&self, source: &Path, target: &Path) -> io::Result<()> {
        let source = rustix::fs::open(source, NAMED, Mode::empty())?;
        let tree = clone_tree(source.as_fd(), false)?;
        let target = self.resolve(target, false, true)?;
        move_onto(tree.as_fd(), target.as_fd())
    }

    /// Mounts one of the container's folders.
    pub fn add_own(&self, mount: &BindMount) -> io::Result<()> {
        let source = mount.source.handle()?;
        Ok(self.attach(source.as_fd(), &mount.target, mount.read_only, false)?)
    }

    /// Mounts temporary files, where mount points may be created.
    pub fn add_temporary(&mut self, mount: &BindMount) -> io::Result<()> {
        self.add_own(mount)?;
        let folder = self.resolve(&mount.target, true, false)?;
        self.own.insert(mount_number(folder.as_fd())?);
        Ok(())
    }

    /// Opens a folder of the new root.
    pub fn folder(&self, path: &Path) -> io::Result<Folder> {
        Ok(Folder::from(self.resolve(path, true, false)?))
    }

    /// Adds the job's mounts, outer ones first. No mount can follow.
    pub fn add_tenants(self, view: &HostView, spec: &SandboxSpec) -> Result<Complete, StartError> {
        let own = spec.own.iter().chain([&spec.directory]);
        let own = own.map(|it| it.target.as_path());
        let needed = KERNELS.iter().map(Path::new).chain(own);
        let needed: Vec<_> = needed
            .chain(view.hidden.iter().map(PathBuf::as_path))
            .collect();
        let hidden: Vec<_> = view
            .hidden
            .iter()
            .filter_map(|it| it.canonicalize().ok())
            .collect();
        let mut mounts: Vec<_> = spec.mounts.iter().collect();
        mounts.sort_by_key(|mount| mount.target.components().count());
        for mount in mounts {
            let added = self.add_tenants_mount(mount, &needed, &hidden);
            added.map_err(|why| {
                let source = mount.source.path();
                let (source, target) = (source.display(), mount.target.display());
                StartError::from(format!(
                    "{source} cannot be mounted at {target}: {why}; see mounts"
                ))
            })?;
        }
        Ok(Complete(self.root))
    }

    fn add_tenants_mount(
        &self,
        mount: &BindMount,
        needed: &[&Path],
        hidden: &[PathBuf],
    ) -> Result<(), String> {
        check_target(&mount.target, needed)?;
        let source = mount
            .source
            .handle()
            .map_err(|error| match error.raw_os_error() {
                Some(nix::libc::ELOOP) => {
                    "a link is on the way to it, which was not there when it was looked at"
                        .to_owned()
                }
                _ => error.to_string(),
            })?;
        let at = format!("/proc/self/fd/{}", source.as_raw_fd());
        let real = std::fs::read_link(at).map_err(|error| error.to_string())?;
        let holds = |it: &PathBuf| it.starts_with(&real) || real.starts_with(it);
        if hidden.iter().any(holds) {
            return Err(
                "the agent's own folders are there; mount a folder that does not hold them"
                    .to_owned(),
            );
        }
        let attached = self.attach(source.as_fd(), &mount.target, mount.read_only, true);
        attached.map_err(|why| why.to_string())
    }

    fn attach(
        &self,
        source: BorrowedFd<'_>,
        target: &Path,
        read_only: bool,
        of_tenant: bool,
    ) -> Result<(), Target> {
        // A read-only mount omits mounts below its source.
        let tree = clone_tree(source, !read_only)?;
        restrict_mount(tree.as_fd(), read_only).map_err(Target::Kernel)?;
        let target = self.resolve(target, is_folder(source)?, !of_tenant)?;
        move_onto(tree.as_fd(), target.as_fd()).map_err(Target::Kernel)
    }

    /// Opens a path of the new root without links. Creates missing mount points in own mounts, or in all if
    /// `anywhere`.
    fn resolve(&self, path: &Path, is_folder: bool, anywhere: bool) -> Result<OwnedFd, Target> {
        let names: Vec<&OsStr> = path.iter().skip(1).collect();
        let mut at = self.root.try_clone().map_err(Target::Kernel)?;
        for (depth, name) in names.iter().enumerate() {
            let here = || PathBuf::from("/").join(names[..=depth].iter().collect::<PathBuf>());
            let next = match step(at.as_fd(), name) {
                Err(Errno::NOENT) => {
                    let number = mount_number(at.as_fd()).map_err(Target::Kernel)?;
                    if !anywhere && !self.own.contains(&number) {
                        return Err(Target::Missing(here()));
                    }
                    make(at.as_fd(), name, is_folder || depth + 1 < names.len())?;
                    step(at.as_fd(), name)
                }
                next => next,
            };
            at = match next {
                Ok(next) => next,
                Err(Errno::LOOP) => return Err(Target::Link(here())),
                Err(error) => return Err(error.into()),
            };
        }
        Ok(at)
    }
}

/// The new root with all mounts.
pub struct Complete(OwnedFd);

impl Complete {
    /// Makes this the root, read-only, and lets the node's root go.
    pub fn enter(self) -> io::Result<()> {
        fchdir(self.0)?;
        pivot_root(".", ".")?;
        umount2(".", MntFlags::MNT_DETACH)?;
        std::env::set_current_dir("/")?;
        let none = None::<&str>;
        let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
        let quiet = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        Ok(mount(none, "/", none, flags | quiet, none)?)
    }
}

/// Refuses targets at, above or below the sandbox's own paths.
fn check_target(target: &Path, needed: &[&Path]) -> Result<(), String> {
    let is_plain = |it: Component<'_>| matches!(it, Component::RootDir | Component::Normal(_));
    if !target.is_absolute() || !target.components().all(is_plain) {
        return Err("a target is an absolute path without ..".to_owned());
    }
    let covers = |it: &&&Path| it.starts_with(target) || target.starts_with(it);
    match needed.iter().find(covers) {
        None => Ok(()),
        Some(needed) => Err(format!(
            "the sandbox needs {}; choose a target that is neither there, nor above, nor below",
            needed.display()
        )),
    }
}

fn step(at: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(at, name, NAMED, Mode::empty(), resolve)
}

fn make(at: BorrowedFd<'_>, name: &OsStr, is_folder: bool) -> Result<(), Errno> {
    let made = if is_folder {
        mkdirat(at, name, MOUNT_POINT)
    } else {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        openat(at, name, flags, MOUNT_POINT).map(drop)
    };
    match made {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}

fn is_folder(at: BorrowedFd<'_>) -> Result<bool, Errno> {
    let kind = FileType::from_raw_mode(fstat(at)?.st_mode);
    Ok(kind == FileType::Directory)
}

fn clone_tree(source: BorrowedFd<'_>, recursive: bool) -> Result<OwnedFd, Errno> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    open_tree(source, "", flags)
}

fn move_onto(tree: BorrowedFd<'_>, target: BorrowedFd<'_>) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(tree, "", target, "", flags)?)
}

fn mount_number(at: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(statx(at, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?.stx_mnt_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_covers_nothing_that_the_sandbox_needs() {
        let needed = ["/dev", "/proc", "/srv/dormouse/nodes/n0"].map(Path::new);
        let is_fit = |target: &str| check_target(Path::new(target), &needed).is_ok();
        for fit in [
            "/data",
            "/srv/data",
            "/devices",
            "/tmp",
            "/srv/dormouse/nodes/n01",
        ] {
            assert!(is_fit(fit), "{fit}");
        }
        let unfit = [
            "/",
            "/dev",
            "/dev/",
            "//dev",
            "/./dev",
            "/dev/shm",
            "/proc/self",
            "/srv",
            "/srv/dormouse/nodes/n0/containers",
            "/data/../dev",
            "data",
            "",
        ];
        for unfit in unfit {
            assert!(!is_fit(unfit), "{unfit}");
        }
    }
}
