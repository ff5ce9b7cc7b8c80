//! Removes what ended containers have left on a node's disk, once it is old enough.
//!
//! Only directories of containers that no mark stands for go: their exits are on the log, or they
//! never started. Checkpoints stay. A parent goes when it has been empty for as long, so that
//! nothing is removed in which a container is just being made.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::layout::{Layout, logs_in};
use crate::marks::Marks;

/// `<tenant>/<name>/<incarnation>` above a container's directory.
const PARENTS: u32 = 3;

/// Removes the directories of containers that were last written at least `keep` ago and that no
/// mark stands for; how many. Blocking.
#[must_use]
pub fn prune(layout: &Layout, marks: &Marks, keep: Duration) -> usize {
    let Ok(marked) = marks.all() else {
        return 0;
    };
    let marked = marked.iter().map(|mark| layout.container(&mark.container));
    let marked: BTreeSet<PathBuf> = marked.collect();
    // Of a link: when the link itself was made.
    let is_old = |path: &Path| {
        let written = fs::symlink_metadata(path).and_then(|file| file.modified());
        written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= keep))
    };
    below(&layout.containers(), PARENTS, &is_old, &marked)
}

fn below(
    directory: &Path,
    depth: u32,
    is_old: &impl Fn(&Path) -> bool,
    marked: &BTreeSet<PathBuf>,
) -> usize {
    let mut removed = 0;
    for child in folders(directory) {
        if depth > 0 {
            let is_over = is_old(&child);
            removed += below(&child, depth - 1, is_old, marked);
            if is_over {
                // Fails while there is something in it.
                let _ = fs::remove_dir(&child);
            }
            continue;
        }
        let logs = logs_in(&child);
        let mut printed = [&logs.stdout, &logs.stderr].into_iter();
        let is_over = is_old(&child) && printed.all(|log| is_old(log) || !is_there(log));
        if is_over && !marked.contains(&child) {
            // It follows no link.
            match fs::remove_dir_all(&child) {
                Ok(()) => removed += 1,
                Err(error) => tracing::warn!(%error, "cannot remove {}", child.display()),
            }
        }
    }
    removed
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn folders(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use dormouse_messages::Sequence;

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn what_is_told_goes_when_it_is_old_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let node = "n0".parse().expect("valid");
        let layout = Layout::new(folder.path(), folder.path(), &node);
        let marks = Marks::open(&layout).expect("opened");
        let container = |id: &str, is_marked: bool| {
            let id = id.parse().expect("valid");
            let directory = layout.container(&id);
            fs::create_dir_all(&directory).expect("made");
            fs::write(directory.join("stdout.log"), "said").expect("written");
            // What a job writes there keeps nothing and removes nothing.
            fs::write(directory.join("told"), "").expect("written");
            if is_marked {
                marks.change(&id, Sequence(7), |_| {});
            }
        };
        container("ads/over/1/0", false);
        container("ads/over/1/1", false);
        container("ads/runs/1/0", false);
        container("ads/runs/2/0", true);
        assert_eq!(prune(&layout, &marks, DAY), 0, "all are young");
        assert_eq!(prune(&layout, &marks, Duration::ZERO), 3);
        let is_there = |path: &str| layout.containers().join(path).exists();
        assert!(is_there("ads/runs/2/0/stdout.log"));
        assert!(!is_there("ads/over/1/0") && !is_there("ads/runs/1/0"));
        assert!(!is_there("ads/over") && is_there("ads/runs"));
    }
}
