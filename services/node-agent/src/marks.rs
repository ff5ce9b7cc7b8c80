//! What the agent notes of its containers, where jobs cannot forge it.
//!
//! ```text
//! <data>/nodes/<node>/secret          the agent's own, drawn at random once
//! <data>/nodes/<node>/marks/<name>    one container: what was started and asked (a mark)
//! <data>/nodes/<node>/marks/<name>.copied   how far its output was copied from the engine
//! ```
//!
//! A mark decides whether a container is adopted, whether its exit counts as the platform's, and
//! which process is signalled. So it must not come from the job:
//!
//! - It lies in a folder of the agent's own; no path below it is ever told to a job, and no
//!   container of Docker sees it.
//! - Its name is a keyed hash of the container and its start request, so that it cannot be guessed
//!   from the job's own paths.
//! - Its last line is a keyed hash of the rest. A mark without it, or copied from another
//!   container's, is none.
//!
//! Why hashes and not permissions: as long as plain processes run as the agent's own user, no
//! permission holds a job back, and only one that seeks out and reads the secret gets through.
//! Once jobs have users of their own, the secret is unreadable to them and nothing here changes.
//!
//! Marks are small, are replaced whole, and go when the exit is on the log.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use dormouse_messages::{ContainerId, Sequence};

use crate::folder::{Below, Folder};
use crate::jupyter;
use crate::layout::Layout;
use crate::procfs::{self, Identity};

/// A mark is a few lines, and the longest of them is a reason.
const MARK_BYTES: u64 = 16 * 1024;

/// What of a reason is kept.
const REASON_CHARS: usize = 1_000;

/// The length of a hash, in hexadecimal digits.
const HASH_DIGITS: usize = 64;

/// What is noted of one container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The container.
    pub container: ContainerId,
    /// The start request that it was started for.
    pub request: Sequence,
    /// The plain-process runtime's: what was started.
    #[serde(default)]
    pub supervised: Option<Supervised>,
    /// It was asked to stop.
    #[serde(default)]
    pub is_stopped: bool,
    /// The last request to save that was passed on.
    #[serde(default)]
    pub asked: Option<Sequence>,
    /// Saving ends it.
    #[serde(default)]
    pub is_leaving: bool,
    /// Why the platform takes it away, if it does.
    #[serde(default)]
    pub evicted: Option<String>,
    /// The environment of its packages, among its tenant's.
    #[serde(default)]
    pub environment: Option<String>,
}

/// The process that stands for a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Supervised {
    /// The machine's boot: numbers and times mean nothing across it.
    pub boot: String,
    /// Its number.
    pub pid: u32,
    /// When it started, in ticks since the boot.
    pub started_ticks: u64,
    /// It is a keeper; else the shell that an earlier build gave to each container.
    #[serde(default)]
    pub is_keeper: bool,
}

/// How far was copied what a container of the engine prints: each stream by itself, since the engine
/// takes them so.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Noted")]
pub struct Copied {
    /// Its output.
    pub stdout: CopiedStream,
    /// Its errors.
    pub stderr: CopiedStream,
}

/// As it is noted, and as earlier builds did: with one place for both streams.
#[derive(Deserialize)]
#[serde(untagged)]
enum Noted {
    Apart {
        stdout: CopiedStream,
        stderr: CopiedStream,
    },
    Together {
        at: String,
        pieces: u64,
        stdout: u64,
        stderr: u64,
    },
}

impl From<Noted> for Copied {
    fn from(noted: Noted) -> Self {
        match noted {
            Noted::Apart { stdout, stderr } => Self { stdout, stderr },
            Noted::Together {
                at,
                pieces,
                stdout,
                stderr,
            } => {
                let stream = |bytes| CopiedStream {
                    at: at.clone(),
                    pieces,
                    bytes,
                };
                Self {
                    stdout: stream(stdout),
                    stderr: stream(stderr),
                }
            }
        }
    }
}

/// How far one stream was copied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedStream {
    /// When the engine took the last piece, in its own words, which sort as the times do.
    pub at: String,
    /// How many pieces of that very moment.
    pub pieces: u64,
    /// Bytes, all in all.
    pub bytes: u64,
}

/// The marks of one node.
#[derive(Debug, Clone)]
pub struct Marks {
    folder: Below,
    key: [u8; blake3::KEY_LEN],
}

impl Supervised {
    /// A keeper, of this boot.
    #[must_use]
    pub fn by_keeper(identity: Identity) -> Self {
        Self {
            boot: procfs::boot_id().to_owned(),
            pid: identity.pid,
            started_ticks: identity.started_ticks,
            is_keeper: true,
        }
    }

    /// The process, if it is of this boot.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        (self.boot == procfs::boot_id()).then_some(Identity {
            pid: self.pid,
            started_ticks: self.started_ticks,
        })
    }
}

impl Mark {
    /// Nothing but that it was requested.
    #[must_use]
    pub const fn new(container: ContainerId, request: Sequence) -> Self {
        Self {
            container,
            request,
            supervised: None,
            is_stopped: false,
            asked: None,
            is_leaving: false,
            evicted: None,
            environment: None,
        }
    }
}

impl Marks {
    /// The marks of a node; a node without a secret gets one. Blocking.
    ///
    /// # Errors
    /// The disk's.
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

