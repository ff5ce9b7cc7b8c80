//! The agent's container records (marks), which jobs cannot forge. They decide on adoption, blame and
//! signals.
//!
//! ```text
//! <data>/nodes/<node>/secret          the agent's random key
//! <data>/nodes/<node>/marks/<name>    one container's record
//! <data>/nodes/<node>/marks/<name>.copied   position of the copied output
//! ```
//!
//! - A mark without a valid keyed hash in its last line is ignored. Its name is a keyed hash too.
//! - Permissions do not suffice, because plain processes may run as the agent's user.
//! - Marks are replaced whole, and removed when the exit is on the log.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use dormouse_messages::{ContainerId, Sequence};
use dormouse_sandbox::folder::{Below, Folder};
use dormouse_sandbox::supervisor::Supervised;

use crate::jupyter;
use crate::layout::{JobFolder, Layout};

/// Limit on a mark's bytes. The longest line is a reason.
const MARK_BYTES: u64 = 16 * 1024;

const REASON_CHARS: usize = 1_000;

const HASH_DIGITS: usize = 64;

/// The record of one container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerRecord {
    pub container: ContainerId,
    pub request: Sequence,
    /// The admission of its job, which names its folder of checkpoints.
    pub admitted: Sequence,
    /// The supervisor that holds the container.
    pub supervised: Option<Supervised>,
    pub is_stopped: bool,
    pub asked: Option<Sequence>,
    pub is_leaving: bool,
    pub evicted: Option<String>,
    pub environment: Option<String>,
}

/// The position of copied output, per stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    pub stdout: CopiedStream,
    pub stderr: CopiedStream,
}

/// The position of one copied stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedStream {
    /// The engine's time of the last piece, which sorts as text.
    pub at: String,
    pub pieces: u64,
    pub bytes: u64,
}

/// The container records of one node.
#[derive(Debug, Clone)]
pub struct ContainerRecords {
    folder: Below,
    key: [u8; blake3::KEY_LEN],
}

impl ContainerRecord {
    /// Creates an empty record.
    #[must_use]
    pub const fn new(container: ContainerId, request: Sequence) -> Self {
        Self {
            container,
            request,
            admitted: Sequence(0),
            supervised: None,
            is_stopped: false,
            asked: None,
            is_leaving: false,
            evicted: None,
            environment: None,
        }
    }

    /// Returns the record of a container of the job admitted at `admitted`.
    #[must_use]
    pub fn of(self, admitted: Sequence) -> Self {
        Self { admitted, ..self }
    }

    /// Returns the folder of the job's checkpoints.
    #[must_use]
    pub fn folder(&self) -> JobFolder {
        JobFolder::new(self.container.job.clone(), self.admitted)
    }
}

