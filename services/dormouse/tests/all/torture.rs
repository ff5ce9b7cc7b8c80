//! Random processes are killed while jobs run; every job must end well, and the log must verify.
//!
//! The seed is printed: `DORMOUSE_TORTURE_SEED` repeats a run, as far as timing allows;
//! `DORMOUSE_TORTURE_KILLS` sets the number of kills (`make torture KILLS=1000`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{Cluster, PATIENCE, count_job, poll};
use crate::doctor::look;
use dormouse_messages::events::ClusterConfigured;
use dormouse_messages::policy::Policy;
use dormouse_messages::{Event, Recorded, TenantId, Writer};
use dormouse_runtime::{Log, Settings};
use nix::sys::signal::Signal;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

const SERVICES: [&str; 5] = ["admission", "optimizer", "placer", "checkpointer", "api"];
const COPIES: [&str; 2] = ["a", "b"];
const NODES: [&str; 3] = ["n0", "n1", "n2"];
/// Short enough that some agents stay away for longer.
const LEASE_S: u32 = 3;

fn chance(test: &str, default_kills: u32) -> (u32, StdRng) {
    let given = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let seed = given("DORMOUSE_TORTURE_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let kills = given("DORMOUSE_TORTURE_KILLS").and_then(|it| u32::try_from(it).ok());
    println!("{test}: DORMOUSE_TORTURE_SEED={seed}");
    (kills.unwrap_or(default_kills), StdRng::seed_from_u64(seed))
}

struct Processes {
    cluster: Cluster,
    runtime: Runtime,
    log: Log,
    submitted: Vec<String>,
}

impl Processes {
    fn start() -> Self {
        Self::start_with(LEASE_S)
    }

    fn start_with(lease_s: u32) -> Self {
        let mut cluster = Cluster::broker();
        let runtime = Runtime::new().expect("starts");
        let settings = Settings::new(cluster.url(), "torture");
        let log = poll("the broker", PATIENCE, || {
            runtime.block_on(Log::connect(&settings)).ok()
        });
        runtime
            .block_on(log.ensure_streams())
            .expect("the streams are made");
        let policy = Policy {
            lease_s,
            ..Policy::default()
        };
        let mut operator = log.appender(Writer::Operator, None);
        let configured = Event::from(ClusterConfigured { policy });
        runtime
            .block_on(operator.append(configured, &[]))
            .expect("configured");
        for service in SERVICES {
            for copy in COPIES {
                start(&mut cluster, &format!("{service}-{copy}"));
            }
        }
        for node in NODES {
            start(&mut cluster, node);
        }
        cluster.wait_for_nodes(NODES.len());
        Self {
            cluster,
            runtime,
            log,
            submitted: Vec::new(),
        }
    }

    /// A second delivery of a name is refused, which is part of the test.
    fn submit(&mut self, name: &str, steps: u32, most: u32) {
        let mut job = count_job(name, steps, (1, most), &[]);
        job["retries"] = json!(1_000);
        self.publish(&job);
    }

    fn publish(&mut self, job: &Value) {
        let tenant = TenantId::new("ads").expect("valid");
        let payload = job.to_string().into_bytes();
        poll("the submission", PATIENCE, || {
            let stored = self.log.publish_ingress(
                &tenant,
                "submit",
                "application/json",
                payload.clone().into(),
            );
            self.runtime.block_on(stored).ok()
        });
        let name = job["name"].as_str().expect("a name");
        self.submitted.push(format!("ads/{name}"));
    }

    fn submit_tasks(&mut self, name: &str, count: u32) {
        let notes = self.cluster.dir().join(format!("{name}-tasks"));
        let note = format!("echo $DORMOUSE_TASK >>{}; sleep 0.05", notes.display());
        self.publish(&json!({
            "name": name, "kind": "batch", "command": {"start": ["/bin/sh", "-c", note]},
            "demand": {"cpu": 1, "memory": "64Mi"}, "retries": 1_000,
            "tasks": {"count": count, "concurrency": 4},
        }));
    }

    fn active(&self, service: &str) -> String {
        let leases = self.log.leases();
        poll("the lease's holder", PATIENCE, || {
            let value = self.runtime.block_on(leases.holder(service)).ok()??;
            let copies = COPIES.map(|copy| format!("{service}-{copy}"));
            copies.into_iter().find(|copy| {
                let pid = self.cluster.pid(copy);
                pid.is_some_and(|pid| value.holder == format!("pid-{pid}"))
            })
        })
    }

    fn end(&self) -> Vec<Arc<Recorded>> {
        for job in &self.submitted {
            self.cluster.wait_completed(job);
        }
        self.cluster.wait_no_programs();
        self.cluster.check()
    }
}

fn victim(random: &mut StdRng) -> String {
    match random.random_range(0..10) {
        0 => "nats-server".to_owned(),
        1..3 => NODES[random.random_range(0..NODES.len())].to_owned(),
        _ => {
            let service = SERVICES[random.random_range(0..SERVICES.len())];
            format!("{service}-{}", COPIES[random.random_range(0..COPIES.len())])
        }
    }
}

fn start(cluster: &mut Cluster, name: &str) {
    let copy = cluster.dir().join(name);
    let Some((service, _)) = name.split_once('-') else {
        let agent = ["serve", "agent", "--node", name, "--capacity"];
        let rest = ["cpu=4,memory=8Gi"];
        let checkpoints = cluster.dir().join("checkpoints").display().to_string();
        let args = [&agent[..], &rest, &["--checkpoints", &checkpoints]].concat();
        return cluster.start(name, &args, &copy);
    };
    match name {
        "nats-server" => cluster.start_broker(),
        _ => {
            let args = ["serve", service, "--takeover", "1s"];
            cluster.start(name, &args, &copy);
        }
    }
}

#[test]
fn nothing_is_lost_when_single_processes_are_killed() {
    let (kills, mut random) = chance("single processes", 100);
    let mut processes = Processes::start();
    let mut killed: BTreeMap<String, u32> = BTreeMap::new();
    // This job fills the cluster and must shrink for every other.
    processes.submit("base", 7 * kills, 12);
    for kill in 0..kills {
        if kill % 4 == 0 {
            let name = format!("job-{kill}");
            let (steps, most) = (random.random_range(20..100), random.random_range(1..=8));
            processes.submit(&name, steps, most);
        }
        if kill % 16 == 2 {
            processes.submit_tasks(&format!("set-{kill}"), random.random_range(20..200));
        }
        sleep(Duration::from_millis(random.random_range(0..400)));
        let victim = victim(&mut random);
        let long = random.random_bool(0.05);
        let away = Duration::from_millis(if long {
            5_000
        } else {
            random.random_range(0..300)
        });
        let cluster = &mut processes.cluster;
        if random.random_bool(0.1) {
            // The process wakes up and believes in its lease.
            cluster.signal(&victim, Signal::SIGSTOP);
            sleep(away.max(Duration::from_millis(1_500)));
            cluster.signal(&victim, Signal::SIGCONT);
        } else {
            cluster.kill(&victim);
            if long && NODES.contains(&victim.as_str()) {
                cluster.kill_below(&victim);
            }
            sleep(away);
            start(cluster, &victim);
            *killed.entry(victim).or_default() += 1;
        }
    }
    println!("killed: {killed:?}");
    let log = processes.end();
    let resumed = |it: &&Arc<Recorded>| matches!(it.event(), Some(Event::PartitionStarted(it)) if it.resumed_from.is_some());
    let resumed = log.iter().filter(resumed).count();
    println!("{} events, {resumed} partitions resumed", log.len());
    assert!(resumed > 0, "nothing was resized");
}

#[test]
fn what_ran_on_a_node_that_is_fenced_starts_elsewhere_at_once() {
    let mut processes = Processes::start_with(600);
    processes.submit("a", 60, 1);
    let at = |event: &Event| match event {
        Event::ContainerStarted(event) if event.container.job.name() == "a" => {
            Some(event.node.clone())
        }
        _ => None,
    };
    let node = processes.cluster.wait_event("a start", at);
    processes.cluster.kill(node.as_str());
    processes.cluster.kill_below(node.as_str());
    let report = processes.cluster.run(&["cluster", "doctor"]).json();
    let (state, found) = look(&report, "agents");
    assert_eq!(
        (state.as_str(), found),
        ("warning", format!("{node} do not answer"))
    );
    let off = ["node", "fence", node.as_str(), "--reason", "it is off"];
    let fenced = Instant::now();
    processes.cluster.run(&off).ok();
    processes.cluster.wait_event("a start elsewhere", |event| {
        at(event).filter(|other| *other != node)
    });
    println!("started elsewhere after {:?}", fenced.elapsed());
    processes.end();
}

#[test]
fn the_other_copy_of_each_service_goes_on() {
    let mut processes = Processes::start();
    for service in ["admission", "optimizer", "placer", "checkpointer"] {
        processes.submit(&format!("before-{service}"), 30, 4);
        let active = processes.active(service);
        processes.cluster.kill(&active);
        processes.submit(&format!("after-{service}"), 5, 4);
        processes
            .cluster
            .wait_completed(&format!("ads/after-{service}"));
        assert_ne!(processes.active(service), active);
        start(&mut processes.cluster, &active);
    }
    processes.cluster.kill("api-a");
    let jobs = processes.cluster.run(&["jobs"]).ok().json();
    assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(8));
    let newest = processes.cluster.run(&["jobs", "--limit", "3"]).ok().json();
    assert_eq!(newest["jobs"].as_array().map(Vec::len), Some(3));
    assert_eq!(newest["more"], 5);
    processes.end();
}

#[test]
fn nothing_is_lost_when_a_local_cluster_is_killed() {
    let (kills, mut random) = chance("a local cluster", 12);
    let mut cluster = Cluster::up(2, "cpu=4,memory=8Gi");
    for kill in 0..kills {
        let steps = random.random_range(40..120);
        let mut job = count_job(&format!("job-{kill}"), steps, (1, 6), &[]);
        job["retries"] = json!(1_000);
        cluster.submit(&job);
        sleep(Duration::from_millis(random.random_range(0..900)));
        cluster.kill("up");
        sleep(Duration::from_millis(random.random_range(0..300)));
        cluster.start_up(2, "cpu=4,memory=8Gi");
    }
    for kill in 0..kills {
        cluster.wait_completed(&format!("ads/job-{kill}"));
    }
    cluster.wait_no_programs();
    cluster.check();
}
