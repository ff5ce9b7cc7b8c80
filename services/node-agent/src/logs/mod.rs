//! Serves containers' output by bounded requests and replies.
//!
//! ```text
//! <prefix>.api.containers.<node>   lists an incarnation's containers and the length of their output
//! <prefix>.api.logs.<node>         reads a piece of one stream of one container
//! ```
//!
//! Tenants use `<prefix>.tenant.<tenant>.api.…` for their own containers. Readers name offsets in the whole
//! output, so slow readers hold no state and reconnected ones continue. At the end up to [`WAITING`] requests
//! wait a bounded time.

mod alive;
mod reading;

use std::time::Duration;

use dormouse_messages::{ContainerId, Incarnation, JobId, NodeId, Timestamp};
use dormouse_runtime::{Asked, Log, NodeAnswer};
use dormouse_sandbox::folder::Below;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::blocking::aside_in_time;
use crate::config::AgentConfig;
use crate::layout::{Layout, STDERR, STDOUT, TASKS};
pub use alive::Alive;
pub use reading::{Begin, Chunk};
use reading::{length, read};

/// Query for an incarnation's containers.
pub const CONTAINERS: &str = "containers";
/// Query for a piece of output.
pub const LOGS: &str = "logs";

/// Milliseconds on a network, and a tenth of the broker's buffer per client.
pub const CHUNK_BYTES: u32 = 256 << 10;
/// The longest wait for more output, shorter than a request's timeout.
pub const WAIT: Duration = Duration::from_secs(3);
/// Limit on concurrent requests per node.
pub const WAITING: usize = 256;
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A query for an incarnation's containers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContainersQuery {
    pub job: JobId,
    pub incarnation: Incarnation,
}

/// The containers that run or ran on the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainersAnswer {
    pub node: NodeId,
    pub containers: Vec<PrintedBy>,
}

/// The length of a container's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrintedBy {
    pub container: ContainerId,
    pub running: bool,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
}

/// A query for a piece of output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogsQuery {
    pub container: ContainerId,
    pub stream: Stream,
    /// First byte, counted over the whole output. Default: the first byte kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<u32>,
    /// Output since this time, to a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    #[serde(default = "chunk_bytes")]
    pub limit_bytes: u32,
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
    Stdout,
    Stderr,
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

    /// Returns the stream's name for people.
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

/// The output of one node's containers.
#[derive(Debug, Clone)]
pub struct Printed {
    node: NodeId,
    layout: Layout,
    alive: Alive,
}

impl Printed {
    /// Creates the output of the node of `config`, with the running containers `alive`.
    #[must_use]
    pub fn new(config: &AgentConfig, alive: Alive) -> Self {
        Self {
            node: config.node.clone(),
            layout: config.layout(),
            alive,
        }
    }

    /// Answers requests until the connection closes.
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

    async fn chunk(&self, query: LogsQuery) -> Result<Chunk, Refused> {
        let below = self.layout.container_below(&query.container);
        let (folder, name) = query.stream.at(&below);
        let limit = query.limit_bytes.clamp(1, CHUNK_BYTES);
        let mut from = Begin::of(&query);
        let until = Instant::now() + WAIT.min(Duration::from_millis(query.wait_ms.into()));
        loop {
            // Ask first, so that the final output is complete.
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