impl ContainerRecords {
    /// Opens a node's records, and creates the secret if it is missing. Blocking.
    ///
    /// # Errors
    /// Disk errors.
    pub fn open(layout: &Layout) -> io::Result<Self> {
        let node = Below::new(layout.node().to_owned(), "").make()?;
        let found = match node.read("secret", blake3::KEY_LEN as u64) {
            Ok(bytes) => <[u8; blake3::KEY_LEN]>::try_from(bytes).ok(),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let mut marks = Self {
            folder: Below::new(layout.node().to_owned(), "marks"),
            key: found.unwrap_or_default(),
        };
        marks.folder.make()?;
        if found.is_none() {
            File::open("/dev/urandom")?.read_exact(&mut marks.key)?;
            node.write_private("secret", &marks.key)?;
        }
        Ok(marks)
    }

    fn name(&self, container: &ContainerId, request: Sequence) -> String {
        let name = format!("{container}@{request}");
        let hash = blake3::keyed_hash(&self.key, name.as_bytes());
        hash.to_hex()[..HASH_DIGITS / 2].to_owned()
    }

    /// Derives the token of a notebook whose job has no token.
    #[must_use]
    pub fn token(&self, container: &ContainerId, admitted: Sequence) -> String {
        jupyter::token(&self.key, container, admitted)
    }

    fn seal(&self, text: &str) -> blake3::Hash {
        blake3::keyed_hash(&self.key, format!("mark\n{text}").as_bytes())
    }

    fn read(&self, folder: &Folder, name: &str) -> Option<ContainerRecord> {
        let text = folder.read_text(name, MARK_BYTES).ok()?;
        let (text, seal) = text.trim_end().split_once('\n')?;
        // The library compares in constant time.
        let seal = blake3::Hash::from_hex(seal).ok()?;
        (self.seal(text) == seal).then_some(())?;
        let mark: ContainerRecord = serde_json::from_str(text).ok()?;
        (self.name(&mark.container, mark.request) == name).then_some(mark)
    }

    /// Returns the record of a container started for `request`.
    #[must_use]
    pub fn get(&self, container: &ContainerId, request: Sequence) -> Option<ContainerRecord> {
        self.read(&self.folder.open().ok()?, &self.name(container, request))
    }

    /// Writes a record.
    ///
    /// # Errors
    /// Disk errors.
    pub fn put(&self, mark: &ContainerRecord) -> io::Result<()> {
        let mut mark = mark.clone();
        mark.evicted = mark
            .evicted
            .map(|why| why.chars().take(REASON_CHARS).collect());
        let text = serde_json::to_string(&mark)?;
        let sealed = format!("{text}\n{}\n", self.seal(&text).to_hex());
        let name = self.name(&mark.container, mark.request);
        self.folder.open()?.write(&name, sealed.as_bytes())
    }

    /// Changes a record. A failure costs only a second signal or a reason.
    pub fn change(
        &self,
        container: &ContainerId,
        request: Sequence,
        change: impl FnOnce(&mut ContainerRecord),
    ) {
        let known = self.get(container, request);
        let mut mark = known.unwrap_or_else(|| ContainerRecord::new(container.clone(), request));
        change(&mut mark);
        if let Err(error) = self.put(&mark) {
            tracing::warn!(%container, %error, "cannot be noted in {}", self.folder.path().display());
        }
    }

    /// Returns all valid records. Blocking.
    ///
    /// # Errors
    /// Disk errors.
    pub fn all(&self) -> io::Result<Vec<ContainerRecord>> {
        let folder = self.folder.open()?;
        let names = folder.names()?;
        let is_mark = |name: &&String| name.len() == HASH_DIGITS / 2;
        let marks = names.iter().filter(is_mark);
        Ok(marks.filter_map(|name| self.read(&folder, name)).collect())
    }

    /// Returns the position of copied output, without a hash: forging only loses the job's output.
    #[must_use]
    pub fn copied(&self, container: &ContainerId, request: Sequence) -> Option<Copied> {
        let name = copied(&self.name(container, request));
        let text = self.folder.open().ok()?.read(&name, MARK_BYTES).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Records the position of copied output. A failure only repeats output.
    pub fn note_copied(&self, container: &ContainerId, request: Sequence, now: &Copied) {
        let name = copied(&self.name(container, request));
        let text = serde_json::to_vec(now).map_err(io::Error::from);
        let noted = text.and_then(|text| self.folder.open()?.write(&name, &text));
        if let Err(error) = noted {
            tracing::warn!(%container, %error, "cannot be noted in {}", self.folder.path().display());
        }
    }

    /// Removes a record whose exit is on the log.
    pub fn remove(&self, container: &ContainerId, request: Sequence) {
        let name = self.name(container, request);
        if let Ok(folder) = self.folder.open() {
            let _ = folder.remove(&name);
            let _ = folder.remove(&copied(&name));
        }
    }

    /// Returns the path of a record.
    #[must_use]
    pub fn path(&self, container: &ContainerId, request: Sequence) -> PathBuf {
        let path = self.folder.path().join(self.name(container, request));
        std::path::absolute(&path).unwrap_or(path)
    }
}

fn copied(name: &str) -> String {
    format!("{name}.copied")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn marks(at: &tempfile::TempDir) -> ContainerRecords {
        let node = "n0".parse().expect("valid");
        let layout = Layout::new(at.path(), &at.path().join("checkpoints"), &node);
        ContainerRecords::open(&layout).expect("opened")
    }

    fn container(text: &str) -> ContainerId {
        text.parse().expect("valid")
    }

    #[test]
    fn a_mark_is_read_again_and_forgotten() {
        let at = tempfile::tempdir().expect("a folder");
        let (marks, own) = (marks(&at), container("ads/lr/1/0"));
        marks.change(&own, Sequence(7), |mark| {
            mark.evicted = Some("x".repeat(5_000_000));
        });
        let again = self::marks(&at);
        let found = again.get(&own, Sequence(7)).expect("noted");
        assert_eq!(found.evicted.map(|why| why.len()), Some(REASON_CHARS));
        assert_eq!(again.get(&own, Sequence(8)), None);
        again.remove(&own, Sequence(7));
        assert_eq!(again.all().expect("listed"), []);
    }

    #[test]
    fn a_forged_mark_and_a_copied_one_are_none() {
        let at = tempfile::tempdir().expect("a folder");
        let (marks, own, other) = (marks(&at), container("ads/lr/1/0"), container("x/y/1/0"));
        for container in [&own, &other] {
            marks.change(container, Sequence(7), |_| {});
        }
        let path = |of| marks.path(of, Sequence(7));
        fs::copy(path(&other), path(&own)).expect("copied");
        assert_eq!(marks.get(&own, Sequence(7)), None);
        let text = fs::read_to_string(path(&other)).expect("read");
        let forged = text.replace("\"evicted\":null", "\"evicted\":\"mine\"");
        assert_ne!(forged, text);
        fs::write(path(&other), forged).expect("written");
        assert_eq!(marks.get(&other, Sequence(7)), None);
    }
}
