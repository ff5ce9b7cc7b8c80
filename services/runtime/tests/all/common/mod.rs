//! Shared test tools: a broker, events, waiting. `chatty`, `intake`, `toy`: deciders; `collector`: traces;
//! `trio`: a cluster.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod chatty;
pub mod collector;
pub mod intake;
pub mod toy;
pub mod trio;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use dormouse_messages::events::NodeDrained;
use dormouse_messages::{Event, Recorded, Sequence};
use dormouse_runtime::{BrokerConfig, LocalBroker, Log, LogItem, Settings};
use tokio::sync::mpsc::Receiver;

/// A longer wait is a hang.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A broker in its own directory.
pub struct Broker {
    pub broker: LocalBroker,
    pub dir: tempfile::TempDir,
}

impl Broker {
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut BrokerConfig)) -> Self {
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer()
            .try_init();
        let dir = tempfile::tempdir().expect("a directory");
        let mut config = BrokerConfig::new(dir.path().join("broker"));
        change(&mut config);
        let broker = LocalBroker::start(config).await.expect("the broker runs");
        Self { broker, dir }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub async fn client(&self) -> async_nats::Client {
        async_nats::connect(self.broker.url())
            .await
            .expect("connects")
    }

    /// Kills the broker; its supervisor delays repeated restarts.
    pub fn kill(&self) {
        self.signal(Signal::SIGKILL);
    }

    /// Signals the broker, once it runs.
    pub fn signal(&self, signal: Signal) {
        let started = std::time::Instant::now();
        loop {
            let pid = i32::try_from(self.broker.pid()).expect("a pid");
            match kill(Pid::from_raw(pid), signal) {
                Ok(()) => return,
                Err(error) => assert!(started.elapsed() < PATIENCE, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub async fn log(&self) -> Log {
        let log = Log::connect(&Settings::new(self.broker.url(), "test"))
            .await
            .expect("connects");
        log.ensure_streams().await.expect("streams");
        log
    }
}

/// An operator event, distinguished by `number`.
pub fn drained(number: u64) -> Event {
    Event::from(NodeDrained {
        node: format!("n{number}").parse().expect("a name"),
        reason: None,
        deadline_s: None,
    })
}

pub async fn next_event(followed: &mut Receiver<LogItem>) -> Arc<Recorded> {
    tokio::time::timeout(PATIENCE, async {
        loop {
            match followed.recv().await.expect("the log goes on") {
                LogItem::Event(recorded) => return recorded,
                LogItem::Flagged { .. } | LogItem::CaughtUp(_) => {}
            }
        }
    })
    .await
    .expect("an event in time")
}

/// Reads the whole log, again after a change of leaders.
pub async fn everything(log: &Log) -> Vec<LogItem> {
    let whole = async {
        loop {
            if let Some(all) = try_everything(log).await {
                return all;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let whole = tokio::time::timeout(2 * PATIENCE, whole).await;
    whole.expect("readable")
}

async fn try_everything(log: &Log) -> Option<Vec<LogItem>> {
    let mut all = Vec::new();
    log.head().await.ok()?;
    let read = log.read(log.first(), Sequence(u64::MAX)).await;
    let mut read = read.ok()?;
    while let Some(followed) = read.recv().await {
        all.push(followed);
    }
    matches!(all.pop(), Some(LogItem::CaughtUp(_))).then_some(all)
}

pub async fn fold_everything(log: &Log) -> toy::ToyState {
    use dormouse_messages::Fold;
    let mut state = toy::ToyState::default();
    for followed in everything(log).await {
        if let LogItem::Event(recorded) = followed {
            state.evolve(&recorded);
        }
    }
    state
}
