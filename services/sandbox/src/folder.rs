//! The only access to paths that a job can write. A job may place blocking pipes, links, devices or endless
//! files there.
//!
//! 1. From a root that the operator named no link is followed ([`Below`], [`Folder`]).
//! 2. Opening never blocks (`O_NONBLOCK`), and only regular files are accepted, or pipes by [`Folder::pipe`].
//! 3. Every read has a limit. A file system may still hang.
//!
//! `entries` lists folders.

mod entries;

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::fchown;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, ResolveFlags};

use serde::{Deserialize, Serialize};

pub use entries::{ENTRIES_LIMIT, Entry};

const NEVER_FOLLOWED: OFlags = OFlags::NOFOLLOW
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

const OF_THE_AGENT: Mode = Mode::from_raw_mode(0o644);
const FOLDER: Mode = Mode::from_raw_mode(0o755);

impl From<OwnedFd> for Folder {
    fn from(folder: OwnedFd) -> Self {
        Self(folder)
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A folder's place: a trusted root, and a path below it without links.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Below {
    root: PathBuf,
    way: PathBuf,
}

/// A user of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
}

/// An open folder.
#[derive(Debug)]
pub struct Folder(OwnedFd);

impl Below {
    /// Names the folder `way` below `root`.
    #[must_use]
    pub fn new(root: PathBuf, way: impl Into<PathBuf>) -> Self {
        let way = way.into();
        Self { root, way }
    }

    /// Returns the whole path, for messages and for the job.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.root.join(&self.way)
    }

    /// Returns the root and the path below it.
    #[must_use]
    pub fn parts(&self) -> (&Path, &Path) {
        (&self.root, &self.way)
    }

    /// Names the folder `way` below this folder.
    #[must_use]
    pub fn join(&self, way: impl AsRef<Path>) -> Self {
        Self::new(self.root.clone(), self.way.join(way))
    }

    /// Checks that the root exists.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn check_root(&self) -> io::Result<()> {
        Folder::at(&self.root).map(drop)
    }

    /// Reports whether this process may create files in the root.
    #[must_use]
    pub fn may_write_to_root(&self) -> bool {
        let asked = Access::WRITE_OK | Access::EXEC_OK;
        rustix::fs::access(&self.root, asked).is_ok()
    }

    /// Returns the parent folder below the same root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let way = self.way.parent()?;
        Some(Self::new(self.root.clone(), way))
    }

    /// Opens the folder.
    ///
    /// # Errors
    /// Kernel errors, or a link in the path.
    pub fn open(&self) -> io::Result<Folder> {
        Folder::at(&self.root)?.descend(&self.way, false)
    }

    /// Opens the place alone, be it a folder or a file, for a mount.
    ///
    /// # Errors
    /// Kernel errors, `ELOOP` for a link below the root.
    pub fn handle(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let root = rustix::fs::open(&self.root, flags, Mode::empty())?;
        if self.way.as_os_str().is_empty() {
            return Ok(root);
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let opened = rustix::fs::openat2(root, &self.way, flags, Mode::empty(), resolve);
        Ok(opened?)
    }

    /// Opens the folder and creates missing parts of the path.
    ///
    /// # Errors
    /// As for [`Below::open`].
    pub fn make(&self) -> io::Result<Folder> {
        let root = Folder::at(&self.root).or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                return Err(error);
            }
            std::fs::create_dir_all(&self.root)?;
            Folder::at(&self.root)
        })?;
        root.descend(&self.way, true)
    }
}

