//! Measures the pipeline from submission to completion over a real broker: `dormouse up --nodes 0` runs the
//! services; a thousand model agents run containers that end at once. The log's own rates are measured too.
//!
//! `cargo bench -p dormouse --bench pipeline [jobs] [nodes] [drf]`

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dormouse_messages::events::{
    ClusterConfigured, ContainerExited, ContainerStarted, NodeJoined, PlacedContainer, Progress,
};
use dormouse_messages::policy::{Allocation, Policy};
use dormouse_messages::{
    ContainerId, Event, Incarnation, JobId, NodeId, Recorded, Sequence, TenantId, Writer,
};
use dormouse_runtime::{LocalBroker, Log, LogItem, Settings};
use tokio::sync::mpsc::{Receiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const IN_FLIGHT: usize = 256;

struct Up(Child);

impl Drop for Up {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// The model agents hold no leases, so none may end.
async fn start(data: &std::path::Path) -> (Up, Log) {
    let up = Command::new(env!("CARGO_BIN_EXE_dormouse"))
        .args(["up", "--nodes", "0", "--data"])
        .arg(data)
        .env("RUST_LOG", "error")
        .stderr(Stdio::null())
        .spawn();
    let up = Up(up.expect("dormouse up starts"));
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(url) = LocalBroker::url_of(&data.join("broker"))
            && let Ok(log) = Log::connect(&Settings::new(url, "bench")).await
            && log.head().await.is_ok()
        {
            return (up, log);
        }
        assert!(Instant::now() < deadline, "the services did not start");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

type Asked = PlacedContainer;

async fn join(log: Log, node: NodeId) -> (NodeId, UnboundedSender<Asked>) {
    let mut appender = log.appender(Writer::Node, Some(node.clone()));
    let joined = NodeJoined {
        node: node.clone(),
        capacity: "cpu=16,memory=64Gi".parse().expect("valid"),
        labels: BTreeMap::new(),
        gpus: Vec::new(),
        incarnation: 1,
        running: Vec::new(),
        address: String::new(),
        runtime: "model".to_owned(),
        taints: Default::default(),
    };
    appender.append(joined.into(), &[]).await.expect("stored");
    let (asked, mut requests) = unbounded_channel::<Asked>();
    tokio::spawn(async move {
        while let Some(asked) = requests.recv().await {
            for event in run(asked) {
                appender.append(event, &[]).await.expect("stored");
            }
        }
    });
    (node, asked)
}

fn run(asked: Asked) -> [Event; 2] {
    let PlacedContainer {
        job,
        incarnation,
        rank,
        node,
        ..
    } = asked;
    let container = ContainerId {
        job,
        incarnation,
        rank,
    };
    let started = ContainerStarted {
        container: container.clone(),
        node: node.clone(),
        pid: 1,
    };
    let exited = ContainerExited {
        container,
        node,
        exit_code: Some(0),
        signal: None,
        out_of_memory: false,
        reason: None,
        evicted: false,
    };
    [started.into(), exited.into()]
}

#[derive(Default)]
struct Seen {
    placed: usize,
    completed: usize,
    allocations: usize,
    first: Option<Arc<Recorded>>,
    last_placed: Option<Arc<Recorded>>,
    last: Option<Arc<Recorded>>,
}

async fn follow(
    mut events: Receiver<LogItem>,
    agents: BTreeMap<NodeId, UnboundedSender<Asked>>,
    jobs: usize,
) -> Seen {
    let mut seen = Seen::default();
    let mut places: BTreeMap<(JobId, Incarnation), Vec<Asked>> = BTreeMap::new();
    while seen.completed < jobs {
        let Some(LogItem::Event(recorded)) = events.recv().await else {
            continue;
        };
        match recorded.event() {
            Some(Event::SubmissionReceived(_)) => {
                seen.first.get_or_insert_with(|| Arc::clone(&recorded));
            }
            Some(Event::AllocationDecided(_)) => seen.allocations += 1,
            Some(Event::PlacementDecided(event)) => {
                seen.placed += event.create.len();
                seen.last_placed = Some(Arc::clone(&recorded));
                for container in &event.create {
                    let key = (container.job.clone(), container.incarnation);
                    places.entry(key).or_default().push(container.clone());
                }
            }
            Some(Event::PartitionStartRequested(event)) => {
                let key = (event.job.clone(), event.incarnation);
                for asked in places.remove(&key).unwrap_or_default() {
                    let agent = agents.get(&asked.node).expect("it has joined");
                    agent.send(asked).expect("it lives");
                }
            }
            Some(Event::JobCompleted(_)) => {
                seen.completed += 1;
                seen.last = Some(Arc::clone(&recorded));
            }
            _ => {}
        }
    }
    seen
}

#[expect(clippy::cast_precision_loss, reason = "a rate")]
async fn flood<F>(count: usize, mut request: impl FnMut(usize) -> F) -> f64
where
    F: Future<Output = ()> + Send + 'static,
{
    let started = Instant::now();
    let mut flying = JoinSet::new();
    for index in 0..count {
        flying.spawn(request(index));
        while flying.len() >= IN_FLIGHT {
            flying.join_next().await;
        }
    }
    while flying.join_next().await.is_some() {}
    count as f64 / started.elapsed().as_secs_f64()
}

async fn submit(log: Log, tenant: TenantId, index: usize) {
    let document = format!(
        r#"{{"name":"job-{index}","kind":"batch","command":{{"start":["/bin/true"]}},"demand":{{"cpu":1}}}}"#
    );
    let payload = document.into_bytes().into();
    log.publish_ingress(&tenant, "submit", "application/json", payload)
        .await
        .expect("published");
}

async fn report(log: Log, node: NodeId, events: usize) {
    let mut appender = log.appender(Writer::Node, Some(node.clone()));
    for step in 0..events {
        let progress = Progress {
            job: "bench/none".parse().expect("valid"),
            incarnation: Incarnation(1),
            node: node.clone(),
            step: step as u64,
            steps_total: 0,
            containers: 1,
            metrics: BTreeMap::new(),
        };
        appender.append(progress.into(), &[]).await.expect("stored");
    }
}

fn nodes(count: usize) -> impl Iterator<Item = NodeId> {
    (0..count).map(|index| NodeId::new(format!("n{index:04}")).expect("valid"))
}

#[expect(clippy::cast_precision_loss, reason = "rates")]
async fn measure(jobs: usize, node_count: usize, policy: Policy) {
    let dir = tempfile::tempdir().expect("a folder");
    let (_up, log) = start(dir.path()).await;
    let mut operator = log.appender(Writer::Operator, None);
    let configured = ClusterConfigured { policy };
    operator
        .append(configured.into(), &[])
        .await
        .expect("stored");
    let mut joining = JoinSet::new();
    for node in nodes(node_count) {
        joining.spawn(join(log.clone(), node));
    }
    let agents: BTreeMap<_, _> = joining.join_all().await.into_iter().collect();
    let before = log.head().await.expect("a head");
    let events = log.follow(before.next());
    let following = tokio::spawn(follow(events, agents, jobs));
    let tenant: TenantId = "bench".parse().expect("valid");
    let published = flood(jobs, |index| submit(log.clone(), tenant.clone(), index)).await;
    let seen = following.await.expect("follows");
    let head = log.head().await.expect("a head");
    let since = |last: &Option<Arc<Recorded>>| {
        let (first, last) = (seen.first.as_ref(), last.as_ref());
        let (first, last) = (first.expect("submitted"), last.expect("it came"));
        last.stored_at.seconds_since(first.stored_at)
    };
    let (placed_s, completed_s) = (since(&seen.last_placed), since(&seen.last));
    let print = |name: &str, rate: f64| println!("{name:<52} {rate:>9.0}/s");
    print("submissions stored in the ingress stream", published);
    print("jobs from received to placed", jobs as f64 / placed_s);
    print("jobs from received to completed", jobs as f64 / completed_s);
    let stored = head.0 - before.0;
    print("events on the log meanwhile", stored as f64 / completed_s);
    println!(
        "  {} placed by {} allocations, {stored} events",
        seen.placed, seen.allocations
    );
    let each = jobs.div_ceil(node_count);
    let mut reporting = JoinSet::new();
    let started = Instant::now();
    for node in nodes(node_count) {
        reporting.spawn(report(log.clone(), node, each));
    }
    reporting.join_all().await;
    let appended = (each * node_count) as f64 / started.elapsed().as_secs_f64();
    print("the same log, appended by the nodes alone", appended);
    let started = Instant::now();
    report(log.clone(), "alone".parse().expect("valid"), 2_000).await;
    let alone = 2_000.0 / started.elapsed().as_secs_f64();
    print("the same log, one event after the other", alone);
    assert!(log.head().await.expect("a head") > Sequence(stored));
}

fn main() {
    let numbers: Vec<usize> = std::env::args()
        .filter_map(|arg| arg.parse().ok())
        .collect();
    let jobs = numbers.first().copied().unwrap_or(10_000);
    let node_count = numbers.get(1).copied().unwrap_or(1_000);
    let drf = std::env::args().any(|arg| arg == "drf");
    let policy = Policy {
        allocation: if drf {
            Allocation::Drf
        } else {
            Allocation::Dorm
        },
        lease_s: 86_400,
        ..Policy::default()
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(measure(jobs, node_count, policy));
}
