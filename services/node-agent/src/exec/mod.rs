//! Programs that attached users run in containers (`job exec`), by bounded requests and replies.
//!
//! ```text
//! <prefix>.api.exec.<node>         starts a program and returns its number
//! <prefix>.api.exec_read.<node>    reads output from a byte on, or the exit
//! <prefix>.api.exec_write.<node>   sends input, a terminal size, or a signal
//! ```
//!
//! Tenants use `<prefix>.tenant.<tenant>.api.…`. Requests can be repeated, because bytes have offsets. A slow
//! reader blocks the program, and a program unread for [`UNHEARD`] is ended.

pub mod attached;
mod session;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix::prelude::*;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use dormouse_messages::events::ExecBy;
use dormouse_messages::{ContainerId, NodeId};
use dormouse_runtime::{Asked, Log, NodeAnswer};
use dormouse_sandbox::protocol::ExecExit;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::logs::{Stream, of_tenant, parsed, refused};
use attached::{Attached, Size, Terminal};
pub use session::{Session, UNHEARD};

/// Query that starts a program.
pub const EXEC: &str = "exec";
/// Query that reads a program's output.
pub const EXEC_READ: &str = "exec_read";
/// Query that writes a program's input.
pub const EXEC_WRITE: &str = "exec_write";

/// Limit on concurrent requests per node.
const WAITING: usize = 256;
/// The longest wait for more output, shorter than a request's timeout.
pub const WAIT: Duration = Duration::from_secs(3);
/// Limit on programs per node.
pub const MOST: usize = 32;
/// Limit on programs per tenant.
pub const MOST_OF_A_TENANT: usize = 8;
/// Limit on a command, because the log stores it.
pub const COMMAND_BYTES: usize = 16 << 10;
/// Limit on input bytes per request.
pub const WRITE_BYTES: usize = 64 << 10;

/// The request for a program in a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    pub container: ContainerId,
    pub command: Vec<String>,
    #[serde(default)]
    pub terminal: Option<Terminal>,
}

/// The answer to a started program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    pub exec: u64,
}

/// Reads a program's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Read {
    pub exec: u64,
    pub offset: u64,
    #[serde(default)]
    pub wait_ms: u32,
}

/// Sends input or control to a program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Write {
    pub exec: u64,
    #[serde(default)]
    pub offset: u64,
    #[serde(default)]
    pub bytes: String,
    #[serde(default)]
    pub is_last: bool,
    #[serde(default)]
    pub resize: Option<Size>,
    #[serde(default)]
    pub signal: Option<i32>,
}

/// The answer to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    pub next: u64,
}

/// A piece of a program's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub stream: Stream,
    pub next: u64,
    pub bytes: Bytes,
    pub ended: Option<ExecExit>,
}

const STREAM: &str = "Dormouse-Stream";
const NEXT: &str = "Dormouse-Next";
const ENDED: &str = "Dormouse-Ended";

impl From<Piece> for NodeAnswer {
    fn from(piece: Piece) -> Self {
        let mut headers = vec![
            (STREAM, piece.stream.name().to_owned()),
            (NEXT, piece.next.to_string()),
        ];
        let ended = piece.ended.and_then(|it| serde_json::to_string(&it).ok());
        headers.extend(ended.map(|ended| (ENDED, ended)));
        Self {
            headers,
            payload: piece.bytes,
        }
    }
}

impl Piece {
    /// Reads a received piece.
    ///
    /// # Errors
    /// The name of a missing or wrong header.
    pub fn received(
        header: impl Fn(&str) -> Option<String>,
        payload: Bytes,
    ) -> Result<Self, String> {
        let wrong = |name: &str| format!("its header {name} is missing or wrong");
        let next = header(NEXT).and_then(|next| next.parse().ok());
        let ended = header(ENDED).map(|text| serde_json::from_str(&text));
        Ok(Self {
            stream: match header(STREAM).as_deref() {
                Some("stdout") => Stream::Stdout,
                Some("stderr") => Stream::Stderr,
                _ => return Err(wrong(STREAM)),
            },
            next: next.ok_or_else(|| wrong(NEXT))?,
            bytes: payload,
            ended: ended.transpose().map_err(|_| wrong(ENDED))?,
        })
    }
}

/// A running program, and the receiver of its exit.
pub struct Opened {
    pub number: u64,
    pub attached: Attached,
    pub report: oneshot::Sender<ExecExit>,
}

type Refused = (String, String);

/// A request to run a program in a container.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ExecAsked {
    pub start: Start,
    pub by: ExecBy,
    pub answer: oneshot::Sender<Result<Opened, Refused>>,
}

#[derive(Default)]
struct Shared {
    sessions: BTreeMap<u64, Arc<Session>>,
    running: BTreeMap<String, usize>,
}

/// The programs of one node.
#[derive(Clone)]
pub struct Execs {
    node: NodeId,
    shared: Arc<Mutex<Shared>>,
    agent: mpsc::Sender<ExecAsked>,
}

/// A program's claim on the limits. Dropping the slot frees it.
pub struct Slot {
    tenant: String,
    shared: Arc<Mutex<Shared>>,
}

fn lock(shared: &Mutex<Shared>) -> std::sync::MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut shared = lock(&self.shared);
        let left = shared.running.get(&self.tenant).copied().unwrap_or(0);
        match left {
            0 | 1 => drop(shared.running.remove(&self.tenant)),
            _ => drop(shared.running.insert(self.tenant.clone(), left - 1)),
        }
    }
}

