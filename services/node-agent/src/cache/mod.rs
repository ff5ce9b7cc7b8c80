//! Data that a node makes once and keeps: jobs' unpacked folders and environments of packages. [`prune`]
//! removes unused data.

pub mod prune;

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Timespec, Timestamps, UTIME_NOW};

const BOOT: &str = "boot";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Opens a cache. Empties it after a reboot, because a crash may have torn its files. Blocking.
///
/// # Errors
/// Disk errors.
pub fn open(folder: &Path) -> io::Result<()> {
    let boot = fs::read_to_string(BOOT_ID).unwrap_or_default();
    let known = fs::read_to_string(folder.join(BOOT)).unwrap_or_default();
    if !boot.is_empty() && boot == known {
        return Ok(());
    }
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::create_dir_all(folder)?;
    fs::write(folder.join(BOOT), boot)
}

/// Reports whether `place` exists, and marks it as used.
#[must_use]
pub fn used(place: &Path) -> bool {
    fs::File::open(place).is_ok_and(|folder| touch(&folder))
}

/// Marks an open file or folder as used.
pub fn touch(file: impl AsFd) -> bool {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let times = Timestamps {
        last_access: now,
        last_modification: now,
    };
    let _ = rustix::fs::futimens(file, &times);
    true
}

type Making = Arc<tokio::sync::Mutex<()>>;

/// A lock per place for data under construction.
#[derive(Debug, Default)]
pub struct OneAtATime(Mutex<BTreeMap<PathBuf, Making>>);

impl OneAtATime {
    /// Waits for exclusive access to `place`, then runs `work`.
    pub async fn alone<T>(&self, place: &Path, work: impl Future<Output = T>) -> T {
        let making = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(all.entry(place.to_owned()).or_default())
        };
        let _forget = Forget { all: self, place };
        let _alone = making.lock().await;
        work.await
    }
}

struct Forget<'a> {
    all: &'a OneAtATime,
    place: &'a Path,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        let mut all = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all
            .get(self.place)
            .is_some_and(|it| Arc::strong_count(it) <= 2)
        {
            all.remove(self.place);
        }
    }
}
