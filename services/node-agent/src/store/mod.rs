//! Checkpoints in an object store, for clusters without a shared file system.
//!
//! ```text
//! s3://bucket/prefix/<tenant>/<name>/<incarnation>-<SHA-256 of the manifest>/
//!     files/<path>        what the job saved
//!     manifest.json       written last: each file with its size and digest
//! ```
//!
//! 1. A complete checkpoint is uploaded ([`upload`]) before the log hears of it: `checkpoint.saved`
//!    means stored and checked. Its folder's name is the digest of its manifest, and the manifest has
//!    those of the files. So an upload that was torn is never believed, one that is done again finds
//!    what is there already, and no other life and no other cluster can write over it.
//! 2. Before a start the node has it fetched ([`fetch`]), once for all its containers, into a cache
//!    that is believed within one life of the kernel. What was saved here is there already.
//! 3. What nobody needs goes, from the store and from the caches ([`retain`]).
//!
//! The agent's actor does none of it: it runs on the tasks and threads of the runtime that opened the
//! store, and hears the outcome.

pub mod fetch;
pub mod manifest;
pub mod retain;
pub mod settings;
pub mod upload;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use object_store::ObjectStore;
use object_store::path::{Path, PathPart};
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use dormouse_messages::{Incarnation, JobId};

use crate::folder::Below;
use crate::layout::Layout;

/// What makes an upload whole.
const MANIFEST: &str = "manifest.json";
/// Where its files are.
const FILES: &str = "files";
/// Digits of a digest.
const DIGITS: usize = 64;

/// Why a checkpoint is not stored, or not had from the store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store does not do it; another node, or another time, may be well.
    #[error(
        "the store of checkpoints {url}: {why}; see that the node reaches it, and the agent's credentials for it"
    )]
    Unanswered {
        /// The store.
        url: String,
        /// What it says.
        why: String,
    },
    /// What is there is not what was saved, or nothing is there.
    #[error("{uri}: {why}")]
    Wrong {
        /// The checkpoint.
        uri: String,
        /// What is wrong.
        why: String,
    },
    /// A file was written to after the checkpoint was complete.
    #[error(
        "{0} was written to while it was stored; a job must not touch what it has saved before it is on the log"
    )]
    Changed(String),
    /// This node's disk.
    #[error("{what} {path}: {why}")]
    Disk {
        /// What was tried.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// What the kernel says.
        why: String,
    },
    /// The checkpoint lies in another store.
    #[error(
        "the checkpoint {uri} is not in the store that this agent was given ({url}); start it with that --checkpoints"
    )]
    Elsewhere {
        /// The checkpoint.
        uri: String,
        /// The agent's store.
        url: String,
    },
}

impl StoreError {
    fn disk(what: &'static str, path: &FilePath, error: &std::io::Error) -> Self {
        Self::Disk {
            what,
            path: path.to_owned(),
            why: error.to_string(),
        }
    }
}

/// A place for checkpoints. Clones are of one store.
#[derive(Debug, Clone)]
pub struct Store {
    objects: Arc<dyn ObjectStore>,
    /// As the operator wrote it, without a slash at its end.
    url: String,
    prefix: Path,
    /// Where its work is done.
    runtime: Handle,
    /// One fetch at a time of each.
    fetching: Arc<Mutex<BTreeMap<PathBuf, Arc<tokio::sync::Mutex<()>>>>>,
}

/// A folder of the store: one checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// The life that saved it.
    pub incarnation: Incarnation,
    /// The digest of its manifest.
    pub sha256: String,
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.incarnation, self.sha256)
    }
}

impl Name {
    /// A folder's name, if it is one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (incarnation, sha256) = text.split_once('-')?;
        let is_digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        let whole = sha256.len() == DIGITS && sha256.bytes().all(is_digit);
        let incarnation = incarnation.parse().ok()?;
        let name = Self {
            incarnation: Incarnation(incarnation),
            sha256: sha256.to_owned(),
        };
        (whole && name.to_string() == text).then_some(name)
    }
}

