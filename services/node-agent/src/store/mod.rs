//! Checkpoints in an object store, for clusters without a shared file system.
//!
//! ```text
//! s3://bucket/prefix/<tenant>/<name>/<admitted>/<incarnation>-<SHA-256 of the manifest>/
//!     files/<path>        the job's files
//!     manifest.json       written last: each file with its size and digest
//! ```
//!
//! 1. An upload ([`upload`]) precedes `checkpoint.saved`. The digest of the manifest ([`manifest`]) protects
//!    against torn and overwritten uploads.
//! 2. Before a start the node fetches a checkpoint ([`fetch`]) into a cache (`cached`) valid within one
//!    boot.
//! 3. Unneeded checkpoints are removed ([`retain`]).
//!
//! An address with a digest needs no agreement on names among incarnations and clusters. NATS's object store
//! would send checkpoints through the brokers that order the log.
//!
//! All work runs on the runtime that opened the store.

mod cached;
pub mod fetch;
pub mod manifest;
pub mod retain;
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

use dormouse_bucket::{BucketSettings, SettingsError};
use dormouse_messages::Incarnation;

use crate::layout::JobFolder;

const MANIFEST: &str = "manifest.json";
const FILES: &str = "files";
const DIGITS: usize = 64;

/// The reason why a checkpoint was not stored or fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error(
        "the store of checkpoints {url}: {why}; see that the node reaches it, and the agent's credentials for it"
    )]
    Unanswered { url: String, why: String },
    #[error("{uri}: {why}")]
    Wrong { uri: String, why: String },
    #[error(
        "{0} was written to while it was stored; a job must not touch what it has saved before it is on the log"
    )]
    Changed(String),
    #[error("{what} {path}: {why}")]
    Disk {
        what: &'static str,
        path: PathBuf,
        why: String,
    },
    #[error(
        "the checkpoint {uri} is not in the store that this agent was given ({url}); start it with that --checkpoints"
    )]
    Elsewhere { uri: String, url: String },
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

/// A store for checkpoints. Clones share one store.
#[derive(Debug, Clone)]
pub struct Store {
    objects: Arc<dyn ObjectStore>,
    url: String,
    prefix: Path,
    runtime: Handle,
    fetching: Arc<Mutex<BTreeMap<PathBuf, Arc<tokio::sync::Mutex<()>>>>>,
}

/// A stored checkpoint's folder name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    pub incarnation: Incarnation,
    pub sha256: String,
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.incarnation, self.sha256)
    }
}

impl Name {
    /// Parses the name of a folder.
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

/// Work for the store. Dropping the task cancels it.
#[derive(Debug)]
pub struct Task<T>(JoinHandle<Result<T, StoreError>>);

impl<T> Task<T> {
    /// Waits for the outcome.
    ///
    /// # Errors
    /// The work's own errors.
    pub async fn outcome(mut self) -> Result<T, StoreError> {
        (&mut self.0).await.unwrap_or_else(|error| {
            Err(StoreError::Unanswered {
                url: "(this agent)".to_owned(),
                why: error.to_string(),
            })
        })
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| {
        Err(StoreError::Unanswered {
            url: "(this agent)".to_owned(),
            why: error.to_string(),
        })
    })
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Store {
    /// Opens a bucket without a request to it. `runtime` runs the store's work.
    ///
    /// # Errors
    /// If the settings are invalid.
    pub fn open(settings: &BucketSettings, runtime: Handle) -> Result<Self, SettingsError> {
        let bucket = settings.open()?;
        Self::over(bucket, &settings.url, runtime).map_err(|why| SettingsError::Store {
            url: settings.url.clone(),
            why,
        })
    }

    /// Creates a store over `objects`, with its work on `runtime`.
    ///
    /// # Errors
    /// If the URL's path is not a valid object path.
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

    /// Returns the store's URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the checkpoint's URI on the log.
    #[must_use]
    pub fn uri(&self, job: &JobFolder, name: &Name) -> String {
        format!("{}/{job}/{name}", self.url)
    }

    /// Parses a URI of this store and job.
    ///
    /// # Errors
    /// If the URI belongs to another store or job.
    pub fn named(&self, job: &JobFolder, uri: &str) -> Result<Name, StoreError> {
        let name = uri.rsplit('/').next().and_then(Name::parse);
        let named = name.filter(|name| self.uri(job, name) == uri);
        named.ok_or_else(|| StoreError::Elsewhere {
            uri: uri.to_owned(),
            url: self.url.clone(),
        })
    }

    fn of_job(&self, job: &JobFolder) -> Path {
        let way = job.to_string();
        let steps = way.split('/');
        steps.fold(self.prefix.clone(), |at, step| at.join(step))
    }

    fn folder(&self, job: &JobFolder, name: &Name) -> Path {
        self.of_job(job).join(name.to_string())
    }

    fn manifest(folder: &Path) -> Path {
        folder.clone().join(MANIFEST)
    }

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

impl Store {
    fn turn(&self, place: &FilePath) -> Arc<tokio::sync::Mutex<()>> {
        let mut fetching = self.fetching.lock().unwrap_or_else(PoisonError::into_inner);
        fetching.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(fetching.entry(place.to_owned()).or_default())
    }
}
