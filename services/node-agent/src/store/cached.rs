//! A node's copies of stored checkpoints, valid within one boot.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fs;
use std::io;

use dormouse_sandbox::folder::Below;
use dormouse_sandbox::procfs::boot_id;

use super::Name;
use crate::checkpoint_snapshot;
use crate::layout::{JobFolder, Layout};

const BOOT_BYTES: u64 = 256;

/// Returns the local folder of a stored checkpoint.
pub(super) fn place(layout: &Layout, job: &JobFolder, name: &Name) -> Below {
    layout.checkpoints_below(job).join(name.to_string())
}

/// File with a cached checkpoint's boot id, invisible to the job.
fn mark(name: &str) -> String {
    format!(".{name}.boot")
}

fn place_of(place: &Below) -> Option<(Below, String)> {
    let path = place.path();
    let name = path.file_name()?.to_str()?.to_owned();
    Some((place.parent()?, name))
}

pub(super) fn is_whole(place: &Below) -> bool {
    let Some((job, name)) = place_of(place) else {
        return false;
    };
    let boot = job
        .open()
        .and_then(|job| job.read_text(&mark(&name), BOOT_BYTES));
    boot.is_ok_and(|boot| boot == boot_id()) && checkpoint_snapshot::resumable(place).is_ok()
}

pub(super) fn place_at(place: &Below, from: &str) -> io::Result<()> {
    let (job, name) = place_of(place).ok_or(io::ErrorKind::InvalidInput)?;
    let job = job.open()?;
    if place.open().is_ok() {
        fs::remove_dir_all(place.path())?;
    }
    job.rename(from, &name)?;
    job.write(&mark(&name), boot_id().as_bytes())
}

pub(super) fn keep(sealed: &Below, place: &Below) -> io::Result<()> {
    let path = sealed.path();
    let name = path.file_name().and_then(|name| name.to_str());
    match name {
        Some(name) if checkpoint_snapshot::is_sealed(name) => place_at(place, name),
        _ => Ok(()),
    }
}

/// Removes a job's cached checkpoints except the newest and the named. Blocking.
///
/// # Errors
/// Disk errors.
pub(super) fn remove_others(
    job: &Below,
    newest: usize,
    named: &BTreeSet<String>,
) -> io::Result<usize> {
    let folder = job.open()?;
    let mut found: Vec<_> = folder
        .entries()?
        .into_iter()
        .filter_map(|(name, entry)| {
            let parsed = Name::parse(&name)?;
            Some((Reverse((parsed.incarnation, entry.modified_ns)), name))
        })
        .collect();
    found.sort();
    let mut removed = 0;
    for (_, name) in found.into_iter().skip(newest) {
        if !named.contains(&name) {
            let _ = folder.remove(&mark(&name));
            fs::remove_dir_all(job.join(&name).path())?;
            removed += 1;
        }
    }
    Ok(removed)
}
