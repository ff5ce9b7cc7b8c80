//! What containers print, served to who asks: by requests and replies, each bounded.
//!
//! ```text
//! <prefix>.api.containers.<node>   which containers of a life were here, and how far they printed
//! <prefix>.api.logs.<node>         a piece of one stream of one container, from a byte on
//! ```
//!
//! Tenants ask the same under `<prefix>.tenant.<tenant>.api.…`, about their own containers only:
//! the tenant is that of the subject. Whoever reads asks for each piece, and says from which byte
//! of all that was ever printed. So a slow reader holds nothing but its own place, a reader that
//! lost its connection goes on where it was, and every stream comes in order. At the end of what is
//! there a request waits for more, a bounded time; [`WAITING`] of them may.

mod alive;
mod reading;

use std::time::Duration;

use dormouse_messages::{ContainerId, Incarnation, JobId, NodeId, Timestamp};
use dormouse_runtime::{Asked, Log, NodeAnswer};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::config::AgentConfig;
use crate::folder::{Below, aside_in_time};
use crate::layout::{Layout, STDERR, STDOUT};
use crate::tasks::TASKS;
pub use alive::Alive;
pub use reading::{Begin, Chunk};
use reading::{length, read};

/// Lists the containers of a life.
pub const CONTAINERS: &str = "containers";
/// Reads what one has printed.
pub const LOGS: &str = "logs";

/// The most that one answer carries: some milliseconds of a network, and a tenth of what the broker
/// lets wait for a client.
pub const CHUNK_BYTES: u32 = 256 << 10;
/// The longest wait for more: shorter than a request's own time-out.
pub const WAIT: Duration = Duration::from_secs(3);
/// Requests under way at a node at once; others are told to come again.
pub const WAITING: usize = 256;
/// Between two looks whether there is more: half of what a follower may be behind.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Which containers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContainersQuery {
    /// The job.
    pub job: JobId,
    /// Its partition's life.
    pub incarnation: Incarnation,
}

/// Those that are or were here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainersAnswer {
    /// The node.
    pub node: NodeId,
    /// By rank.
    pub containers: Vec<PrintedBy>,
}

/// How far a container has printed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrintedBy {
    /// The container.
    pub container: ContainerId,
    /// Whether it runs.
    pub running: bool,
    /// Bytes printed to the standard output, with those no longer kept.
    pub stdout_bytes: u64,
    /// Bytes printed to the standard error, with those no longer kept.
    pub stderr_bytes: u64,
}

/// Which piece of what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogsQuery {
    /// The container.
    pub container: ContainerId,
    /// Its stream.
    pub stream: Stream,
    /// From this byte of all that was ever printed; else from the first that is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// So many lines before the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<u32>,
    /// What was printed from this time on, to a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// At most so many bytes.
    #[serde(default = "chunk_bytes")]
    pub limit_bytes: u32,
    /// Where nothing is there yet, waits so long for it.
    #[serde(default)]
    pub wait_ms: u32,
}

const fn chunk_bytes() -> u32 {
    CHUNK_BYTES
}

/// One of a container's streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Both of one task of a task set.
    Task(u32),
}

impl Stream {
    fn at(self, container: &Below) -> (Below, String) {
        match self {
            Self::Stdout => (container.clone(), STDOUT.to_owned()),
            Self::Stderr => (container.clone(), STDERR.to_owned()),
            Self::Task(task) => (container.join(TASKS), task.to_string()),
        }
    }

    /// As people call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Task(_) => "output",
        }
    }
}

pub(crate) type Refused = (String, String);

/// What the containers of one node have printed.
#[derive(Debug, Clone)]
pub struct Printed {
    node: NodeId,
    layout: Layout,
    alive: Alive,
}

impl Printed {
    /// Of the node of `config`; `alive` are the containers that run there.
    #[must_use]
    pub fn new(config: &AgentConfig, alive: Alive) -> Self {
        Self {
            node: config.node.clone(),
            layout: config.layout(),
            alive,
        }
    }

