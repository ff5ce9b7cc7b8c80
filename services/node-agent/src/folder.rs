//! The only way to a path that a job can write.
//!
//! A job may put anything where the agent looks: a pipe that nobody writes, a link to another
//! tenant's file, a device, a file without an end. So, from a root that the operator named:
//!
//! 1. No link is followed, neither on the way nor at the end ([`Below`], [`Folder`]).
//! 2. Opening never waits for a writer or a reader (`O_NONBLOCK`), and what is opened is believed
//!    only if the kernel says that it is a regular file (or a pipe, for [`Folder::pipe`]).
//! 3. Every read has a bound.
//!
//! What is left is a file system that does not answer at all: whoever looks here does so on a
//! thread of its own and with a time limit ([`aside`], [`aside_in_time`]).

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::fchown;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use tokio::sync::Semaphore;

use crate::runtime::User;

/// Looks under way at once. Those that hang hold a thread each: of the 512 that the runtime has,
/// most must be left for starts and kills.
static LOOKS: Semaphore = Semaphore::const_new(64);

/// How long a look may take: a slow disk needs milliseconds, a busy network file system a second.
pub const LOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// The kernel counts blocks of so much, whatever the file system's are.
const BLOCK_BYTES: u64 = 512;

/// Entries read of one folder.
pub const ENTRIES_LIMIT: usize = 10_000;

const NEVER_FOLLOWED: OFlags = OFlags::NOFOLLOW
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

const OF_THE_AGENT: Mode = Mode::from_raw_mode(0o644);
const FOLDER: Mode = Mode::from_raw_mode(0o755);

impl From<OwnedFd> for Folder {
    /// A folder that was opened otherwise.
    fn from(folder: OwnedFd) -> Self {
        Self(folder)
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Where a folder is: a root that is trusted, and a way down on which no link is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Below {
    root: PathBuf,
    way: PathBuf,
}

/// An open folder.
#[derive(Debug)]
pub struct Folder(OwnedFd);

/// What lies in a folder; of a link, what the link itself is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Whether it is a folder.
    pub is_folder: bool,
    /// Whether it is a regular file.
    pub is_regular: bool,
    /// Its length.
    pub bytes: u64,
    /// What it takes of the disk.
    pub disk_bytes: u64,
    /// How many names it has.
    pub names: u64,
    /// Which one it is: the numbers of its disk and its own.
    pub file: (u64, u64),
    /// When it was last written, after 1970.
    pub modified_ns: i64,
}

impl Entry {
    fn of(stat: &rustix::fs::Stat) -> Self {
        let kind = FileType::from_raw_mode(stat.st_mode);
        let seconds = i128::from(stat.st_mtime) * 1_000_000_000;
        let modified_ns = seconds + i128::from(stat.st_mtime_nsec);
        #[allow(clippy::useless_conversion, reason = "narrower on other machines")]
        let names = stat.st_nlink.into();
        Self {
            is_folder: kind == FileType::Directory,
            is_regular: kind == FileType::RegularFile,
            bytes: u64::try_from(stat.st_size).unwrap_or(0),
            disk_bytes: u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK_BYTES,
            names,
            file: (stat.st_dev, stat.st_ino),
            modified_ns: i64::try_from(modified_ns).unwrap_or(0),
        }
    }
}

impl Below {
    /// The folder `way` below `root`.
    #[must_use]
    pub fn new(root: PathBuf, way: impl Into<PathBuf>) -> Self {
        let way = way.into();
        Self { root, way }
    }

    /// The whole path, for messages and for the job.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.root.join(&self.way)
    }

    /// Its root, and the way down from there.
    #[must_use]
    pub fn parts(&self) -> (&Path, &Path) {
        (&self.root, &self.way)
    }

    /// The folder `way` below this one.
    #[must_use]
    pub fn join(&self, way: impl AsRef<Path>) -> Self {
        Self::new(self.root.clone(), self.way.join(way))
    }

    /// Whether its root is there.
    ///
    /// # Errors
    /// The kernel's.
    pub fn check_root(&self) -> io::Result<()> {
        Folder::at(&self.root).map(drop)
    }

    /// Whether this process may make something in its root.
    #[must_use]
    pub fn may_write_to_root(&self) -> bool {
        let asked = Access::WRITE_OK | Access::EXEC_OK;
        rustix::fs::access(&self.root, asked).is_ok()
    }

