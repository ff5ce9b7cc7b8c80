//! Removes old directories of ended containers, those without a mark. Checkpoints stay. A parent goes only
//! after it was empty equally long, so that a starting container keeps its parent.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dormouse_sandbox::folder::Below;

use crate::cache::prune::{self as cache, Old};
use crate::container_record::ContainerRecords;
use crate::layout::{Layout, OWNER, logs_in};
use crate::usage::used_bytes;

/// Levels above a container's directory: `<tenant>/<name>/<incarnation>`.
const PARENTS: u32 = 3;

/// Lists the directories without a mark that were last written at least `keep` ago. Blocking.
///
/// # Errors
/// Disk errors.
pub fn old(layout: &Layout, marks: &ContainerRecords, keep: Duration) -> io::Result<Vec<Old>> {
    let found = Search::new(layout, marks, keep)?.found(&layout.containers(), PARENTS);
    let old = found.into_iter().map(|path| {
        let way = path.strip_prefix(layout.containers()).unwrap_or(&path);
        let bytes = used_bytes(&Below::new(layout.containers(), way));
        Old { path, bytes }
    });
    let in_use = in_use(layout, marks)?;
    let made = [layout.code(), layout.environments()].into_iter();
    let made = made.flat_map(|root| cache::old(&root, &in_use, keep));
    Ok(old.chain(made).collect())
}

fn in_use(layout: &Layout, marks: &ContainerRecords) -> io::Result<BTreeSet<PathBuf>> {
    let marks = marks.all()?.into_iter();
    let used = marks.filter_map(|mark| {
        let tenant = layout.environments().join(mark.container.job.tenant());
        Some(tenant.join(mark.environment?))
    });
    Ok(used.collect())
}

/// Removes old directories and returns their number. Blocking.
#[must_use]
pub fn prune(layout: &Layout, marks: &ContainerRecords, keep: Duration) -> usize {
    let Ok(search) = Search::new(layout, marks, keep) else {
        return 0;
    };
    let removed = search.remove(&layout.containers(), PARENTS);
    let Ok(in_use) = in_use(layout, marks) else {
        return removed;
    };
    let caches = [layout.code(), layout.environments()].into_iter();
    removed
        + caches
            .map(|root| cache::prune(&root, &in_use, keep))
            .sum::<usize>()
}

struct Search {
    keep: Duration,
    marked: BTreeSet<PathBuf>,
}

impl Search {
    fn new(layout: &Layout, marks: &ContainerRecords, keep: Duration) -> io::Result<Self> {
        let marked = marks.all()?;
        let marked = marked.iter().map(|mark| layout.container(&mark.container));
        Ok(Self {
            keep,
            marked: marked.collect(),
        })
    }

    fn is_old(&self, path: &Path) -> bool {
        let written = fs::symlink_metadata(path).and_then(|file| file.modified());
        written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= self.keep))
    }

    fn is_over(&self, container: &Path) -> bool {
        let logs = logs_in(container);
        let mut printed = [&logs.stdout, &logs.stderr].into_iter();
        self.is_old(container)
            && printed.all(|log| self.is_old(log) || !is_there(log))
            && !self.marked.contains(container)
    }

    fn found(&self, directory: &Path, depth: u32) -> Vec<PathBuf> {
        let children = folders(directory).into_iter();
        if depth > 0 {
            return children.flat_map(|it| self.found(&it, depth - 1)).collect();
        }
        children.filter(|child| self.is_over(child)).collect()
    }

    fn remove(&self, directory: &Path, depth: u32) -> usize {
        let mut removed = 0;
        for child in folders(directory) {
            if depth > 0 {
                let is_over = self.is_old(&child);
                removed += self.remove(&child, depth - 1);
                if is_over {
                    remove_empty(&child);
                }
            } else if self.is_over(&child) {
                match fs::remove_dir_all(&child) {
                    Ok(()) => removed += 1,
                    Err(error) => tracing::warn!(%error, "cannot remove {}", child.display()),
                }
            }
        }
        removed
    }
}

/// The owner's file goes with the last container.
fn remove_empty(parent: &Path) {
    if folders(parent).is_empty() {
        let _ = fs::remove_file(parent.join(OWNER));
    }
    let _ = fs::remove_dir(parent);
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
        let marks = ContainerRecords::open(&layout).expect("opened");
        let container = |id: &str, is_marked: bool| {
            let id = id.parse().expect("valid");
            let directory = layout.container(&id);
            fs::create_dir_all(&directory).expect("made");
            fs::write(directory.join("stdout.log"), "said").expect("written");
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
        assert_eq!(old(&layout, &marks, DAY).expect("listed"), []);
        let shown = old(&layout, &marks, Duration::ZERO).expect("listed");
        assert_eq!(shown.len(), 3);
        assert!(
            shown.iter().all(|it| it.path.exists() && it.bytes >= 4096),
            "{shown:?}"
        );
        assert_eq!(prune(&layout, &marks, Duration::ZERO), 3);
        let is_there = |path: &str| layout.containers().join(path).exists();
        assert!(is_there("ads/runs/2/0/stdout.log"));
        assert!(!is_there("ads/over/1/0") && !is_there("ads/runs/1/0"));
        assert!(!is_there("ads/over") && is_there("ads/runs"));
    }
}
