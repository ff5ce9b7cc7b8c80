//! Upgrades of the log's format: an old process holds back the gate, and a cluster goes from build to build
//! under load.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use dormouse_messages::{Build, Event, Format, Reads, Recorded, TenantId};
use dormouse_placer::Placer;
use dormouse_runtime::tenant::{Encoding, Tenant, Wait};
use dormouse_runtime::{
    LeaseWatcher, LocalNodes, Log, LogError, Lost, LostGateway, ServiceError, ServiceOptions,
    Settings, Watched, run_service,
};
use dormouse_state::ClusterState;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::common::{Cluster, PATIENCE, poll};

const NEXT: Format = Format(Format::NEWEST.0 + 1);

fn build(newest: Format) -> Build {
    let reads = Reads {
        newest,
        ..Reads::OWN
    };
    Build {
        reads,
        ..Build::own("of-a-test")
    }
}

fn watched(state: &ClusterState) -> Watched {
    Watched {
        ttl: Duration::from_secs(60),
        expected: Vec::new(),
        gateway_ttl: Duration::from_secs(60),
        gateways: Vec::new(),
        builds: state.builds.builds(),
    }
}

async fn connect(url: &str) -> Result<Log, LogError> {
    Log::connect(&Settings::new(url, "test")).await
}

/// Counts the events of the builds: arrivals, departures and upgrades.
async fn told(log: &Log) -> (usize, usize, usize) {
    let head = log.head().await.expect("answers");
    let mut events = log
        .read(dormouse_messages::Sequence(1), head)
        .await
        .expect("reads");
    let mut told = (0, 0, 0);
    while let Some(item) = events.recv().await {
        let dormouse_runtime::LogItem::Event(recorded) = item else {
            continue;
        };
        match recorded.event() {
            Some(Event::BuildJoined(_)) => told.0 += 1,
            Some(Event::BuildLeft(_)) => told.1 += 1,
            Some(Event::ClusterUpgraded(_)) => told.2 += 1,
            _ => {}
        }
    }
    told
}

