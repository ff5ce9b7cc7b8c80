//! A new folder that the agent fills. Writes follow no links and replace no files.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::fchown;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, Mode, OFlags};

use dormouse_sandbox::folder::{Below, Folder, User};

/// The folder and its owner.
pub struct Tree {
    root: Below,
    user: Option<User>,
}

impl Tree {
    /// Creates a tree at `root`, owned by the agent if `user` is `None`.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn new(root: Below, user: Option<User>) -> io::Result<Self> {
        let tree = Self { root, user };
        tree.folder(Path::new(""))?;
        Ok(tree)
    }

    /// Opens a folder in the tree, and makes missing folders.
    ///
    /// # Errors
    /// Kernel errors, or a link in the path.
    pub fn folder(&self, way: &Path) -> io::Result<Folder> {
        let folder = self.root.join(way).make()?;
        if let Some(user) = self.user {
            folder.give(user)?;
        }
        Ok(folder)
    }

    fn place<'a>(&self, way: &'a Path) -> io::Result<(Folder, &'a OsStr)> {
        let name = way.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let above = way.parent().unwrap_or(Path::new(""));
        Ok((self.root.join(above).make()?, name))
    }

    /// Creates a file in the tree.
    ///
    /// # Errors
    /// Kernel errors, also if the name exists.
    pub fn file(&self, way: &Path, is_program: bool) -> io::Result<File> {
        let (above, name) = self.place(way)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(if is_program { 0o755 } else { 0o644 });
        let file = File::from(rustix::fs::openat(&above, name, flags, mode)?);
        if let Some(user) = self.user {
            fchown(&file, Some(user.uid), Some(user.gid))?;
        }
        Ok(file)
    }

    /// Creates a link in the tree.
    ///
    /// # Errors
    /// Kernel errors, also if the name exists.
    pub fn link(&self, way: &Path, target: &Path) -> io::Result<()> {
        let (above, name) = self.place(way)?;
        rustix::fs::symlinkat(target, &above, name)?;
        if let Some(user) = self.user {
            let owner = Some(rustix::fs::Uid::from_raw(user.uid));
            let group = Some(rustix::fs::Gid::from_raw(user.gid));
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::chownat(above.as_fd(), name, owner, group, flags)?;
        }
        Ok(())
    }
}

/// True if a link at `way` stays in the tree regardless of other links: first up to the tree's root at most,
/// then only down.
#[must_use]
pub fn stays(way: &Path, target: &Path) -> bool {
    let mut above = way.components().count().saturating_sub(1);
    let mut goes_down = false;
    for step in target.components() {
        match step {
            Component::CurDir => {}
            Component::Normal(_) => goes_down = true,
            Component::ParentDir if !goes_down && above > 0 => above -= 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    !target.as_os_str().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_stays_or_leads_out() {
        let stays = |way: &str, target: &str| stays(Path::new(way), Path::new(target));
        for (way, target) in [
            ("a", "b"),
            ("a/b/c", "../../d/e"),
            ("a/b", "./c"),
            ("a", "."),
        ] {
            assert!(stays(way, target), "{way} → {target}");
        }
        for (way, target) in [
            ("a", ".."),
            ("a", "/etc/passwd"),
            ("a/b", "../../c"),
            // Another link may redirect this path.
            ("a", "b/../c"),
            ("a", ""),
        ] {
            assert!(!stays(way, target), "{way} → {target}");
        }
    }
}