impl Execs {
    /// Creates the programs of a node. `agent` starts them.
    #[must_use]
    pub fn new(node: NodeId, agent: mpsc::Sender<ExecAsked>) -> Self {
        Self {
            node,
            shared: Arc::default(),
            agent,
        }
    }

    /// Answers requests until the connection closes.
    pub async fn serve(self, log: Log) {
        let node = self.node.clone();
        let answer = move |asked: Asked| {
            let execs = self.clone();
            async move { execs.answer(&asked).await }
        };
        let names = [EXEC, EXEC_READ, EXEC_WRITE];
        let served = log.serve_node(&node, &names, WAITING, answer);
        if let Err(error) = served.await {
            tracing::warn!(%node, %error, "no programs can be run in the containers of this node");
        }
    }

    /// Answers one request.
    ///
    /// # Errors
    /// A code for programs and a message for people.
    pub async fn answer(&self, asked: &Asked) -> Result<NodeAnswer, Refused> {
        let by = match asked.tenant {
            Some(_) => ExecBy::Tenant,
            None => ExecBy::Operator,
        };
        match asked.name.as_str() {
            EXEC => {
                let start: Start = parsed(asked)?;
                of_tenant(asked, &start.container.job)?;
                json(&self.start(start, by).await?)
            }
            EXEC_READ => {
                let read: Read = parsed(asked)?;
                let session = self.session(read.exec, asked, by)?;
                let wait = WAIT.min(Duration::from_millis(read.wait_ms.into()));
                let piece = session.read(read.offset, Instant::now() + wait).await;
                Ok(piece.into())
            }
            EXEC_WRITE => {
                let write: Write = parsed(asked)?;
                let session = self.session(write.exec, asked, by)?;
                let bytes = STANDARD
                    .decode(&write.bytes)
                    .ok()
                    .filter(|bytes| bytes.len() <= WRITE_BYTES)
                    .ok_or_else(|| {
                        let why = format!("bytes are at most {WRITE_BYTES}, in base 64");
                        refused("bad_request", why)
                    })?;
                let next = session.write(&write, &bytes, Instant::now() + WAIT).await;
                json(&Written { next })
            }
            other => Err(refused("unknown_query", format!("a node has no {other}"))),
        }
    }

    fn session(&self, exec: u64, asked: &Asked, by: ExecBy) -> Result<Arc<Session>, Refused> {
        let session = lock(&self.shared).sessions.get(&exec).cloned();
        let own = session
            .filter(|session| session.by == by && of_tenant(asked, &session.container.job).is_ok());
        let node = &self.node;
        own.ok_or_else(|| {
            let why = format!("{node} has no program {exec} of yours; it has ended and was read, nobody asked about it, or the agent was started again");
            refused("not_found", why)
        })
    }

    fn slot(&self, tenant: &str) -> Result<Slot, Refused> {
        let mut shared = lock(&self.shared);
        let own = shared.running.get(tenant).copied().unwrap_or(0);
        let (all, node) = (shared.running.values().sum::<usize>(), &self.node);
        if all >= MOST || own >= MOST_OF_A_TENANT {
            let why = format!(
                "{node} runs {own} programs for {tenant} and {all} in all; {MOST_OF_A_TENANT} and {MOST} are the most: end one first"
            );
            return Err(refused("busy", why));
        }
        shared.running.insert(tenant.to_owned(), own + 1);
        Ok(Slot {
            tenant: tenant.to_owned(),
            shared: Arc::clone(&self.shared),
        })
    }

    async fn start(&self, start: Start, by: ExecBy) -> Result<Started, Refused> {
        check(&start)?;
        let slot = self.slot(start.container.job.tenant())?;
        let whose = (start.container.clone(), by);
        let (answer, answered) = oneshot::channel();
        let asked = ExecAsked { start, by, answer };
        let leaves = || refused("unavailable", "the agent is on its way out");
        self.agent.send(asked).await.map_err(|_| leaves())?;
        let opened = answered.await.map_err(|_| leaves())??;
        let (exec, shared) = (opened.number, Arc::clone(&self.shared));
        let forget = move || drop(lock(&shared).sessions.remove(&exec));
        let session = Session::begin(whose, opened.attached, opened.report, slot, forget);
        lock(&self.shared).sessions.insert(exec, session);
        Ok(Started { exec })
    }
}

fn json(answer: &impl Serialize) -> Result<NodeAnswer, Refused> {
    let answer = serde_json::to_vec(answer).map_err(|error| refused("internal", error))?;
    Ok(NodeAnswer::plain(answer))
}

fn check(start: &Start) -> Result<(), Refused> {
    let bytes: usize = start.command.iter().map(String::len).sum();
    let kind = start.terminal.as_ref().and_then(|it| it.kind.as_deref());
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-+._".contains(c);
    let why = match (start.command.first(), kind) {
        (None, _) => "name a program to run".to_owned(),
        _ if bytes > COMMAND_BYTES => {
            format!(
                "the command has {bytes} bytes; {COMMAND_BYTES} are the most: pass it what is long by its standard input"
            )
        }
        (_, Some(kind)) if kind.len() > 64 || !kind.chars().all(is_name) => {
            "terminal.kind is a name such as xterm-256color".to_owned()
        }
        _ => return Ok(()),
    };
    Err(refused("bad_request", why))
}

#[cfg(test)]
mod tests;