    /// The token of a notebook whose job names none.
    #[must_use]
    pub fn token(&self, container: &ContainerId) -> String {
        jupyter::token(&self.key, container)
    }

    fn seal(&self, text: &str) -> blake3::Hash {
        blake3::keyed_hash(&self.key, format!("mark\n{text}").as_bytes())
    }

    fn read(&self, folder: &Folder, name: &str) -> Option<Mark> {
        let text = folder.read_text(name, MARK_BYTES).ok()?;
        let (text, seal) = text.trim_end().split_once('\n')?;
        // Compared in constant time by the library.
        let seal = blake3::Hash::from_hex(seal).ok()?;
        (self.seal(text) == seal).then_some(())?;
        let mark: Mark = serde_json::from_str(text).ok()?;
        (self.name(&mark.container, mark.request) == name).then_some(mark)
    }

    /// What is noted of a container that was started for `request`.
    #[must_use]
    pub fn get(&self, container: &ContainerId, request: Sequence) -> Option<Mark> {
        self.read(&self.folder.open().ok()?, &self.name(container, request))
    }

    /// Notes it.
    ///
    /// # Errors
    /// The disk's.
    pub fn put(&self, mark: &Mark) -> io::Result<()> {
        let mut mark = mark.clone();
        mark.evicted = mark
            .evicted
            .map(|why| why.chars().take(REASON_CHARS).collect());
        let text = serde_json::to_string(&mark)?;
        let sealed = format!("{text}\n{}\n", self.seal(&text).to_hex());
        let name = self.name(&mark.container, mark.request);
        self.folder.open()?.write(&name, sealed.as_bytes())
    }

    /// Changes what is noted. What a full disk forgets costs a second signal or a reason, no more.
    pub fn change(
        &self,
        container: &ContainerId,
        request: Sequence,
        change: impl FnOnce(&mut Mark),
    ) {
        let known = self.get(container, request);
        let mut mark = known.unwrap_or_else(|| Mark::new(container.clone(), request));
        change(&mut mark);
        if let Err(error) = self.put(&mark) {
            tracing::warn!(%container, %error, "cannot be noted in {}", self.folder.path().display());
        }
    }

    /// Every container that something is noted of. Blocking.
    ///
    /// # Errors
    /// The disk's.
    pub fn all(&self) -> io::Result<Vec<Mark>> {
        let folder = self.folder.open()?;
        let names = folder.names()?;
        let is_mark = |name: &&String| name.len() == HASH_DIGITS / 2;
        let marks = names.iter().filter(is_mark);
        Ok(marks.filter_map(|name| self.read(&folder, name)).collect())
    }

    /// How far its output was copied. A job can do nothing with a false one but lose its own output.
    #[must_use]
    pub fn copied(&self, container: &ContainerId, request: Sequence) -> Option<Copied> {
        let name = copied(&self.name(container, request));
        let text = self.folder.open().ok()?.read(&name, MARK_BYTES).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Notes it. What a full disk forgets is copied twice.
    pub fn note_copied(&self, container: &ContainerId, request: Sequence, now: &Copied) {
        let name = copied(&self.name(container, request));
        let text = serde_json::to_vec(now).map_err(io::Error::from);
        let noted = text.and_then(|text| self.folder.open()?.write(&name, &text));
        if let Err(error) = noted {
            tracing::warn!(%container, %error, "cannot be noted in {}", self.folder.path().display());
        }
    }

    /// The exit of a container is on the log: nothing of it is needed any more.
    pub fn remove(&self, container: &ContainerId, request: Sequence) {
        let name = self.name(container, request);
        if let Ok(folder) = self.folder.open() {
            let _ = folder.remove(&name);
            let _ = folder.remove(&copied(&name));
        }
    }

    /// Where a mark lies.
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

    fn marks(at: &tempfile::TempDir) -> Marks {
        let node = "n0".parse().expect("valid");
        let layout = Layout::new(at.path(), &at.path().join("checkpoints"), &node);
        Marks::open(&layout).expect("opened")
    }

    fn container(text: &str) -> ContainerId {
        text.parse().expect("valid")
    }

    #[test]
    fn what_an_earlier_build_has_copied_is_not_copied_again() {
        let noted = r#"{"at": "2026-01-01T00:00:02Z", "pieces": 1, "stdout": 7, "stderr": 3}"#;
        let copied: Copied = serde_json::from_str(noted).expect("read");
        let (stdout, stderr) = (&copied.stdout, &copied.stderr);
        assert_eq!((stdout.bytes, stderr.bytes), (7, 3));
        assert_eq!((&stdout.at, stderr.pieces), (&stderr.at, 1));
        let again = serde_json::to_string(&copied).expect("written");
        assert_eq!(
            serde_json::from_str::<Copied>(&again).expect("read"),
            copied
        );
    }

    #[test]
    fn a_mark_is_read_again_and_forgotten() {
        let at = tempfile::tempdir().expect("a folder");
        let (marks, own) = (marks(&at), container("ads/lr/1/0"));
        marks.change(&own, Sequence(7), |mark| {
            mark.evicted = Some("x".repeat(5_000_000));
        });
        // Another agent on the same folder: the secret is kept.
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
