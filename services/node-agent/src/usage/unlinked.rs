//! Measures unlinked files that a tenant's processes hold open or mapped. Blocking. Processes belong to
//! tenants by user. A thread's private descriptors, and those in flight in sockets, are not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use dormouse_sandbox::folder::Below;

use super::{Uncounted, Usage};

/// Limit on inspected files per user: a second's work.
const LOOKS_LIMIT: usize = 1_000_000;

const BLOCK_BYTES: u64 = 512;

/// Unlinked files by user.
#[derive(Debug, Default)]
pub struct Unlinked {
    of: BTreeMap<u32, Held>,
}

#[derive(Debug, Default)]
struct Held {
    looks: usize,
    seen: BTreeSet<(u64, u64)>,
    usage: Usage,
}

impl Unlinked {
    /// Returns a user's usage.
    ///
    /// # Errors
    /// If the user's processes hold too many files.
    pub fn of(&self, uid: u32) -> Result<Usage, Uncounted> {
        match self.of.get(&uid) {
            None => Ok(Usage::default()),
            Some(held) if held.looks > LOOKS_LIMIT => Err(Uncounted::TooManyOpen),
            Some(held) => Ok(held.usage),
        }
    }
}

/// Measures the users' unlinked files on the disks of the folders.
#[must_use]
pub fn unlinked(uids: &BTreeSet<u32>, folders: &[Below]) -> Unlinked {
    let mut found = Unlinked::default();
    let disks = folders.iter().filter_map(|it| fs::metadata(it.path()).ok());
    let disks: BTreeSet<u64> = disks.map(|it| it.dev()).collect();
    if uids.is_empty() || disks.is_empty() {
        return found;
    }
    for process in numbered(Path::new("/proc")) {
        let Some((uid, is_over)) = user_of(&process).filter(|(uid, _)| uids.contains(uid)) else {
            continue;
        };
        let held = found.of.entry(uid).or_default();
        held.add(&process, &disks);
        if is_over {
            // Other threads may run.
            for thread in numbered(&process.join("task")) {
                held.add(&thread, &disks);
            }
        }
    }
    found
}

fn numbered(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_number = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    };
    entries.map(|entry| entry.path()).filter(is_number)
}

/// Returns a process's user, and true if its first thread has ended. `/proc` may have another owner.
fn user_of(process: &Path) -> Option<(u32, bool)> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    let field = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name))?;
        value.split_ascii_whitespace().next()
    };
    let is_over = field("State:") == Some("Z");
    Some((field("Uid:")?.parse().ok()?, is_over))
}

impl Held {
    fn add(&mut self, process: &Path, disks: &BTreeSet<u64>) {
        let open = fs::read_dir(process.join("fd")).into_iter().flatten();
        for entry in open.flatten() {
            self.look(&entry.path(), disks);
            if self.looks > LOOKS_LIMIT {
                return;
            }
        }
        let Ok(maps) = File::open(process.join("maps")) else {
            return;
        };
        for line in BufReader::new(maps).split(b'\n').map_while(Result::ok) {
            self.looks += 1;
            if self.looks > LOOKS_LIMIT {
                return;
            }
            if line.ends_with(b" (deleted)")
                && let Some(range) = line.split(|byte| *byte == b' ').next()
            {
                let range = String::from_utf8_lossy(range).into_owned();
                self.look(&process.join("map_files").join(range), disks);
            }
        }
    }

    fn look(&mut self, path: &Path, disks: &BTreeSet<u64>) {
        self.looks += 1;
        let Ok(file) = fs::metadata(path) else { return };
        if file.nlink() == 0
            && file.is_file()
            && disks.contains(&file.dev())
            && self.seen.insert((file.dev(), file.ino()))
        {
            self.usage.files += 1;
            self.usage.bytes += file.blocks() * BLOCK_BYTES;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_without_a_name_counts_while_it_is_open() {
        let at = tempfile::tempdir().expect("a folder");
        let below = [Below::new(at.path().to_owned(), "")];
        let own = nix::unistd::geteuid().as_raw();
        let looked = || unlinked(&[own].into(), &below).of(own).expect("counted");
        let before = looked();
        let mut file = File::create(at.path().join("big")).expect("made");
        file.write_all(&vec![1; 8 << 20]).expect("written");
        let named = looked().bytes.saturating_sub(before.bytes);
        assert!(named < 8 << 20, "its name counts: {named}");
        fs::remove_file(at.path().join("big")).expect("removed");
        let again = file.try_clone().expect("open twice");
        let held = looked().bytes.saturating_sub(before.bytes);
        assert!((8 << 20..16 << 20).contains(&held), "{held}");
        let another = unlinked(&[own + 1].into(), &below);
        assert_eq!(another.of(own + 1).expect("counted"), Usage::default());
        drop((file, again));
    }
}