    /// The folder above it, below the same root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let way = self.way.parent()?;
        Some(Self::new(self.root.clone(), way))
    }

    /// Opens it.
    ///
    /// # Errors
    /// The kernel's; where a link is in the way, one that says so.
    pub fn open(&self) -> io::Result<Folder> {
        Folder::at(&self.root)?.descend(&self.way, false)
    }

    /// Opens it; what is missing on the way is made.
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
    /// Opens a folder that the operator named: links on the way are the operator's.
    ///
    /// # Errors
    /// The kernel's.
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
        // Mostly it is there, and the kernel is of 5.6 or later: one step instead of many.
        let no_links = ResolveFlags::NO_SYMLINKS;
        if let Ok(opened) = rustix::fs::openat2(&self.0, way, flags, Mode::empty(), no_links) {
            return Ok(Self(opened));
        }
        for name in way {
            let open = || rustix::fs::openat(&self.0, name, flags, Mode::empty());
            // Mostly it is there, and to make it again costs more than to open it.
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

    /// The kernel says "not a directory", or "too many levels", of a link.
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

    /// Gives the folder itself to a user, and nobody else a look into it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn give(&self, user: User) -> io::Result<()> {
        fchown(&self.0, Some(user.uid), Some(user.gid))?;
        Ok(rustix::fs::fchmod(&self.0, Mode::RWXU)?)
    }

    /// The same, where it is another user's so far.
    ///
    /// # Errors
    /// The kernel's.
    pub fn give_to(&self, owner: User) -> io::Result<()> {
        match self.owner()? == owner {
            true => Ok(rustix::fs::fchmod(&self.0, Mode::RWXU)?),
            false => self.give(owner),
        }
    }

    /// The user that it belongs to.
    ///
    /// # Errors
    /// The kernel's.
    pub fn owner(&self) -> io::Result<User> {
        let found = rustix::fs::fstat(&self.0)?;
        Ok(User {
            uid: found.st_uid,
            gid: found.st_gid,
        })
    }

    /// Gives a regular file in it to a user.
    ///
    /// # Errors
    /// As for [`Folder::file`].
    pub fn give_file(&self, name: &str, user: User) -> io::Result<()> {
        let file = self.file(name)?;
        let found = rustix::fs::fstat(&file)?;
        match (found.st_uid, found.st_gid) == (user.uid, user.gid) {
            true => Ok(()),
            false => fchown(file, Some(user.uid), Some(user.gid)),
        }
    }

    /// Opens a regular file to read.
    ///
    /// # Errors
    /// The kernel's, or that it is no regular file.
    pub fn file(&self, name: &str) -> io::Result<File> {
        self.open(name, OFlags::RDONLY, FileType::RegularFile)
    }

    /// Opens a regular file to append to; it is made where it is missing.
    ///
    /// # Errors
    /// As for [`Folder::file`].
    pub fn append(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND;
        self.open(name, flags, FileType::RegularFile)
    }

    /// Opens a regular file, emptied, to append to; it is made where it is missing.
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

    /// Opens a pipe to write, if somebody reads it.
    ///
    /// # Errors
    /// As for [`Folder::file`].
    pub fn pipe(&self, name: &str) -> io::Result<File> {
        self.open(name, OFlags::WRONLY, FileType::Fifo)
    }

    /// Reads a regular file that is no longer than `limit_bytes`.
    ///
    /// # Errors
    /// As for [`Folder::file`], or that it is longer.
    pub fn read(&self, name: &str, limit_bytes: u64) -> io::Result<Vec<u8>> {
        read_all(self.file(name)?, limit_bytes)
    }

    /// The same, as text.
    ///
    /// # Errors
    /// As for [`Folder::read`], or that it is no text.
    pub fn read_text(&self, name: &str, limit_bytes: u64) -> io::Result<String> {
        let bytes = self.read(name, limit_bytes)?;
        String::from_utf8(bytes).map_err(|_| refused("is not text"))
    }

    /// Writes a file whole: beside its place first, then by a rename, so that a link or a pipe in
    /// its place is replaced and never written to.
    ///
    /// # Errors
    /// The kernel's.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.write_as(name, bytes, OF_THE_AGENT)
    }

    /// The same, for nobody else to read.
    ///
    /// # Errors
    /// The kernel's.
    pub fn write_private(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.write_as(name, bytes, Mode::RUSR | Mode::WUSR)
    }

    /// The same, for everybody to read, and not to be written to by mistake.
    ///
    /// # Errors
    /// The kernel's.
    pub fn write_read_only(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.write_as(name, bytes, Mode::RUSR | Mode::RGRP | Mode::ROTH)
    }

    fn write_as(&self, name: &str, bytes: &[u8], mode: Mode) -> io::Result<()> {
        let beside = format!(".{name}.new");
        let _ = self.remove(&beside);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let mut file = self.open_as(&beside, flags, FileType::RegularFile, mode)?;
        file.write_all(bytes)?;
        self.rename(&beside, name)
    }

    /// Gives a file or folder another name.
    ///
    /// # Errors
    /// The kernel's.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, from, &self.0, to)?)
    }

    /// Removes a file, or a link itself.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// The names of what lies in it, in order.
    ///
    /// # Errors
    /// The kernel's.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().to_str()
                && !matches!(name, "." | "..")
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Whether something in it has a name that [`Self::names`] leaves out, since it is not UTF-8.
    ///
    /// # Errors
    /// The kernel's.
    pub fn has_unreadable_names(&self) -> io::Result<bool> {
        for entry in Dir::read_from(&self.0)? {
            if entry?.file_name().to_str().is_err() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What lies in it, by name, with what each is: at most [`ENTRIES_LIMIT`] of it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn entries(&self) -> io::Result<Vec<(String, Entry)>> {
        let names = self.names()?.into_iter().take(ENTRIES_LIMIT);
        let entry = |name: String| {
            let entry = self.entry(&name).ok()?;
            Some((name, entry))
        };
        Ok(names.filter_map(entry).collect())
    }

    /// The names of what lies in it, text or not, in no order; nothing where there are more than `most`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn raw_names(&self, most: usize) -> io::Result<Option<Vec<CString>>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if names.len() == most {
                return Ok(None);
            }
            names.push(name.to_owned());
        }
        Ok(Some(names))
    }

    /// What lies in it under a name that need not be text.
    ///
    /// # Errors
    /// The kernel's.
    pub fn entry_named(&self, name: &CStr) -> io::Result<Entry> {
        let stat = rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Entry::of(&stat))
    }

    /// What lies in it under a name.
    ///
    /// # Errors
    /// The kernel's.
    pub fn entry(&self, name: &str) -> io::Result<Entry> {
        let stat = rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Entry::of(&stat))
    }

    /// The file `name` gets the same name in another folder, too.
    ///
    /// # Errors
    /// The kernel's.
    pub fn link(&self, name: &str, to: &Self) -> io::Result<()> {
        Ok(rustix::fs::linkat(
            &self.0,
            name,
            &to.0,
            name,
            AtFlags::empty(),
        )?)
    }

    /// The same folder, open once more.
    ///
    /// # Errors
    /// The kernel's.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// The folder `name` in it.
    ///
    /// # Errors
    /// As for [`Below::open`].
    pub fn folder(&self, name: &str) -> io::Result<Self> {
        Self(self.0.try_clone()?).descend(Path::new(name), false)
    }
}

