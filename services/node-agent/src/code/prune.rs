//! What is unpacked on a node and nobody has used for long goes; it is fetched again where it is
//! needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::folder::Below;
use crate::layout::Layout;
use crate::prune::Old;
use crate::usage::used_bytes;

fn folders(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let shown = entries.filter(|entry| {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        is_folder && !entry.file_name().to_string_lossy().starts_with('.')
    });
    shown.map(|entry| entry.path()).collect()
}

fn found(layout: &Layout, keep: Duration) -> Vec<PathBuf> {
    let tenants = folders(&layout.code()).into_iter();
    let all = tenants.flat_map(|tenant| folders(&tenant));
    let is_old = |folder: &PathBuf| {
        let used = fs::metadata(folder).and_then(|folder| folder.modified());
        used.is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= keep))
    };
    all.filter(is_old).collect()
}

/// What was last used at least `keep` ago. Blocking.
#[must_use]
pub fn old(layout: &Layout, keep: Duration) -> Vec<Old> {
    let old = found(layout, keep).into_iter().map(|path| {
        let way = path.strip_prefix(layout.code()).unwrap_or(&path);
        let bytes = used_bytes(&Below::new(layout.code(), way)).unwrap_or(0);
        Old { path, bytes }
    });
    old.collect()
}

/// Removes it; how many. Blocking.
#[must_use]
pub fn prune(layout: &Layout, keep: Duration) -> usize {
    let mut removed = 0;
    for (number, folder) in found(layout, keep).into_iter().enumerate() {
        // What has its name is whole.
        let aside = layout.code().join(format!(".gone-{number}"));
        let _ = fs::remove_dir_all(&aside);
        let gone = fs::rename(&folder, &aside).and_then(|()| fs::remove_dir_all(&aside));
        match gone {
            Ok(()) => removed += 1,
            Err(error) => tracing::warn!(%error, "cannot remove {}", folder.display()),
        }
    }
    removed
}
