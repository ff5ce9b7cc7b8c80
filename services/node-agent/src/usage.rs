//! Measures disk usage below folders that jobs write to: no links, hard links once, sparse files by blocks. A
//! walk ends at a limit with a reason ([`Uncounted`]), because a job could hide behind uncounted files.
//! Blocking.

mod unlinked;

use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use dormouse_sandbox::folder::{Below, Entry, Folder};

pub use unlinked::{Unlinked, unlinked};

/// Default limit on files and folders. Such a walk takes seconds.
pub const FILES_LIMIT: u64 = 1_000_000;

const AT_ONCE: Duration = Duration::from_secs(3600);

const DEPTH_LIMIT: usize = 64;

/// The usage of some folders.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub bytes: u64,
    pub files: u64,
}

/// The reason why a count failed, for a person, after "it has".
#[derive(Debug, thiserror::Error)]
pub enum Uncounted {
    #[error("more than {0} files and folders")]
    TooMany(u64),
    #[error("folders that lie more than {DEPTH_LIMIT} deep, which are not counted")]
    TooDeep,
    /// The job denies access, and the agent is not root.
    #[error("a folder that the agent may not read, and so cannot count")]
    Closed,
    #[error("more open files than are counted")]
    TooManyOpen,
    #[error("a disk that does not tell: {0}")]
    Disk(#[from] io::Error),
}

/// Counts the usage below all folders. Missing folders count nothing.
///
/// # Errors
/// The reason of a failure.
pub fn usage(roots: &[Below], files_limit: u64) -> Result<Usage, Uncounted> {
    let mut count = Count::new(roots, files_limit);
    while !count.go_on(Instant::now() + AT_ONCE)? {}
    Ok(count.usage)
}

/// Returns the bytes below a folder, possibly incomplete: for display only.
#[must_use]
pub fn used_bytes(below: &Below) -> u64 {
    let mut count = Count::new(std::slice::from_ref(below), FILES_LIMIT);
    while let Ok(false) = count.go_on(Instant::now() + AT_ONCE) {}
    count.usage.bytes
}

/// A count that can be resumed, with one folder open at a time.
#[derive(Debug)]
pub struct Count {
    usage: Usage,
    files_limit: u64,
    seen: BTreeSet<(u64, u64)>,
    folders: Vec<Counted>,
}

#[derive(Debug)]
struct Counted {
    below: Below,
    depth: usize,
    left: Option<Vec<CString>>,
}

fn is_gone(error: &io::Error) -> bool {
    let gone = [Errno::ENOENT, Errno::ENOTDIR, Errno::ELOOP].map(|errno| errno as i32);
    error
        .raw_os_error()
        .is_some_and(|code| gone.contains(&code))
        || error.kind() == ErrorKind::InvalidData
}

fn unless_gone<T>(looked: io::Result<T>) -> Result<Option<T>, Uncounted> {
    match looked {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(Uncounted::Closed),
        Err(error) => Err(error.into()),
    }
}

impl Count {
    /// Creates a count of the files below the folders.
    #[must_use]
    pub fn new(roots: &[Below], files_limit: u64) -> Self {
        let root = |below: &Below| Counted {
            below: below.clone(),
            depth: 0,
            left: None,
        };
        Self {
            usage: Usage::default(),
            files_limit,
            seen: BTreeSet::new(),
            folders: roots.iter().rev().map(root).collect(),
        }
    }

    /// Returns the usage counted so far.
    #[must_use]
    pub const fn so_far(&self) -> Usage {
        self.usage
    }

    /// Continues until `until`, and reports whether the count is complete.
    ///
    /// # Errors
    /// The reason of a failure.
    pub fn go_on(&mut self, until: Instant) -> Result<bool, Uncounted> {
        while let Some(mut counted) = self.folders.pop() {
            let Some(folder) = unless_gone(counted.below.open())? else {
                continue;
            };
            let mut left = match counted.left.take() {
                Some(left) => left,
                None => self.read(&folder)?,
            };
            let (mut inner, mut has_time) = (None, true);
            // At least one entry per call guarantees progress.
            while inner.is_none()
                && has_time
                && let Some(name) = left.pop()
            {
                if let Some(entry) = unless_gone(folder.entry_named(&name))? {
                    self.add(entry)?;
                    inner = entry.is_folder.then_some(name);
                }
                has_time = Instant::now() < until;
            }
            let depth = counted.depth + 1;
            let inner = inner.map(|name| Counted {
                below: counted.below.join(OsStr::from_bytes(name.as_bytes())),
                depth,
                left: None,
            });
            if !left.is_empty() {
                counted.left = Some(left);
                self.folders.push(counted);
            }
            if inner.is_some() && depth > DEPTH_LIMIT {
                return Err(Uncounted::TooDeep);
            }
            self.folders.extend(inner);
            if !has_time {
                break;
            }
        }
        Ok(self.folders.is_empty())
    }

