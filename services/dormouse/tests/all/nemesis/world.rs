//! The cluster under test: three brokers, two copies of every service, four agents, each on its own host.

use std::process::ExitStatus;
use std::time::{Duration, Instant};

use crate::common::{Cluster, PATIENCE, poll};
use dormouse_messages::Timestamp;
use dormouse_messages::policy::Policy;
use dormouse_runtime::{Clock, Log, Settings, SystemClock};
use nix::sys::signal::Signal;
use tokio::runtime::Runtime;

use super::faults::{
    BROKERS, COPIES, Fault, GIVEN_UP, GIVEN_UP_AFTER_S, NODES, PLAIN, SERVICES, TRUSTS,
};
use super::ground::{BROKER_DISK, Disks, NODE_DISK, PORT, engine, remove_containers, start_broker};
use super::net::{Net, OPERATOR};

pub const LEASE_S: u32 = 20;
pub const SLOTS: u32 = 4;

/// A time by the clock, and seconds since the boot, as in the jobs' records.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    pub at: Timestamp,
    pub up: f64,
}

impl Moment {
    pub fn now() -> Self {
        let text = std::fs::read_to_string("/proc/uptime").expect("Linux");
        let up = text.split_whitespace().next();
        Self {
            at: SystemClock.now(),
            up: up.and_then(|it| it.parse().ok()).expect("a number"),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Done {
    pub fault: Fault,
    pub from: Moment,
    pub until: Moment,
}

#[derive(Debug, Clone)]
pub struct Took {
    pub what: String,
    pub time: Duration,
    pub bound: Duration,
    pub story: String,
}

pub struct World {
    // Dropped before the cluster, whose folder holds the disks.
    _disks: Disks,
    pub cluster: Cluster,
    pub net: Net,
    pub runtime: Runtime,
    pub log: Log,
    pub took: Vec<Took>,
    pub found: Vec<String>,
    begun: Instant,
    prefix: String,
    docker: bool,
}

pub fn copy(service: &str, host: &str) -> String {
    format!("{service}-{host}")
}

pub fn all() -> Vec<String> {
    let copies = COPIES.map(|host| SERVICES.map(|service| copy(service, host)));
    let names = BROKERS.into_iter().chain(NODES).map(str::to_owned);
    names.chain(copies.into_iter().flatten()).collect()
}

impl World {
    pub fn start() -> Self {
        let begun = Instant::now();
        let net = Net::new([&[OPERATOR][..], &BROKERS, &COPIES, &NODES].concat());
        let mut cluster = Cluster::new();
        let prefix = format!("nemesis-{}", std::process::id());
        cluster.env("DORMOUSE_PREFIX", &prefix);
        cluster.env("DORMOUSE_PLAINTEXT", "true");
        let urls = BROKERS.map(|it| format!("nats://{}:{PORT}", net.address(it)));
        cluster.set_url(urls.join(","));
        let runtime = Runtime::new().expect("starts");
        let mut disks = Disks::default();
        for broker in BROKERS {
            disks.add(cluster.dir().join(broker), BROKER_DISK);
            start_broker(&mut cluster, &net, broker);
        }
        for node in PLAIN {
            disks.add(cluster.dir().join(node), NODE_DISK);
        }
        let log = configure(&cluster, &runtime, &prefix);
        let mut world = Self {
            cluster,
            net,
            runtime,
            log,
            took: Vec::new(),
            found: Vec::new(),
            begun,
            prefix,
            _disks: disks,
            docker: engine(),
        };
        world.begin_all();
        world.cluster.wait_for_nodes(NODES.len());
        world.say("the cluster runs");
        world
    }

    pub fn say(&self, what: &str) {
        println!("  {:>7.1} s {what}", self.begun.elapsed().as_secs_f64());
    }

    pub fn begin_all(&mut self) {
        for name in all() {
            self.begin(&name);
        }
    }

    pub fn begin(&mut self, name: &str) {
        if self.cluster.pid(name).is_some() {
            return;
        }
        let Self { cluster, net, .. } = self;
        let data = cluster.dir().join(name);
        if BROKERS.contains(&name) {
            return start_broker(cluster, net, name);
        }
        if let Some((service, host)) = name.split_once('-') {
            return net.on(host, || cluster.start(name, &["serve", service], &data));
        }
        let address = net.address(name);
        let capacity = format!("cpu={SLOTS},memory=8Gi");
        let checkpoints = cluster.dir().join("checkpoints").display().to_string();
        let agent = ["serve", "agent", "--node", name, "--address", &address];
        let rest = ["--capacity", &capacity, "--checkpoints", &checkpoints];
        let mut arguments = [&agent[..], &rest].concat();
        if self.docker && !PLAIN.contains(&name) {
            arguments.extend(["--runtime", "docker"]);
        }
        let after = GIVEN_UP_AFTER_S.to_string();
        if name == TRUSTS {
            arguments.push("--trust-jobs");
        }
        if name == GIVEN_UP {
            arguments.extend(["--gone-after", &after]);
        }
        net.on(name, || cluster.start(name, &arguments, &data));
    }

    pub fn stop(&mut self, name: &str) {
        if self.cluster.pid(name).is_none() {
            return;
        }
        self.cluster.signal(name, Signal::SIGTERM);
        let until = Instant::now() + PATIENCE;
        let ended = loop {
            let ended = self.cluster.ended(name);
            if ended.is_some() || Instant::now() > until {
                break ended;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        if !ended.is_some_and(|it| it.success()) {
            let ended = ended.map_or_else(|| "not".to_owned(), |it| it.to_string());
            self.found.push(format!("{name} was to stop: {ended}"));
            self.cluster.kill(name);
        }
    }

    /// Restarts ended processes as their units would.
    pub fn tend(&mut self) {
        for name in all() {
            if let Some(status) = self.cluster.ended(&name) {
                self.ended(&name, status);
                self.begin(&name);
            }
        }
    }

    fn ended(&mut self, name: &str, status: ExitStatus) {
        let what = format!("{name} ended by itself: {status}");
        self.say(&what);
        // A broker may end after lame duck mode, or with a full disk.
        if !BROKERS.contains(&name) {
            self.found.push(what);
        }
    }

    pub fn pass(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            std::thread::sleep(left.min(Duration::from_secs(1)));
            self.tend();
        }
    }

    pub fn active(&self, service: &str) -> Option<&'static str> {
        let leases = self.log.leases();
        let held = self.runtime.block_on(leases.holder(service)).ok()??;
        COPIES.into_iter().find(|host| {
            let pid = self.cluster.pid(&copy(service, host));
            pid.is_some_and(|pid| held.holder == format!("pid-{pid}"))
        })
    }

    pub fn brokers_follow(&self) -> bool {
        self.runtime.block_on(async {
            let urls = self.cluster.url();
            let connecting = async_nats::connect(urls.split(',').collect::<Vec<_>>());
            let Ok(Ok(client)) = tokio::time::timeout(PATIENCE, connecting).await else {
                return false;
            };
            let jetstream = async_nats::jetstream::new(client);
            let stream = jetstream.get_stream(self.log.prefix().log_stream()).await;
            let Some(cluster) = stream.ok().and_then(|it| it.cached_info().cluster.clone()) else {
                return false;
            };
            let current = cluster.replicas.iter().filter(|it| it.current).count();
            cluster.leader.is_some() && current + 1 == BROKERS.len()
        })
    }
}

fn configure(cluster: &Cluster, runtime: &Runtime, prefix: &str) -> Log {
    assert!(Policy::default().lease_s > LEASE_S);
    let policy = cluster.dir().join("policy.yaml");
    let text = format!("policy: {{lease_s: {LEASE_S}}}\n");
    std::fs::write(&policy, text).expect("written");
    let policy = policy.display().to_string();
    let configure = [
        "policy",
        "set",
        &policy,
        "--ensure-streams",
        "--replicas",
        "3",
    ];
    poll("the streams", 2 * PATIENCE, || {
        (cluster.run(&configure).code == 0).then_some(())
    });
    let mut settings = Settings::new(cluster.url(), "nemesis");
    settings.prefix = prefix.parse().expect("a prefix");
    settings.replicas = BROKERS.len();
    settings.connect_timeout = Duration::from_secs(10);
    poll("the brokers", PATIENCE, || {
        runtime.block_on(Log::connect(&settings)).ok()
    })
}

impl Drop for World {
    fn drop(&mut self) {
        for name in all() {
            self.cluster.kill(&name);
        }
        for host in [&BROKERS[..], &COPIES, &NODES].concat() {
            self.net.signal(host, None, Signal::SIGKILL);
        }
        if self.docker {
            remove_containers(&self.prefix);
        }
    }
}