/// Reads a file that the job, or its submitter, has named anywhere on the node: links are
/// followed, but only a regular file is believed, and none that is longer than `limit_bytes`.
///
/// # Errors
/// The kernel's, or what is wrong with the file.
pub fn read_anywhere(path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = rustix::fs::open(path, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&opened)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(refused("is not a regular file"));
    }
    read_all(File::from(opened), limit_bytes)
}

/// Looks on a thread of its own; `None` where that panics. It cannot be ended: it holds one of
/// [`LOOKS`] until the file system answers, whether it is still waited for or not.
pub async fn aside<T: Send + 'static>(look: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let turn = LOOKS.acquire().await.ok()?;
    let looking = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        look()
    });
    looking.await.ok()
}

/// The same; `None`, too, where it takes longer than [`LOOK_TIMEOUT`].
pub async fn aside_in_time<T: Send + 'static>(
    look: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let looked = tokio::time::timeout(LOOK_TIMEOUT, aside(look)).await;
    looked.ok().flatten()
}

/// Reads an open file that is no longer than `limit_bytes`.
///
/// # Errors
/// The kernel's, or that it is longer.
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

    #[tokio::test]
    async fn looks_that_hang_are_given_up_and_leave_threads_to_others() {
        let (release, held) = std::sync::mpsc::channel::<()>();
        let held = std::sync::Arc::new(std::sync::Mutex::new(held));
        let hang = |_| {
            let held = std::sync::Arc::clone(&held);
            let hang = aside(move || held.lock().is_ok_and(|held| held.recv().is_err()));
            tokio::time::timeout(Duration::from_millis(50), hang)
        };
        let hung = futures::future::join_all((0..600).map(hang)).await;
        assert!(hung.iter().all(Result::is_err));
        let start = tokio::task::spawn_blocking(|| 7).await;
        assert_eq!(start.expect("it runs"), 7);
        drop(release);
        assert_eq!(aside_in_time(|| 7).await, Some(7));
    }
}