    fn read(&self, folder: &Folder) -> Result<Vec<CString>, Uncounted> {
        let waiting = self.folders.iter().filter_map(|it| it.left.as_ref());
        let waiting: usize = waiting.map(Vec::len).sum();
        let most = self.files_limit.saturating_sub(self.usage.files);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let names = unless_gone(folder.raw_names(most.saturating_sub(waiting)))?;
        match names {
            Some(Some(names)) => Ok(names),
            Some(None) => Err(Uncounted::TooMany(self.files_limit)),
            None => Ok(Vec::new()),
        }
    }

    fn add(&mut self, entry: Entry) -> Result<(), Uncounted> {
        self.usage.files += 1;
        if self.usage.files > self.files_limit {
            return Err(Uncounted::TooMany(self.files_limit));
        }
        if entry.names <= 1 || entry.is_folder || self.seen.insert(entry.file) {
            self.usage.bytes = self.usage.bytes.saturating_add(entry.disk_bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    const MIB: usize = 1 << 20;

    fn own() -> (tempfile::TempDir, Below) {
        let at = tempfile::tempdir().expect("a folder");
        let below = Below::new(at.path().to_owned(), "own");
        fs::create_dir(below.path()).expect("made");
        (at, below)
    }

    fn counted(below: &Below) -> Result<Usage, Uncounted> {
        usage(std::slice::from_ref(below), FILES_LIMIT)
    }

    fn big(path: impl AsRef<Path>) {
        fs::write(path, vec![1; MIB]).expect("written");
    }

    #[test]
    fn what_has_two_names_counts_once_and_links_not_at_all() {
        let at = tempfile::tempdir().expect("a folder");
        let below = Below::new(at.path().to_owned(), "own");
        assert_eq!(counted(&below).expect("nothing"), Usage::default());
        let own = at.path().join("own");
        fs::create_dir_all(own.join("deep")).expect("made");
        big(at.path().join("other"));
        std::os::unix::fs::symlink("../other", own.join("link")).expect("linked");
        let empty = used_bytes(&below);
        big(own.join("deep/file"));
        fs::hard_link(own.join("deep/file"), own.join("again")).expect("linked");
        let sparse = fs::File::create(own.join("sparse")).expect("made");
        sparse.set_len(1 << 30).expect("grown");
        let used = used_bytes(&below) - empty;
        assert!((1 << 20..1 << 21).contains(&used), "{used}");
        assert_eq!(counted(&below).expect("counted").files, 5);
    }

    #[test]
    fn a_large_file_behind_many_small_ones_counts() {
        let (_at, below) = own();
        for number in 0..10_100 {
            fs::File::create(below.path().join(format!("{number:05}"))).expect("made");
        }
        big(below.path().join("zzz"));
        let usage = counted(&below).expect("counted");
        assert_eq!(usage.files, 10_101);
        assert!(usage.bytes >= MIB as u64, "{usage:?}");
    }

    #[test]
    fn a_count_that_is_interrupted_goes_on_where_it_stopped() {
        let (_at, below) = own();
        for folder in 0..30 {
            let folder = below.path().join(format!("{folder}/deep"));
            fs::create_dir_all(&folder).expect("made");
            for file in 0..30 {
                fs::write(folder.join(file.to_string()), "x").expect("written");
            }
        }
        let whole = counted(&below).expect("counted");
        assert_eq!(whole.files, 30 * 32);
        let mut count = Count::new(std::slice::from_ref(&below), FILES_LIMIT);
        let mut looks = 0;
        while !count.go_on(Instant::now()).expect("counted") {
            looks += 1;
            assert!(looks < 10_000, "it begins again and again");
        }
        assert!(looks > 10, "{looks}");
        assert_eq!(count.so_far(), whole);
    }

    #[test]
    fn a_name_that_is_no_text_hides_nothing() {
        let (_at, below) = own();
        let folder = below.path().join(OsStr::from_bytes(b"\xff\xfe"));
        fs::create_dir(&folder).expect("made");
        big(folder.join(OsStr::from_bytes(b"\xff")));
        let usage = counted(&below).expect("counted");
        assert!(usage.bytes >= MIB as u64, "{usage:?}");
    }

    #[test]
    fn what_cannot_be_counted_says_why_and_is_not_nothing() {
        let (_at, below) = own();
        for name in ["a", "b", "c"] {
            fs::create_dir(below.path().join(name)).expect("made");
        }
        let why = usage(std::slice::from_ref(&below), 2).expect_err("too many");
        assert!(matches!(why, Uncounted::TooMany(2)), "{why}");
        let mut deep = below.path();
        for _ in 0..=DEPTH_LIMIT + 1 {
            deep.push("d");
        }
        fs::create_dir_all(&deep).expect("made");
        big(deep.join("big"));
        let why = counted(&below).expect_err("too deep");
        assert!(matches!(why, Uncounted::TooDeep), "{why}");
    }
}
