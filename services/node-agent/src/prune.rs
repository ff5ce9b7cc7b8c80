//! Removes what ended containers have left on a node's disk, once it is old enough.
//!
//! Only directories of containers whose exit is on the log (`told`) go; checkpoints stay. A
//! parent goes when it has been empty for as long, so that nothing is removed in which a
//! container is just being made.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `<tenant>/<name>/<incarnation>` above a container's directory.
const PARENTS: u32 = 3;

/// Removes containers' directories below `containers` that were told at least `keep` ago; how
/// many. Blocking.
#[must_use]
pub fn prune(containers: &Path, keep: Duration) -> usize {
    let is_old = |path: &Path| {
        let written = fs::metadata(path).and_then(|file| file.modified());
        written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= keep))
    };
    below(containers, PARENTS, &is_old)
}

fn below(directory: &Path, depth: u32, is_old: &impl Fn(&Path) -> bool) -> usize {
    let mut removed = 0;
    for child in folders(directory) {
        if depth > 0 {
            let is_over = is_old(&child);
            removed += below(&child, depth - 1, is_old);
            if is_over {
                // Fails while there is something in it.
                let _ = fs::remove_dir(&child);
            }
        } else if is_old(&child.join("told")) {
            match fs::remove_dir_all(&child) {
                Ok(()) => removed += 1,
                Err(error) => tracing::warn!(%error, "cannot remove {}", child.display()),
            }
        }
    }
    removed
}

fn folders(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn what_is_told_goes_when_it_is_old_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let container = |path: &str, is_told: bool| {
            let directory = folder.path().join(path);
            fs::create_dir_all(&directory).expect("made");
            fs::write(directory.join("stdout.log"), "said").expect("written");
            if is_told {
                fs::write(directory.join("told"), "").expect("written");
            }
        };
        container("ads/over/1/0", true);
        container("ads/over/1/1", true);
        container("ads/runs/1/0", true);
        container("ads/runs/2/0", false);
        assert_eq!(prune(folder.path(), DAY), 0, "all are young");
        assert_eq!(prune(folder.path(), Duration::ZERO), 3);
        let is_there = |path: &str| folder.path().join(path).exists();
        assert!(is_there("ads/runs/2/0/stdout.log"));
        assert!(!is_there("ads/over/1/0") && !is_there("ads/runs/1/0"));
        assert!(!is_there("ads/over") && is_there("ads/runs"));
    }
}