/// Work for the store, which ends when nobody waits for it any more.
#[derive(Debug)]
pub struct Task<T>(JoinHandle<Result<T, StoreError>>);

impl<T> Task<T> {
    /// Its outcome.
    ///
    /// # Errors
    /// Its own.
    pub async fn outcome(mut self) -> Result<T, StoreError> {
        (&mut self.0).await.unwrap_or_else(|error| {
            Err(StoreError::Unanswered {
                url: "(this agent)".to_owned(),
                why: error.to_string(),
            })
        })
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Store {
    /// A store over `objects`; what it does is done by `runtime`.
    ///
    /// # Errors
    /// When the URL's path cannot be one of objects.
    pub fn over(objects: Arc<dyn ObjectStore>, url: &str, runtime: Handle) -> Result<Self, String> {
        let url = url.trim_end_matches('/').to_owned();
        let way = url.split_once("://").map_or("", |(_, rest)| rest);
        let prefix = way.split_once('/').map_or("", |(_, prefix)| prefix);
        let prefix = Path::parse(prefix).map_err(|error| format!("{url}: {error}"))?;
        Ok(Self {
            objects,
            url,
            prefix,
            runtime,
            fetching: Arc::default(),
        })
    }

    /// As the operator named it.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What the log names a checkpoint by.
    #[must_use]
    pub fn uri(&self, job: &JobId, name: &Name) -> String {
        format!("{}/{job}/{name}", self.url)
    }

    /// The checkpoint that the log names, if it lies here and is this job's.
    ///
    /// # Errors
    /// When it does not.
    pub fn named(&self, job: &JobId, uri: &str) -> Result<Name, StoreError> {
        let name = uri.rsplit('/').next().and_then(Name::parse);
        let name = name.filter(|name| self.uri(job, name) == uri);
        name.ok_or_else(|| StoreError::Elsewhere {
            uri: uri.to_owned(),
            url: self.url.clone(),
        })
    }

    fn of_job(&self, job: &JobId) -> Path {
        let steps = job.as_str().split('/');
        steps.fold(self.prefix.clone(), |at, step| at.join(step))
    }

    fn folder(&self, job: &JobId, name: &Name) -> Path {
        self.of_job(job).join(name.to_string())
    }

    fn manifest(folder: &Path) -> Path {
        folder.clone().join(MANIFEST)
    }

    /// A file's object: names that the store cannot have are written otherwise, each in one way.
    fn file(folder: &Path, way: &str) -> Path {
        let steps = way.split('/').map(PathPart::from);
        steps.fold(folder.clone().join(FILES), Path::join)
    }

    fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Task<T> {
        Task(self.runtime.spawn(work))
    }

    fn unanswered(&self, error: &object_store::Error) -> StoreError {
        StoreError::Unanswered {
            url: self.url.clone(),
            why: in_words(error),
        }
    }
}

/// What an error of the library says, without the addresses of requests, and on one line.
fn in_words(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            let _ = write!(text, ": {more}");
        }
        source = error.source();
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(500).collect()
}

fn hexadecimal(digest: &[u8]) -> String {
    digest.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn digest(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// Where a node keeps a checkpoint of the store.
#[must_use]
pub fn cached(layout: &Layout, job: &JobId, name: &Name) -> Below {
    layout.checkpoints_below(job).join(name.to_string())
}

/// Whether a URI is a store's, not a folder's.
#[must_use]
pub fn is_stored(uri: &str) -> bool {
    uri.split_once("://")
        .is_some_and(|(scheme, _)| scheme != "file")
}

impl Store {
    fn turn(&self, place: &FilePath) -> Arc<tokio::sync::Mutex<()>> {
        let mut fetching = self.fetching.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that nobody waits for.
        fetching.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(fetching.entry(place.to_owned()).or_default())
    }
}
