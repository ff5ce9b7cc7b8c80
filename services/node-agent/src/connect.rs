//! The agent's connections to a real cluster: the log, the subjects that it writes, and its lease.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use dormouse_messages::{Build, Event, NodeId, Sequence, Writer};
use dormouse_runtime::{
    AppendError, Appender, Asked, Clock, Hold, Log, LogItem, NodeAnswer, RenewError, SystemClock,
    home,
};

use crate::AgentError;
use crate::config::AgentConfig;
use crate::exec::Execs;
use crate::jupyter::{TOKEN_QUERY, TokenQuery};
use crate::logs::Alive;
use crate::snapshot::AgentSnapshot;
use crate::store::Store;
use crate::wire::{Heard, Lease, LeaseError, Outlet, OutletError, TokenAsked, Wires};

const WAITING: usize = 1_024;

const ASKED: usize = 64;

/// Connects an agent to the cluster behind `log`. The agent continues from its last snapshot.
pub async fn wires(config: &AgentConfig, log: &Log) -> Result<Wires, AgentError> {
    let folder = config.layout().node().to_owned();
    let home = fs::create_dir_all(&folder).and_then(|()| home(&folder.join("home")));
    let home = home.map_err(|error| AgentError::Directory {
        path: folder,
        error,
    })?;
    let settings = config.checkpoint_store.as_ref();
    let checkpoints = settings
        .map(|it| Store::open(it, Handle::current()))
        .transpose()?;
    let kept = AgentSnapshot::load(config, log).await?;
    tracing::info!(node = %config.node, from = %kept.next(), "following the log");
    let (heard_tx, heard) = mpsc::channel(WAITING);
    tokio::spawn(hear(log.follow(kept.next()), heard_tx));
    let (ask, asked) = mpsc::channel(ASKED);
    tokio::spawn(answer(log.clone(), config.node.clone(), ask));
    let (ask, execs) = mpsc::channel(ASKED);
    tokio::spawn(Execs::new(config.node.clone(), ask).serve(log.clone()));
    let started = u64::try_from(SystemClock.now().as_micros()).unwrap_or(1);
    // The lease names the agent by its start time, above all its incarnations. A successor takes over at
    // once.
    let lease = log
        .leases()
        .hold_node(&config.node, started, home, config.fenced)
        .runs(Build::own(&config.build));
    let appender = log.appender(Writer::Node, Some(config.node.clone()));
    Ok(Wires {
        heard,
        outlet: Box::new(appender),
        lease: Some(Box::new(lease)),
        asked: Some(asked),
        execs: Some(execs),
        kept: Some(kept),
        alive: Alive::default(),
        code: Some(Arc::new(log.code())),
        checkpoints,
    })
}

async fn answer(log: Log, node: NodeId, ask: mpsc::Sender<TokenAsked>) {
    let served = log.serve_node(&node, &[TOKEN_QUERY], ASKED, move |asked: Asked| {
        let ask = ask.clone();
        async move { token(&asked, &ask).await.map(NodeAnswer::plain) }
    });
    if let Err(error) = served.await {
        tracing::warn!(%node, %error, "this agent cannot be asked for the tokens of its notebooks");
    }
}

async fn token(asked: &Asked, ask: &mpsc::Sender<TokenAsked>) -> Result<Vec<u8>, (String, String)> {
    let refused = |code: &str, why: String| (code.to_owned(), why);
    let query: TokenQuery = serde_json::from_slice(&asked.request)
        .map_err(|error| refused("bad_request", format!("the request is wrong: {error}")))?;
    let container = query.container;
    if let Some(tenant) = &asked.tenant
        && tenant.as_str() != container.job.tenant()
    {
        let why = format!("{tenant} has no notebook {}", container.job);
        return Err(refused("not_found", why));
    }
    let (answer, answered) = oneshot::channel();
    let leaves = || refused("unavailable", "the agent is on its way out".to_owned());
    ask.send(TokenAsked { container, answer })
        .await
        .map_err(|_| leaves())?;
    match answered.await {
        Ok(Ok(token)) => Ok(token.into_bytes()),
        Ok(Err(why)) => Err(refused("not_found", why)),
        Err(_) => Err(leaves()),
    }
}

async fn hear(mut followed: mpsc::Receiver<LogItem>, heard: mpsc::Sender<Heard>) {
    while let Some(followed) = followed.recv().await {
        let passed_on = match followed {
            LogItem::Event(recorded) => Heard::Event(recorded),
            LogItem::CaughtUp(sequence) => Heard::CaughtUp(sequence),
            LogItem::Flagged { .. } => continue,
        };
        if heard.send(passed_on).await.is_err() {
            return;
        }
    }
}

impl Outlet for Appender {
    fn append(
        &mut self,
        event: Event,
        causes: Vec<Sequence>,
    ) -> BoxFuture<'_, Result<Sequence, OutletError>> {
        async move {
            let appended = Self::append(self, event, &causes).await;
            appended.map_err(|error| match error {
                AppendError::Superseded { .. } => OutletError::Conflict(error.to_string()),
                AppendError::Denied { .. } => OutletError::Denied(error.to_string()),
                _ => OutletError::Refused(error.to_string()),
            })
        }
        .boxed()
    }
}

impl Lease for Hold {
    fn renew(&mut self, ttl: Duration) -> BoxFuture<'_, Result<(), LeaseError>> {
        async move {
            self.lasts(ttl);
            Self::renew(self).await.map_err(|error| match error {
                RenewError::Held { by, revision } => LeaseError::Held {
                    by: format!("{}, incarnation {}", by.holder, by.incarnation),
                    revision,
                },
                RenewError::Unanswered { why } => LeaseError::Unreachable(why),
            })
        }
        .boxed()
    }
}