impl Folder {
    /// Opens a folder that the operator named, through links.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn at(root: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(root, flags, Mode::empty())?))
    }

    fn descend(mut self, way: &Path, make: bool) -> io::Result<Self> {
        let leads_out = |it: Component<'_>| !matches!(it, Component::Normal(_));
        if way.components().any(leads_out) {
            return Err(refused("leads out of its folder"));
        }
        let flags = NEVER_FOLLOWED | OFlags::RDONLY | OFlags::DIRECTORY;
        // Fast path of kernels since 5.6.
        let no_links = ResolveFlags::NO_SYMLINKS;
        if let Ok(opened) = rustix::fs::openat2(&self.0, way, flags, Mode::empty(), no_links) {
            return Ok(Self(opened));
        }
        for name in way {
            let open = || rustix::fs::openat(&self.0, name, flags, Mode::empty());
            let opened = match open() {
                Err(rustix::io::Errno::NOENT) if make => {
                    match rustix::fs::mkdirat(&self.0, name, FOLDER) {
                        Ok(()) | Err(rustix::io::Errno::EXIST) => open(),
                        Err(error) => return Err(error.into()),
                    }
                }
                opened => opened,
            };
            self = match opened {
                Ok(opened) => Self(opened),
                Err(error) => return Err(self.explained(Path::new(name), error)),
            };
        }
        Ok(self)
    }

    /// The kernel reports a link as "not a directory" or "too many levels".
    fn explained(&self, name: &Path, error: rustix::io::Errno) -> io::Error {
        match rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Symlink => {
                refused("is a link, which is never followed")
            }
            _ => error.into(),
        }
    }

    fn open(&self, name: &str, flags: OFlags, kind: FileType) -> io::Result<File> {
        self.open_as(name, flags, kind, OF_THE_AGENT)
    }

    fn open_as(&self, name: &str, flags: OFlags, kind: FileType, mode: Mode) -> io::Result<File> {
        let opened = rustix::fs::openat(&self.0, name, flags | NEVER_FOLLOWED, mode)
            .map_err(|error| self.explained(Path::new(name), error))?;
        let found = rustix::fs::fstat(&opened)?;
        if FileType::from_raw_mode(found.st_mode) != kind {
            return Err(refused(match kind {
                FileType::Fifo => "is not a pipe",
                _ => "is not a regular file",
            }));
        }
        Ok(File::from(opened))
    }

    /// Gives the folder to a user, without access for others.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn give(&self, user: User) -> io::Result<()> {
        fchown(&self.0, Some(user.uid), Some(user.gid))?;
        Ok(rustix::fs::fchmod(&self.0, Mode::RWXU)?)
    }

    /// Like [`Self::give`], but changes the owner only if needed.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn give_to(&self, owner: User) -> io::Result<()> {
        if self.owner()? == owner {
            Ok(rustix::fs::fchmod(&self.0, Mode::RWXU)?)
        } else {
            self.give(owner)
        }
    }

    /// Returns the folder's owner.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn owner(&self) -> io::Result<User> {
        let found = rustix::fs::fstat(&self.0)?;
        Ok(User {
            uid: found.st_uid,
            gid: found.st_gid,
        })
    }

    /// Gives a regular file in the folder to a user.
    ///
    /// # Errors
    /// As for [`Folder::file`].
    pub fn give_file(&self, name: &str, user: User) -> io::Result<()> {
        let file = self.file(name)?;
        let found = rustix::fs::fstat(&file)?;
        if (found.st_uid, found.st_gid) == (user.uid, user.gid) {
            Ok(())
        } else {
            fchown(file, Some(user.uid), Some(user.gid))
        }
    }

    /// Opens a regular file to read.
    ///
    /// # Errors
    /// Kernel errors, or another kind of file.
    pub fn file(&self, name: &str) -> io::Result<File> {
        self.open(name, OFlags::RDONLY, FileType::RegularFile)
    }

    /// Opens a regular file to append, and creates a missing file.
    ///
    /// # Errors
    /// As for [`Folder::file`].
    pub fn append(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND;
        self.open(name, flags, FileType::RegularFile)
    }

    /// Opens a regular file to append, emptied, and creates a missing file.
    ///
    /// # Errors
    /// As for [`Folder::file`].
    pub fn create(&self, name: &str) -> io::Result<File> {
        let file = self.open(
            name,
            OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND,
            FileType::RegularFile,
        )?;
        file.set_len(0)?;
        Ok(file)
    }

    /// Opens a pipe to write if the pipe has a reader.
    ///
    /// # Errors
    /// As for [`Folder::file`].
    pub fn pipe(&self, name: &str) -> io::Result<File> {
        self.open(name, OFlags::WRONLY, FileType::Fifo)
    }

    /// Reads a regular file of at most `limit_bytes`.
    ///
    /// # Errors
    /// As for [`Folder::file`], or a longer file.
    pub fn read(&self, name: &str, limit_bytes: u64) -> io::Result<Vec<u8>> {
        read_all(self.file(name)?, limit_bytes)
    }

    /// Reads a regular file of at most `limit_bytes` as text.
    ///
    /// # Errors
    /// As for [`Folder::read`], or no UTF-8.
    pub fn read_text(&self, name: &str, limit_bytes: u64) -> io::Result<String> {
        let bytes = self.read(name, limit_bytes)?;
        String::from_utf8(bytes).map_err(|_| refused("is not text"))
    }

    /// Writes a whole file and renames it into place, so a link or pipe there is never written to.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.write_as(name, bytes, OF_THE_AGENT)
    }

    /// Like [`Self::write`], readable only by the owner.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn write_private(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.write_as(name, bytes, Mode::RUSR | Mode::WUSR)
    }

    /// Like [`Self::write`], read-only for all.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn write_read_only(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.write_as(name, bytes, Mode::RUSR | Mode::RGRP | Mode::ROTH)
    }

    fn write_as(&self, name: &str, bytes: &[u8], mode: Mode) -> io::Result<()> {
        let temporary = format!(".{name}.new");
        let _ = self.remove(&temporary);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let mut file = self.open_as(&temporary, flags, FileType::RegularFile, mode)?;
        file.write_all(bytes)?;
        self.rename(&temporary, name)
    }

    /// Renames a file or folder.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, from, &self.0, to)?)
    }

    /// Removes a file, or a link itself.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Links the file `name` into another folder.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn link(&self, name: &str, to: &Self) -> io::Result<()> {
        Ok(rustix::fs::linkat(
            &self.0,
            name,
            &to.0,
            name,
            AtFlags::empty(),
        )?)
    }

    /// Duplicates the handle of the folder.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// Opens the subfolder `name`.
    ///
    /// # Errors
    /// As for [`Below::open`].
    pub fn folder(&self, name: &str) -> io::Result<Self> {
        Self(self.0.try_clone()?).descend(Path::new(name), false)
    }
}

