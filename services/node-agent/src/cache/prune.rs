//! Removes unpacked folders and environments that were not used for long. A later job makes them again.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use dormouse_sandbox::folder::Below;

use crate::python::{DOWNLOADS, WHOLE};
use crate::usage::used_bytes;

/// A directory that may be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Old {
    pub path: PathBuf,
    pub bytes: u64,
}

fn folders(directory: &Path, is_taken: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let taken = entries.filter(|entry| {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        is_folder && is_taken(&entry.file_name().to_string_lossy())
    });
    taken.map(|entry| entry.path()).collect()
}

fn used_at(folder: &Path) -> io::Result<SystemTime> {
    let whole = fs::symlink_metadata(folder.join(WHOLE));
    whole.or_else(|_| fs::metadata(folder))?.modified()
}

fn found(root: &Path, in_use: &BTreeSet<PathBuf>, keep: Duration) -> Vec<PathBuf> {
    let tenants = folders(root, |name| !name.starts_with('.')).into_iter();
    let is_taken = |name: &str| !name.starts_with('.') || name.starts_with(DOWNLOADS);
    let all = tenants.flat_map(|tenant| folders(&tenant, is_taken));
    let is_old = |folder: &PathBuf| {
        used_at(folder).is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= keep))
    };
    let old = all.filter(is_old);
    old.filter(|folder| !in_use.contains(folder)).collect()
}

/// Lists data of one cache that was last used at least `keep` ago. Blocking.
#[must_use]
pub fn old(root: &Path, in_use: &BTreeSet<PathBuf>, keep: Duration) -> Vec<Old> {
    let old = found(root, in_use, keep).into_iter().map(|path| {
        let way = path.strip_prefix(root).unwrap_or(&path);
        let bytes = used_bytes(&Below::new(root.to_owned(), way));
        Old { path, bytes }
    });
    old.collect()
}

/// Removes data that [`old`] lists, and returns its number. Blocking.
#[must_use]
pub fn prune(root: &Path, in_use: &BTreeSet<PathBuf>, keep: Duration) -> usize {
    let mut removed = 0;
    for (number, folder) in found(root, in_use, keep).into_iter().enumerate() {
        // Rename first: an existing folder is always complete.
        let aside = root.join(format!(".gone-{number}"));
        let _ = fs::remove_dir_all(&aside);
        let gone = fs::rename(&folder, &aside).and_then(|()| fs::remove_dir_all(&aside));
        match gone {
            Ok(()) => removed += 1,
            Err(error) => tracing::warn!(%error, "cannot remove {}", folder.display()),
        }
    }
    removed
}