async fn until(log: &Log, what: (usize, usize, usize)) {
    let deadline = Instant::now() + PATIENCE;
    while told(log).await != what {
        assert!(Instant::now() < deadline, "{what:?}: {:?}", told(log).await);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[test]
fn an_old_process_holds_back_the_gate_until_it_leaves() {
    let cluster = Cluster::broker();
    let runtime = tokio::runtime::Runtime::new().expect("starts");
    let url = cluster.url();
    let log = poll("the broker", PATIENCE, || {
        runtime.block_on(connect(&url)).ok()
    });
    runtime.block_on(async {
        log.ensure_streams().await.expect("made");
        let new = log.present("placer", build(NEXT));
        let old = log.present("optimizer", build(Format::NEWEST));
        let lost: fn(Lost) -> Event = |it| unreachable!("{it:?}");
        let gateway: fn(LostGateway) -> Event = |it| unreachable!("{it:?}");
        let leases = LeaseWatcher::new(&log, LocalNodes::default(), watched, lost, gateway);
        let stop = CancellationToken::new();
        let options = ServiceOptions::default();
        let placer = run_service(Placer, log.clone(), options, Some(Box::new(leases)), stop);
        let placer = tokio::spawn(placer);
        until(&log, (2, 0, 0)).await;
        // Longer than processes need to settle.
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(told(&log).await, (2, 0, 0), "the old process holds it back");
        old.release().await;
        until(&log, (2, 1, 1)).await;
        let ended = placer.await.expect("joins").expect_err("it refuses");
        assert!(matches!(ended, ServiceError::NewerFormat(_)), "{ended}");
        let newer = log.outdated();
        let newer = tokio::time::timeout(PATIENCE, newer).await.expect("met");
        assert_eq!(newer.format, NEXT);
        let refused = connect(&url).await.expect_err("it is refused");
        assert!(matches!(refused, LogError::NewerFormat(_)), "{refused}");
        new.release().await;
    });
}

const SERVICES: [&str; 6] = [
    "admission",
    "optimizer",
    "placer",
    "checkpointer",
    "autoscaler",
    "api",
];
const NODES: [&str; 2] = ["n0", "n1"];

/// A cluster whose processes are replaced one by one.
struct Rolling {
    cluster: Cluster,
    running: BTreeMap<&'static str, String>,
    started: usize,
}

impl Rolling {
    fn start(&mut self, service: &'static str) {
        self.started += 1;
        let name = format!("{service}-{}", self.started);
        let data = self.cluster.dir().join(&name);
        self.cluster.start(&name, &["serve", service], &data);
        // Time to stand by.
        sleep(Duration::from_secs(1));
        if let Some(before) = self.running.insert(service, name) {
            self.cluster.stop(&before);
        }
    }

    fn start_agent(&mut self, node: &'static str) {
        if self.running.contains_key(node) {
            self.cluster.stop(node);
        }
        let data = self.cluster.dir().join(node);
        let capacity = "cpu=64,memory=64Gi";
        let args = ["serve", "agent", "--node", node, "--capacity", capacity];
        self.cluster.start(node, &args, &data);
        self.running.insert(node, node.to_owned());
    }

    /// Replaces every process by one of this build.
    fn to(&mut self, binary: &Path) {
        self.cluster.set_binary(binary);
        SERVICES.into_iter().for_each(|it| self.start(it));
        NODES.into_iter().for_each(|it| self.start_agent(it));
    }
}

/// Submits jobs at a steady rate until told to stop; returns their number.
fn load(url: String, stop: Arc<AtomicBool>) -> JoinHandle<usize> {
    let rate = std::env::var("DORMOUSE_UPGRADE_RATE").ok();
    let rate = rate.and_then(|it| it.parse().ok()).unwrap_or(50);
    let submit = async move {
        let ads = TenantId::new("ads").expect("valid");
        let settings = Settings::new(url, "load");
        let tenant = Tenant::connect(&settings, ads, Encoding::Json, PATIENCE).await;
        let tenant = tenant.expect("connects");
        let mut every = tokio::time::interval(Duration::from_secs(1) / rate);
        let mut count = 0;
        while !stop.load(Ordering::Relaxed) {
            every.tick().await;
            let job = json!({
                "name": format!("j{count}"), "tenant": "ads", "command": {"start": ["true"]},
                "demand": {"cpu": "100m", "memory": "16Mi"}, "containers": {"min": 1, "max": 1},
            });
            let stored = tenant.submit(&job, Wait::Accepted, None).await;
            stored.expect("it is stored");
            count += 1;
        }
        count
    };
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().expect("starts");
        runtime.block_on(submit)
    })
}

/// Returns the longest time without a decision of admission, in seconds.
fn longest_pause(log: &[Arc<Recorded>]) -> f64 {
    let admitted = |it: &&Arc<Recorded>| matches!(it.event(), Some(Event::JobAdmitted(_)));
    let at: Vec<_> = log.iter().filter(admitted).map(|it| it.stored_at).collect();
    let gaps = at.windows(2).map(|pair| pair[1].seconds_since(pair[0]));
    gaps.fold(0.0, f64::max)
}

fn ended(log: &[Arc<Recorded>]) -> usize {
    let completed = |it: &&Arc<Recorded>| matches!(it.event(), Some(Event::JobCompleted(_)));
    log.iter().filter(completed).count()
}