    /// Answers until the connection is closed.
    pub async fn serve(self, log: &Log) {
        let node = self.node.clone();
        let answer = move |asked: Asked| {
            let printed = self.clone();
            async move { printed.answer(&asked).await }
        };
        let served = log.serve_node(&node, &[CONTAINERS, LOGS], WAITING, answer);
        if let Err(error) = served.await {
            tracing::warn!(%error, "what containers print here can only be read on this node");
        }
    }

    /// Answers one request.
    ///
    /// # Errors
    /// A code for programs and a message for people.
    pub async fn answer(&self, asked: &Asked) -> Result<NodeAnswer, Refused> {
        match asked.name.as_str() {
            CONTAINERS => {
                let query: ContainersQuery = parsed(asked)?;
                of_tenant(asked, &query.job)?;
                let answer = serde_json::to_vec(&self.containers(query).await?);
                let answer = answer.map_err(|error| refused("internal", error))?;
                Ok(NodeAnswer::plain(answer))
            }
            LOGS => {
                let query: LogsQuery = parsed(asked)?;
                of_tenant(asked, &query.container.job)?;
                self.chunk(query).await.map(Into::into)
            }
            other => Err(refused("unknown_query", format!("a node has no {other}"))),
        }
    }

    async fn containers(&self, query: ContainersQuery) -> Result<ContainersAnswer, Refused> {
        let (layout, alive, node) = (self.layout.clone(), self.alive.clone(), self.node.clone());
        let looked = aside_in_time(move || {
            let ranks = layout.ranks(&query.job, query.incarnation);
            let printed = |rank| {
                let container = ContainerId {
                    job: query.job.clone(),
                    incarnation: query.incarnation,
                    rank,
                };
                let below = layout.container_below(&container);
                let bytes = |stream: Stream| {
                    let (folder, name) = stream.at(&below);
                    length(&folder, &name)
                };
                PrintedBy {
                    running: alive.runs(&container),
                    stdout_bytes: bytes(Stream::Stdout),
                    stderr_bytes: bytes(Stream::Stderr),
                    container,
                }
            };
            ranks.into_iter().map(printed).collect()
        });
        let containers = looked.await.ok_or_else(|| self.hangs())?;
        Ok(ContainersAnswer { node, containers })
    }

    /// A piece, as soon as there is one, the container has ended or the wait is over.
    async fn chunk(&self, query: LogsQuery) -> Result<Chunk, Refused> {
        let below = self.layout.container_below(&query.container);
        let (folder, name) = query.stream.at(&below);
        let limit = query.limit_bytes.clamp(1, CHUNK_BYTES);
        let mut from = Begin::of(&query);
        let until = Instant::now() + WAIT.min(Duration::from_millis(query.wait_ms.into()));
        loop {
            // Asked first: what it printed before its end is there after it.
            let runs = self.alive.runs(&query.container);
            let (at, name) = (folder.clone(), name.clone());
            let looked = aside_in_time(move || read(&at, &name, from, limit)).await;
            let found = looked.ok_or_else(|| self.hangs())?;
            let mut chunk = found.map_err(|error| {
                let path = folder.path();
                refused(
                    "not_found",
                    format!("{} on {}: {error}", path.display(), self.node),
                )
            })?;
            chunk.is_last = !runs && chunk.bytes.is_empty();
            if !chunk.bytes.is_empty() || chunk.is_last || Instant::now() >= until {
                return Ok(chunk);
            }
            from = Begin::Byte(chunk.next);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn hangs(&self) -> Refused {
        let why = format!("the disk of {} does not answer; ask again later", self.node);
        refused("unavailable", why)
    }
}

pub(crate) fn refused(code: &str, why: impl std::fmt::Display) -> Refused {
    (code.to_owned(), why.to_string())
}

pub(crate) fn parsed<T: serde::de::DeserializeOwned>(asked: &Asked) -> Result<T, Refused> {
    serde_json::from_slice(&asked.request)
        .map_err(|error| refused("bad_request", format!("the request is wrong: {error}")))
}

/// A tenant asks about its own jobs.
pub(crate) fn of_tenant(asked: &Asked, job: &JobId) -> Result<(), Refused> {
    match &asked.tenant {
        Some(tenant) if tenant.as_str() != job.tenant() => {
            let why = format!("{tenant} has no job {job}; the query jobs lists those it has");
            Err(refused("not_found", why))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
