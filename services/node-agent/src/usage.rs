//! How much of a disk lies below folders that jobs write to. Links are not followed; a file with
//! several names counts once; what is sparse counts as it lies on the disk. Blocking.
//!
//! What cannot be counted is never taken for nothing: a job could hide behind it. So a walk ends at
//! a bound, and says which ([`Uncounted`]).

mod unlinked;

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::io::{self, ErrorKind};

use nix::errno::Errno;

use crate::folder::{Below, Entry, Folder};

pub use unlinked::{Unlinked, unlinked};

/// Files and folders that are counted, where no other bound is given: a walk of so many takes seconds.
pub const FILES_LIMIT: u64 = 1_000_000;

/// Folders within folders. Each of them is held open meanwhile.
const DEPTH_LIMIT: usize = 64;

/// What lies there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes on the disk.
    pub bytes: u64,
    /// Files and folders.
    pub files: u64,
}

/// Why it was not counted to its end; for a person, after "it has".
#[derive(Debug, thiserror::Error)]
pub enum Uncounted {
    /// More names than may be.
    #[error("more than {0} files and folders")]
    TooMany(u64),
    /// Folders within folders.
    #[error("folders that lie more than {DEPTH_LIMIT} deep, which are not counted")]
    TooDeep,
    /// The job has shut the agent out, which is not root then.
    #[error("a folder that the agent may not read, and so cannot count")]
    Closed,
    /// More open files than are looked at.
    #[error("more open files than are counted")]
    TooManyOpen,
    /// The disk's own fault.
    #[error("a disk that does not tell: {0}")]
    Disk(#[from] io::Error),
}

/// What lies below all of these folders; of those that are not there, nothing.
///
/// # Errors
/// Why it cannot be counted.
pub fn usage(roots: &[Below], files_limit: u64) -> Result<Usage, Uncounted> {
    let mut count = Count::new(files_limit);
    count.add_all(roots)?;
    Ok(count.usage)
}

/// Bytes on the disk below a folder, as far as they can be counted: to be shown, not to judge by.
#[must_use]
pub fn used_bytes(below: &Below) -> u64 {
    let mut count = Count::new(FILES_LIMIT);
    let _ = count.add_all(std::slice::from_ref(below));
    count.usage.bytes
}

struct Count {
    usage: Usage,
    files_limit: u64,
    /// Those of several names.
    seen: BTreeSet<(u64, u64)>,
}

/// It goes away, or is replaced, as this looks.
fn is_gone(error: &io::Error) -> bool {
    let gone = [Errno::ENOENT, Errno::ENOTDIR, Errno::ELOOP].map(|errno| errno as i32);
    error.raw_os_error().is_some_and(|code| gone.contains(&code))
        // A link in its place.
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
    fn new(files_limit: u64) -> Self {
        Self {
            usage: Usage::default(),
            files_limit,
            seen: BTreeSet::new(),
        }
    }

    fn add_all(&mut self, roots: &[Below]) -> Result<(), Uncounted> {
        for root in roots {
            if let Some(folder) = unless_gone(root.open())? {
                self.add(&folder, 0)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, folder: &Folder, depth: usize) -> Result<(), Uncounted> {
        if depth > DEPTH_LIMIT {
            return Err(Uncounted::TooDeep);
        }
        folder.each(|name, looked| match unless_gone(looked)? {
            Some(entry) => self.add_one(folder, name, entry, depth),
            None => Ok(()),
        })
    }

    fn add_one(
        &mut self,
        folder: &Folder,
        name: &CStr,
        entry: Entry,
        depth: usize,
    ) -> Result<(), Uncounted> {
        self.usage.files += 1;
        if self.usage.files > self.files_limit {
            return Err(Uncounted::TooMany(self.files_limit));
        }
        if entry.names <= 1 || entry.is_folder || self.seen.insert(entry.file) {
            self.usage.bytes += entry.disk_bytes;
        }
        if entry.is_folder
            && let Some(inner) = unless_gone(folder.folder_named(name))?
        {
            self.add(&inner, depth + 1)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
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