/// Checks that every job was admitted, ran and completed once. An agent that adopts a program after its end
/// reports no start.
fn nothing_is_lost_or_doubled(log: &[Arc<Recorded>], jobs: usize) {
    let (mut admitted, mut started, mut completed) = <(Vec<_>, Vec<_>, Vec<_>)>::default();
    let (mut exited, mut asked) = <(Vec<_>, Vec<_>)>::default();
    for event in log.iter().filter_map(|it| it.event()) {
        match event {
            Event::JobAdmitted(it) => admitted.push(it.job.to_string()),
            Event::ContainerStarted(it) => started.push(it.container.to_string()),
            Event::ContainerExited(it) => exited.push(it.container.to_string()),
            Event::PartitionStartRequested(it) => asked.push(it.job.to_string()),
            Event::JobCompleted(it) => completed.push(it.job.to_string()),
            Event::JobFailed(it) => panic!("{it:?}"),
            _ => {}
        }
    }
    let once = |of: Vec<String>| {
        let all: BTreeSet<String> = of.iter().cloned().collect();
        assert_eq!(all.len(), of.len(), "one is doubled");
        all.len()
    };
    assert_eq!(once(admitted), jobs);
    assert_eq!(once(completed), jobs);
    assert_eq!((once(asked), once(exited)), (jobs, jobs));
    let started = once(started);
    println!("{started} starts reported before their ends");
    assert!(started <= jobs);
}

#[test]
#[ignore = "needs an older build: make upgrade-test"]
fn a_cluster_is_upgraded_and_downgraded_under_load() {
    let new = PathBuf::from(env!("CARGO_BIN_EXE_dormouse"));
    let old = std::env::var_os("DORMOUSE_UPGRADE_OLD").expect("the older build");
    let old = PathBuf::from(old);
    let mut rolling = Rolling {
        cluster: Cluster::broker(),
        running: BTreeMap::new(),
        started: 0,
    };
    let policy = rolling.cluster.dir().join("policy.yaml");
    std::fs::write(&policy, "policy: {upgrades: manual}").expect("writes");
    let policy = policy.to_str().expect("UTF-8");
    let set = ["policy", "set", policy, "--ensure-streams"];
    poll("the streams", PATIENCE, || {
        (rolling.cluster.run(&set).code == 0).then_some(())
    });
    rolling.to(&old);
    rolling.cluster.wait_for_nodes(NODES.len());
    let stop = Arc::new(AtomicBool::new(false));
    let submitted = load(rolling.cluster.url(), Arc::clone(&stop));
    sleep(Duration::from_secs(5));
    for build in [&new, &old, &new] {
        rolling.to(build);
    }
    // Without the tests' format both builds write the same one.
    let has_next = Format::NEWEST > Format::FIRST;
    if has_next {
        approve(&rolling.cluster);
    }
    sleep(Duration::from_secs(5));
    stop.store(true, Ordering::Relaxed);
    let jobs = submitted.join().expect("all were stored");
    let log = poll("the jobs", 10 * PATIENCE, || {
        let log = rolling.cluster.try_log()?;
        (ended(&log) >= jobs).then_some(log)
    });
    let pause = longest_pause(&log);
    println!("{jobs} jobs over three changes of build; longest pause {pause:.2} s");
    nothing_is_lost_or_doubled(&log, jobs);
    assert!(pause < 3.0, "{pause}");
    rolling.cluster.check();
    println!("{}", rolling.cluster.run(&["cluster", "doctor"]).out);
    if has_next {
        only_newer_builds_run(&mut rolling.cluster, &old);
    }
}

/// Lets the cluster write the format that every process reads.
fn approve(cluster: &Cluster) {
    let upgraded = |event: &Event| match event {
        Event::ClusterUpgraded(it) => Some(it.format),
        _ => None,
    };
    let log = cluster.log();
    let early = log.iter().filter_map(|it| it.event()).find_map(upgraded);
    assert_eq!(early, None, "nobody approved it");
    poll("the approval", PATIENCE, || {
        (cluster.run(&["cluster", "upgrade"]).code == 0).then_some(())
    });
    let format = cluster.wait_event("the upgrade", upgraded);
    assert_eq!(format, Format::NEWEST);
}

fn only_newer_builds_run(cluster: &mut Cluster, old: &Path) {
    let exported = std::fs::read_to_string(cluster.log_file()).expect("reads");
    let is_new = |line: &str| line.contains("job.completed") && line.contains("\"format\":2");
    assert!(exported.lines().any(is_new), "the new form is written");
    cluster.set_binary(old);
    let refused = cluster.run(&["serve", "placer"]);
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("format 2"), "{}", refused.err);
}
