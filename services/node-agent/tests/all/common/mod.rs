//! The services' events, and an agent on a log in memory (`fake_log.rs`).

mod fake_log;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dormouse_messages::events::*;
use dormouse_messages::job::{Command, JobSpec, Kind, Tasks};
use dormouse_messages::service::{Resize, Service};
use dormouse_messages::{
    ContainerId, Envelope, Event, Incarnation, JobId, NodeId, Rank, Recorded, Sequence, Timestamp,
};
use dormouse_node_agent::code::CodeSource;
use dormouse_node_agent::exec::{ExecAsked, Execs};
use dormouse_node_agent::layout::JobFolder;
use dormouse_node_agent::store::Store;
use dormouse_node_agent::wire::{Lease, Wires};
use dormouse_node_agent::{AgentConfig, AgentError, logs_path, run_wired};
use dormouse_runtime::{BrokerConfig, LocalBroker, Log, Settings};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};

pub use fake_log::FakeLog;

pub const NODE: &str = "n0";

/// Reports a skipped test; fails if `DORMOUSE_NO_SKIP=1`.
#[track_caller]
pub fn skipped(why: &str) {
    let text = format!("SKIPPED: {why}");
    assert!(
        std::env::var("DORMOUSE_NO_SKIP").as_deref() != Ok("1"),
        "{text}"
    );
    eprintln!("{text}");
}