/// Reads a file that the job or its submitter named. Follows links, but accepts only regular files up to
/// `limit_bytes`.
///
/// # Errors
/// Kernel errors, or another kind of file.
pub fn read_anywhere(path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = rustix::fs::open(path, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&opened)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(refused("is not a regular file"));
    }
    read_all(File::from(opened), limit_bytes)
}

/// Reads an open file of at most `limit_bytes`.
///
/// # Errors
/// Kernel errors, or a longer file.
pub fn read_all(file: File, limit_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(limit_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit_bytes {
        return Err(refused(&format!("is longer than {limit_bytes} bytes")));
    }
    Ok(bytes)
}

fn refused(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("it {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn folder() -> (tempfile::TempDir, Folder) {
        let at = tempfile::tempdir().expect("a folder");
        let folder = Folder::at(at.path()).expect("opened");
        (at, folder)
    }

    #[test]
    fn only_regular_files_of_a_bounded_length_are_read() {
        let (at, folder) = folder();
        std::fs::write(at.path().join("good"), "12345").expect("written");
        assert_eq!(folder.read("good", 5).expect("read"), b"12345");
        let mut refusals = vec![folder.read("good", 4)];
        symlink("good", at.path().join("link")).expect("linked");
        refusals.push(folder.read("link", 5));
        let pipe = at.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("made");
        refusals.push(folder.read("pipe", 5));
        for refusal in refusals {
            let error = refusal.expect_err("refused");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        }
        assert!(read_anywhere(Path::new("/dev/zero"), 5).is_err());
        assert!(read_anywhere(&pipe, 5).is_err());
    }

    #[test]
    fn no_link_is_followed_on_the_way_and_none_is_written_through() {
        let (at, folder) = folder();
        std::fs::create_dir(at.path().join("other")).expect("made");
        std::fs::write(at.path().join("other/secret"), "s").expect("written");
        symlink("other", at.path().join("own")).expect("linked");
        let below = |way: &str| Below::new(at.path().to_owned(), way);
        let error = below("own").open().expect_err("refused").to_string();
        assert!(error.contains("a link"), "{error}");
        assert!(below("own/further").make().is_err());
        assert!(below("../x").make().is_err());
        below("a/b").make().expect("made");
        symlink("secret", at.path().join("other/log")).expect("linked");
        let other = below("other").open().expect("opened");
        assert!(other.append("log").is_err());
        other.write("log", b"said").expect("replaced");
        let secret = std::fs::read_to_string(at.path().join("other/secret"));
        assert_eq!(secret.expect("read"), "s");
        drop(folder);
    }
}
