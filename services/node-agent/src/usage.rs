//! How much of a disk lies below a folder that jobs write to. Links are not followed; a file with
//! several names counts once; what is sparse counts as it lies on the disk. Blocking.

use std::collections::BTreeSet;
use std::io;

use crate::folder::{Below, Folder};

/// Files and folders that are counted: a walk of so many takes seconds.
const ENTRIES_LIMIT: usize = 1_000_000;

/// Folders within folders.
const DEPTH_LIMIT: usize = 64;

/// Bytes on the disk below a folder; 0 where it is not there.
///
/// # Errors
/// The disk's.
pub fn used_bytes(below: &Below) -> io::Result<u64> {
    match below.open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
        Ok(folder) => {
            let mut count = Count::default();
            count.add(&folder, 0);
            Ok(count.bytes)
        }
    }
}

#[derive(Default)]
struct Count {
    bytes: u64,
    entries: usize,
    /// Those of several names.
    seen: BTreeSet<(u64, u64)>,
}

impl Count {
    /// What cannot be read is not counted: it goes away as this looks.
    fn add(&mut self, folder: &Folder, depth: usize) {
        for (name, entry) in folder.entries().unwrap_or_default() {
            self.entries += 1;
            if self.entries > ENTRIES_LIMIT {
                return;
            }
            if entry.names <= 1 || entry.is_folder || self.seen.insert(entry.file) {
                self.bytes += entry.disk_bytes;
            }
            if entry.is_folder
                && depth < DEPTH_LIMIT
                && let Ok(inner) = folder.folder(&name)
            {
                self.add(&inner, depth + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_has_two_names_counts_once_and_links_not_at_all() {
        let at = tempfile::tempdir().expect("a folder");
        let below = Below::new(at.path().to_owned(), "own");
        assert_eq!(used_bytes(&below).expect("nothing"), 0);
        let own = at.path().join("own");
        fs::create_dir_all(own.join("deep")).expect("made");
        fs::write(at.path().join("other"), vec![1; 1 << 20]).expect("written");
        std::os::unix::fs::symlink("../other", own.join("link")).expect("linked");
        let empty = used_bytes(&below).expect("counted");
        fs::write(own.join("deep/file"), vec![1; 1 << 20]).expect("written");
        fs::hard_link(own.join("deep/file"), own.join("again")).expect("linked");
        let sparse = fs::File::create(own.join("sparse")).expect("made");
        sparse.set_len(1 << 30).expect("grown");
        let used = used_bytes(&below).expect("counted") - empty;
        assert!((1 << 20..1 << 21).contains(&used), "{used}");
    }
}