/// `None`, reported, without a nats-server.
pub async fn broker() -> Option<(TempDir, LocalBroker, Log)> {
    if BrokerConfig::find_binary().is_none() {
        skipped("no nats-server; run scripts/install.sh nats");
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let broker = LocalBroker::start(BrokerConfig::new(folder.path().join("broker"))).await;
    let broker = broker.expect("the broker runs");
    let log = Log::connect(&Settings::new(broker.url(), "test"))
        .await
        .expect("connects");
    log.ensure_streams().await.expect("streams");
    Some((folder, broker, log))
}

pub async fn append(log: &Log, event: Event) {
    let mut appender = log.appender(event.writers()[0], None);
    appender.append(event, &[]).await.expect("appended");
}

pub fn node() -> NodeId {
    NODE.parse().expect("valid")
}

pub fn local(
    node: NodeId,
    capacity: dormouse_messages::Amounts,
    folder: std::path::PathBuf,
) -> AgentConfig {
    AgentConfig {
        supervisor: vec![env!("CARGO_BIN_EXE_dormouse-supervisor").to_owned()],
        ..AgentConfig::local(node, capacity, folder)
    }
}

pub fn job() -> JobId {
    "ads/lr".parse().expect("valid")
}

/// The folder of the job admitted first, for tests without a log.
pub fn job_folder() -> JobFolder {
    JobFolder::new(job(), Sequence(1))
}

/// The folder of checkpoints of the one job that a log has admitted.
pub fn checkpoints(folder: &Path) -> PathBuf {
    let found = std::fs::read_dir(folder.join("checkpoints/ads/lr")).expect("read");
    let found: Vec<_> = found.flatten().map(|it| it.path()).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

pub fn id(incarnation: u32, rank: u32) -> ContainerId {
    ContainerId {
        job: job(),
        incarnation: Incarnation(incarnation),
        rank: Rank(rank),
    }
}

pub fn spec(start: &[&str]) -> JobSpec {
    serde_json::from_value(serde_json::json!({
        "name": "lr", "tenant": "ads",
        "command": Command { start: start.iter().map(ToString::to_string).collect(), resume: vec![] },
        "demand": {}, "weight": 1, "containers": {"min": 1, "max": 4},
        "checkpoint": {"mode": "exit", "signal": "SIGTERM", "grace_s": 5},
    }))
    .expect("valid")
}

pub fn admitted(spec: JobSpec) -> Event {
    JobAdmitted {
        job: job(),
        spec,
        ingress_sequence: 1,
        by: None,
        basis: None,
    }
    .into()
}

pub fn elastic(start: &[&str]) -> JobSpec {
    JobSpec {
        resize: Resize::in_place(),
        ..spec(start)
    }
}

pub fn service(start: &[&str]) -> JobSpec {
    JobSpec {
        kind: Kind::Inference,
        service: Some(Service::default()),
        ..elastic(start)
    }
}

pub fn placed(incarnation: u32, ranks: u32) -> Event {
    placed_on(incarnation, &vec![NODE; ranks as usize])
}

pub fn placed_on(incarnation: u32, nodes: &[&str]) -> Event {
    let ranks: Vec<_> = (0..).zip(nodes.iter().copied()).collect();
    placed_more(incarnation, &ranks)
}

pub fn placed_more(incarnation: u32, ranks: &[(u32, &str)]) -> Event {
    let create = ranks
        .iter()
        .map(|(rank, node)| PlacedContainer {
            job: job(),
            incarnation: Incarnation(incarnation),
            rank: Rank(*rank),
            node: node.parse().expect("valid"),
            gpus: vec![],
            port: 21_000
                + 100 * u16::try_from(incarnation).expect("small")
                + 8 * u16::try_from(*rank).expect("small"),
        })
        .collect();
    PlacementDecided {
        epoch: dormouse_messages::Epoch(1),
        create,
        remove: vec![],
        basis: None,
    }
    .into()
}

pub fn placed_at(incarnation: u32, port: u16) -> Event {
    let mut event = placed(incarnation, 1);
    if let Event::PlacementDecided(placed) = &mut event {
        placed.create[0].port = port;
    }
    event
}

pub fn taken_back(incarnation: u32, ranks: &[u32]) -> Event {
    let removed = |rank: &u32| RemovedContainer {
        job: job(),
        incarnation: Incarnation(incarnation),
        rank: Rank(*rank),
        node: node(),
    };
    PlacementDecided {
        epoch: dormouse_messages::Epoch(1),
        create: vec![],
        remove: ranks.iter().map(removed).collect(),
        basis: None,
    }
    .into()
}

fn numbered(ranks: &[u32]) -> Vec<Rank> {
    ranks.iter().copied().map(Rank).collect()
}

pub fn resize(
    generation: u32,
    join: &[u32],
    leave: &[u32],
    stay: &[u32],
    cause: ResizeCause,
) -> Event {
    PartitionResizeRequested {
        job: job(),
        epoch: dormouse_messages::Epoch(1),
        incarnation: Incarnation(1),
        generation,
        join: numbered(join),
        leave: numbered(leave),
        stay: numbered(stay),
        grace_s: 5,
        cause,
        made_for: None,
        basis: None,
    }
    .into()
}

pub fn leave(generation: u32, ranks: &[u32]) -> Event {
    PartitionLeaveRequested {
        job: job(),
        incarnation: Incarnation(1),
        generation,
        ranks: numbered(ranks),
        grace_s: 1,
        basis: None,
    }
    .into()
}

pub fn resized(generation: u32, members: &[u32], cause: ResizeCause) -> Event {
    PartitionResized {
        job: job(),
        epoch: dormouse_messages::Epoch(1),
        incarnation: Incarnation(1),
        generation,
        containers: u32::try_from(members.len()).expect("few"),
        members: numbered(members),
        cause,
        basis: None,
    }
    .into()
}

pub fn start(incarnation: u32, resumed_from: Option<&str>) -> Event {
    PartitionStartRequested {
        job: job(),
        epoch: dormouse_messages::Epoch(1),
        incarnation: Incarnation(incarnation),
        containers: 1,
        resumed_from: resumed_from.map(ToOwned::to_owned),
        basis: None,
    }
    .into()
}

pub fn stop(incarnation: u32) -> Event {
    PartitionStopRequested {
        job: job(),
        epoch: dormouse_messages::Epoch(1),
        incarnation: Incarnation(incarnation),
        containers: 1,
        reason: StopReason::Adjusted,
        grace_s: None,
        basis: None,
    }
    .into()
}

pub fn save(incarnation: u32) -> Event {
    CheckpointRequested {
        job: job(),
        epoch: dormouse_messages::Epoch(1),
        incarnation: Incarnation(incarnation),
        basis: None,
    }
    .into()
}

pub fn assigned(tasks: &[(u32, std::ops::Range<u32>)]) -> Event {
    let assigned = tasks.iter().map(|(rank, tasks)| Assigned {
        rank: Rank(*rank),
        tasks: tasks.clone().collect(),
    });
    Event::from(TasksAssigned {
        job: job(),
        incarnation: Incarnation(1),
        assigned: assigned.collect(),
        basis: None,
    })
}

pub fn task_set(script: &str) -> JobSpec {
    JobSpec {
        tasks: Some(Tasks {
            count: 1_000,
            concurrency: 2,
        }),
        ..spec(&["/bin/sh", "-c", script])
    }
}

/// Completions by task, and failures with exit codes.
pub fn task_reports(log: &FakeLog) -> (BTreeMap<u32, u32>, Vec<(u32, i32)>) {
    let (mut completed, mut failures) = (BTreeMap::new(), Vec::new());
    for event in log.events() {
        if let Event::TasksEnded(event) = event {
            for task in event.completed.iter() {
                *completed.entry(task).or_insert(0) += 1;
            }
            let failed = event.failed.iter();
            failures.extend(failed.map(|failed| (failed.task, failed.exit_code)));
        }
    }
    (completed, failures)
}

pub fn wait_tasks(log: &FakeLog, count: usize) {
    log.wait("the tasks", |_| {
        let (completed, failed) = task_reports(log);
        (completed.len() + failed.len() >= count).then_some(())
    });
}

/// Printed once the handlers are set.
pub fn wait_ready(folder: &Path, container: &ContainerId) {
    until("the program's handlers", || {
        let logs = logs_path(folder, container);
        let printed = logs.and_then(|logs| std::fs::read_to_string(logs.stdout).ok());
        printed.is_some_and(|text| text.contains("ready"))
    });
}

pub fn until(what: &str, mut check: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !check() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn lost(incarnation: u64) -> Event {
    NodeLost {
        node: node(),
        incarnation,
        last_seen: Timestamp::default(),
    }
    .into()
}

pub fn joined(incarnation: u64) -> Event {
    joined_of(NODE, incarnation)
}

pub fn joined_as(node: &str) -> Event {
    joined_of(node, 1)
}

fn joined_of(node: &str, incarnation: u64) -> Event {
    NodeJoined {
        node: node.parse().expect("valid"),
        capacity: Default::default(),
        labels: Default::default(),
        gpus: vec![],
        incarnation,
        running: vec![],
        address: "127.0.0.1".to_owned(),
        runtime: "process".to_owned(),
        taints: Default::default(),
    }
    .into()
}

pub fn started(container: &ContainerId) -> Event {
    dormouse_node_agent::report::started(container, &node(), 1).into()
}

pub fn exited(container: &ContainerId) -> Event {
    dormouse_node_agent::report::exited(container, &node(), Default::default()).into()
}

pub fn recorded(sequence: u64, event: Event) -> Recorded {
    let writer = event.writers()[0];
    let time = Timestamp::from_micros(i64::try_from(sequence).expect("small"));
    Recorded {
        sequence: Sequence(sequence),
        stored_at: time,
        writer,
        envelope: Envelope::new(sequence.to_string(), writer, time, None, event),
    }
}

#[derive(Default)]
struct Ties {
    code: Option<Arc<dyn CodeSource>>,
    checkpoints: Option<Store>,
}

pub struct Running {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<Result<(), AgentError>>>,
}

impl Running {
    pub fn start(log: &FakeLog, config: AgentConfig, with_lease: bool) -> Self {
        Self::start_with(log, config, with_lease, None, Ties::default())
    }

    pub fn with_execs(log: &FakeLog, config: AgentConfig) -> (Self, Execs) {
        let (ask, asked) = mpsc::channel(8);
        let execs = Execs::new(config.node.clone(), ask);
        (
            Self::start_with(log, config, false, Some(asked), Ties::default()),
            execs,
        )
    }

    pub fn with_code(log: &FakeLog, config: AgentConfig, code: Arc<dyn CodeSource>) -> Self {
        let ties = Ties {
            code: Some(code),
            ..Ties::default()
        };
        Self::start_with(log, config, false, None, ties)
    }

    pub fn with_store(log: &FakeLog, config: AgentConfig, store: &Store) -> Self {
        let ties = Ties {
            checkpoints: Some(store.clone()),
            ..Ties::default()
        };
        Self::start_with(log, config, false, None, ties)
    }

    fn start_with(
        log: &FakeLog,
        config: AgentConfig,
        with_lease: bool,
        execs: Option<mpsc::Receiver<ExecAsked>>,
        ties: Ties,
    ) -> Self {
        let _ = tracing_subscriber::fmt().with_test_writer().try_init();
        let (stop, stopped) = oneshot::channel::<()>();
        let wires = Wires {
            heard: log.follow(),
            outlet: Box::new(log.clone()),
            lease: with_lease.then(|| Box::new(log.clone()) as Box<dyn Lease>),
            asked: None,
            execs,
            kept: None,
            alive: Default::default(),
            code: ties.code,
            checkpoints: ties.checkpoints,
        };
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            runtime.block_on(run_wired(config, wires, async move {
                let _ = stopped.await;
            }))
        });
        Self {
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    pub fn stop(mut self) -> Result<(), AgentError> {
        drop(self.stop.take());
        self.join()
    }

    pub fn join(&mut self) -> Result<(), AgentError> {
        let thread = self.thread.take().expect("not joined yet");
        thread.join().expect("no panic")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            eprintln!("the agent has ended: {ended:?}");
        }
    }
}
