//! Snapshots: caches of a folded state on this machine, thrown away on any doubt.
//!
//! One file a fold, build, version and log: a checksum, the position, the state, compressed.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use dormouse_messages::Sequence;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

const LEVEL: i32 = 1;

/// A folder of snapshots of one fold.
#[derive(Debug, Clone)]
pub(crate) struct Snapshots {
    dir: PathBuf,
    stem: String,
    log: String,
}

#[derive(Serialize)]
struct Contents<'a, S> {
    log: &'a str,
    folded: Sequence,
    own_last: u64,
    state: &'a S,
}

#[derive(Deserialize)]
struct Loaded<S> {
    log: String,
    folded: Sequence,
    own_last: u64,
    state: S,
}

impl Snapshots {
    /// Snapshots of the fold `name` in `version`, made by `build` from the log `log`.
    pub fn new(dir: PathBuf, name: &str, version: u32, build: &str, log: String) -> Self {
        Self {
            dir,
            stem: format!("{name}-v{version}-{build}"),
            log,
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.join(format!("{}.snap", self.stem))
    }

    /// The newest snapshot: state, position, last own sequence. Anything doubtful is ignored.
    pub fn load<S: DeserializeOwned>(&self) -> Option<(S, Sequence, u64)> {
        let path = self.path();
        let bytes = fs::read(&path).ok()?;
        match self.decode(&bytes) {
            Ok(loaded) => Some(loaded),
            Err(why) => {
                tracing::warn!(path = %path.display(), why, "the snapshot is ignored and rebuilt");
                None
            }
        }
    }

    fn decode<S: DeserializeOwned>(&self, bytes: &[u8]) -> Result<(S, Sequence, u64), String> {
        let (checksum, packed) = bytes.split_at_checked(32).ok_or("it is cut off")?;
        if blake3::hash(packed).as_bytes() != checksum {
            return Err("its checksum is wrong".to_owned());
        }
        let plain = zstd::decode_all(packed).map_err(|error| error.to_string())?;
        let loaded: Loaded<S> = rmp_serde::from_slice(&plain).map_err(|error| error.to_string())?;
        if loaded.log != self.log || self.log.is_empty() {
            return Err("it is of another log".to_owned());
        }
        Ok((loaded.state, loaded.folded, loaded.own_last))
    }

    /// Saves a snapshot; compresses and writes on a thread of its own unless `wait`.
    pub fn save<S: Serialize>(&self, state: &S, folded: Sequence, own_last: u64, wait: bool) {
        let contents = Contents {
            log: &self.log,
            folded,
            own_last,
            state,
        };
        let plain = match rmp_serde::to_vec_named(&contents) {
            Ok(plain) => plain,
            Err(error) => {
                tracing::warn!(%error, "no snapshot: the state cannot be encoded");
                return;
            }
        };
        let (dir, path) = (self.dir.clone(), self.path());
        let write = move || {
            if let Err(error) = write(&dir, &path, &plain) {
                tracing::warn!(path = %path.display(), %error, "no snapshot: it cannot be written");
            }
        };
        if wait {
            write();
        } else {
            std::thread::spawn(write);
        }
    }
}

fn write(dir: &Path, path: &Path, plain: &[u8]) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let packed = zstd::encode_all(plain, LEVEL)?;
    let temporary = path.with_extension("new");
    let mut file = fs::File::create(&temporary)?;
    file.write_all(blake3::hash(&packed).as_bytes())?;
    file.write_all(&packed)?;
    file.sync_all()?;
    fs::rename(temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_reads_back_and_doubt_throws_it_away() {
        let dir = tempfile::tempdir().expect("a folder");
        let snapshots = |log: &str| Snapshots::new(dir.path().to_owned(), "toy", 1, "b", log.to_owned());
        let ours = snapshots("log-1");
        ours.save(&vec![1_u32, 2], Sequence(7), 5, true);
        assert_eq!(ours.load::<Vec<u32>>(), Some((vec![1, 2], Sequence(7), 5)));
        assert_eq!(snapshots("log-2").load::<Vec<u32>>(), None);
        let path = ours.path();
        let mut bytes = fs::read(&path).expect("read");
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&path, bytes).expect("write");
        assert_eq!(ours.load::<Vec<u32>>(), None);
    }
}
