//! Measures whole-system figures as ratios to baselines of the same run: `latency` (submission to process
//! start), `resize` (without the save), `throughput` (submissions decided a second), `tasks` (empty tasks of
//! a set), and `docker` (submission to container start).
//!
//! `cargo bench -p dormouse --bench system [SECTION…] [jobs] [submissions]`

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bollard::Docker;
use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{
    CreateContainerOptions, ListContainersOptions, RemoveContainerOptions,
};
use dormouse_messages::{Event, JobId, Recorded, Sequence, TenantId, Timestamp};
use dormouse_runtime::{LocalBroker, Log, LogItem, Settings};
use tokio::sync::mpsc::Receiver;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Up(Child);

impl Drop for Up {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

fn start(data: &std::path::Path, runtime: &str) -> Up {
    let up = Command::new(env!("CARGO_BIN_EXE_dormouse"))
        .args([
            "up",
            "--nodes",
            "2",
            "--capacity",
            "cpu=64,memory=64Gi",
            "--runtime",
            runtime,
            "--data",
        ])
        .arg(data)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .env("RUST_LOG", "error")
        .stderr(Stdio::null())
        .spawn();
    Up(up.expect("dormouse up starts"))
}

async fn connect(data: &std::path::Path) -> Log {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(url) = LocalBroker::url_of(&data.join("broker"))
            && let Ok(log) = Log::connect(&Settings::new(url, "bench")).await
            && log.head().await.is_ok_and(|head| head >= Sequence(2))
        {
            return log;
        }
        assert!(Instant::now() < deadline, "the cluster did not start");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn document(name: &str, cpu: &str) -> Vec<u8> {
    format!(
        r#"{{"name":"{name}","kind":"batch","command":{{"start":["/bin/true"]}},"demand":{{"cpu":"{cpu}"}}}}"#
    )
    .into_bytes()
}

fn quantile(sorted: &[f64], q: f64) -> f64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index"
    )]
    let index = ((sorted.len() as f64 - 1.0) * q).round() as usize;
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

fn print_latency(name: &str, millis: &mut [f64]) -> (f64, f64) {
    millis.sort_by(f64::total_cmp);
    let (median, p99) = (quantile(millis, 0.5), quantile(millis, 0.99));
    println!("{name:<44} median {median:7.2} ms   p99 {p99:7.2} ms");
    (median, p99)
}

async fn wait_for(events: &mut Receiver<LogItem>, mut wanted: impl FnMut(&Event) -> bool) {
    while let Some(followed) = events.recv().await {
        if let LogItem::Event(recorded) = followed
            && recorded.event().is_some_and(&mut wanted)
        {
            return;
        }
    }
    panic!("the log ended");
}

async fn latency(log: &Log, tenant: &TenantId, jobs: usize) {
    let mut bare = Vec::new();
    for _ in 0..jobs {
        let started = Instant::now();
        let child = Command::new("/bin/true").spawn();
        bare.push(started.elapsed().as_secs_f64() * 1e3);
        let _ = child.expect("spawns").wait();
    }
    let (mut ours, mut hops) = (Vec::new(), Hops::default());
    for index in 0..jobs {
        ours.push(submit_to_started(log, tenant, &format!("latency-{index}"), &mut hops).await);
    }
    let (bare_median, bare_p99) = print_latency("fork and exec alone", &mut bare);
    let (median, p99) = print_latency("submit to container.started on the log", &mut ours);
    println!(
        "{:<44} {:+.2} ms at the median, {:+.2} ms at p99",
        "  beyond fork and exec",
        median - bare_median,
        p99 - bare_p99
    );
    hops.print();
}

const ROAD: [&str; 9] = [
    "submission.received.v1",
    "job.admitted.v1",
    "job.released.v1",
    "allocation.decided.v1",
    "placement.decided.v1",
    "partition.start_requested.v1",
    "container.started.v1",
    "container.exited.v1",
    "job.completed.v1",
];

#[derive(Default)]
struct Hops {
    last: Option<Timestamp>,
    millis: [Vec<f64>; ROAD.len()],
}

impl Hops {
    fn see(&mut self, recorded: &Recorded) {
        let name = recorded.event().map_or("", Event::type_name);
        let name = name.strip_prefix("dormouse.").unwrap_or(name);
        let Some(at) = ROAD.iter().position(|known| *known == name) else {
            return;
        };
        if at == 0 {
            self.last = None;
        }
        if let Some(last) = self.last.replace(recorded.stored_at) {
            self.millis[at].push(recorded.stored_at.seconds_since(last) * 1e3);
        }
    }

    fn print(&mut self) {
        for (name, millis) in ROAD.iter().zip(&mut self.millis).skip(1) {
            print_latency(&format!("    to {name}"), millis);
        }
    }
}

async fn submit_to_started(log: &Log, tenant: &TenantId, name: &str, hops: &mut Hops) -> f64 {
    let mut events = log.follow(log.head().await.expect("a head").next());
    let payload = document(name, "1").into();
    let (started, mut took) = (Instant::now(), f64::NAN);
    log.publish_ingress(tenant, "submit", "application/json", payload)
        .await
        .expect("published");
    loop {
        let Some(LogItem::Event(recorded)) = events.recv().await else {
            continue;
        };
        hops.see(&recorded);
        match recorded.event() {
            Some(Event::ContainerStarted(it)) if it.container.job.name() == name => {
                took = started.elapsed().as_secs_f64() * 1e3;
            }
            Some(Event::JobCompleted(it)) if it.job.name() == name => return took,
            _ => {}
        }
    }
}

async fn removed(engine: &Docker, job: &str) {
    let options = ListContainersOptions {
        all: true,
        filters: Some([("name".to_owned(), vec![format!("{job}\\.")])].into()),
        ..Default::default()
    };
    let list = async || engine.list_containers(Some(options.clone())).await;
    while !list().await.expect("listed").is_empty() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn counter(name: &str, max: u32) -> Vec<u8> {
    let start = r#"["python3","deploy/examples/count.py","--steps","1000000","--step-ms","20""#;
    format!(
        r#"{{"name":"{name}","command":{{"start":{start}],"resume":{start},"--resume"]}},"demand":{{"cpu":"16"}},"containers":{{"min":1,"max":{max}}},"checkpoint":{{"mode":"exit"}}}}"#
    )
    .into_bytes()
}

async fn resizes(log: &Log, tenant: &TenantId, count: usize) {
    let submit = async |verb: &str, payload: Vec<u8>| {
        let sent = log.publish_ingress(tenant, verb, "application/json", payload.into());
        sent.await.expect("published");
    };
    let mut events = log.follow(log.head().await.expect("a head").next());
    submit("submit", counter("resized", 8)).await;
    let (mut requested, mut saved_ms, mut other) = (None, 0.0, 0);
    let mut took = Vec::new();
    while took.len() < count {
        let Some(LogItem::Event(recorded)) = events.recv().await else {
            continue;
        };
        let ours = |job: &JobId| job.name() == "resized";
        match recorded.event() {
            Some(Event::CheckpointRequested(it)) if ours(&it.job) => {
                requested = Some(recorded.stored_at);
            }
            #[expect(clippy::cast_precision_loss, reason = "milliseconds")]
            Some(Event::CheckpointSaved(it)) if ours(&it.job) => saved_ms = it.duration_ms as f64,
            Some(Event::PartitionStarted(it)) if ours(&it.job) => {
                if let Some(requested) = requested.take() {
                    took.push(recorded.stored_at.seconds_since(requested) * 1e3 - saved_ms);
                }
                // The program must listen to signals first.
                tokio::time::sleep(Duration::from_millis(500)).await;
                // The other job alternates with the growth of ours.
                if it.containers == 8 {
                    other += 1;
                    submit("submit", counter(&format!("other-{other}"), 8)).await;
                } else {
                    submit(
                        "cancel",
                        format!(r#"{{"job":"other-{other}"}}"#).into_bytes(),
                    )
                    .await;
                }
            }
            _ => {}
        }
    }
    submit("cancel", br#"{"job":"resized"}"#.to_vec()).await;
    submit(
        "cancel",
        format!(r#"{{"job":"other-{other}"}}"#).into_bytes(),
    )
    .await;
    wait_for(
        &mut events,
        |event| matches!(event, Event::JobCancelled(it) if it.job.name() == "resized"),
    )
    .await;
    print_latency("resize, request to started, less the save", &mut took);
}

fn like_the_agents(dir: &std::path::Path) -> ContainerCreateBody {
    let own = [dir.join("own"), dir.join("checkpoint")];
    for folder in &own {
        std::fs::create_dir_all(folder).expect("a folder");
    }
    let own = own
        .iter()
        .map(|folder| format!("{0}:{0}", folder.display()));
    let system = ["/usr", "/lib", "/lib64", "/bin", "/etc/alternatives"];
    let binds: Vec<_> = own
        .chain(system.map(|folder| format!("{folder}:{folder}:ro")))
        .collect();
    ContainerCreateBody {
        image: Some("dormouse/empty".to_owned()),
        cmd: Some(vec!["/bin/true".to_owned()]),
        host_config: Some(HostConfig {
            network_mode: Some("host".to_owned()),
            init: Some(true),
            binds: Some(binds),
            cpu_period: Some(100_000),
            cpu_quota: Some(100_000),
            ..Default::default()
        }),
        ..Default::default()
    }
}

async fn docker(dir: &std::path::Path, jobs: usize) {
    let engine = async { Docker::connect_with_defaults()?.negotiate_version().await };
    let engine = match engine.await {
        Ok(engine) => engine,
        Err(error) => return println!("docker: left out, no engine answers: {error}"),
    };
    let body = like_the_agents(dir);
    let create_and_start = async |index: usize| {
        let name = format!("dormouse-bench-{index}");
        let options = CreateContainerOptions {
            name: Some(name.clone()),
            ..Default::default()
        };
        let started = Instant::now();
        engine
            .create_container(Some(options), body.clone())
            .await
            .expect("creates");
        engine.start_container(&name, None).await.expect("starts");
        let took = started.elapsed().as_secs_f64() * 1e3;
        // An engine is slower after a rest, and the agent's removals wait as long.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let force = RemoveContainerOptions {
            force: true,
            ..Default::default()
        };
        engine
            .remove_container(&name, Some(force))
            .await
            .expect("removes");
        took
    };
    let data = dir.join("docker");
    let up = start(&data, "docker");
    let log = connect(&data).await;
    let tenant: TenantId = "bench".parse().expect("valid");
    let (mut alone, mut ours, mut hops) = (Vec::new(), Vec::new(), Hops::default());
    for index in 0..jobs {
        alone.push(create_and_start(index).await);
        let name = format!("one-{index}");
        ours.push(submit_to_started(&log, &tenant, &name, &mut hops).await);
        removed(&engine, &name).await;
    }
    let mut at_once = Vec::new();
    for index in 0..jobs {
        let name = format!("next-{index}");
        at_once.push(submit_to_started(&log, &tenant, &name, &mut Hops::default()).await);
    }
    drop(up);
    let (alone, _) = print_latency("create and start through Docker's API", &mut alone);
    let (ours, _) = print_latency("submit to container.started, Docker", &mut ours);
    println!("{:<44} {:9.2}", "  ratio of the medians", ours / alone);
    hops.print();
    print_latency("  one at the end of the other, Docker", &mut at_once);
}

async fn throughput(log: &Log, tenant: &TenantId, submissions: usize) {
    let mut events = log.follow(log.head().await.expect("a head").next());
    let started = Instant::now();
    let publisher = {
        let (log, tenant) = (log.clone(), tenant.clone());
        tokio::spawn(async move {
            let mut publishing = tokio::task::JoinSet::new();
            for index in 0..submissions {
                let (log, tenant) = (log.clone(), tenant.clone());
                let payload = document(&format!("rush-{index}"), "64").into();
                publishing.spawn(async move {
                    log.publish_ingress(&tenant, "submit", "application/json", payload)
                        .await
                });
                while publishing.len() >= 256 {
                    publishing.join_next().await;
                }
            }
            while publishing.join_next().await.is_some() {}
            started.elapsed().as_secs_f64()
        })
    };
    let mut decided = 0;
    while decided < submissions {
        wait_for(&mut events, |event| {
            matches!(event, Event::JobAdmitted(_) | Event::JobRefused(_))
        })
        .await;
        decided += 1;
    }
    let seconds = started.elapsed().as_secs_f64();
    let published_s = publisher.await.expect("publishes");
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let rate = |seconds: f64| submissions as f64 / seconds;
    println!(
        "{:<44} {:9.0}/s",
        "submissions published to the ingress",
        rate(published_s)
    );
    println!(
        "{:<44} {:9.0}/s",
        "submissions decided on the log",
        rate(seconds)
    );
    println!("{:<44} {:9.2}", "  ratio", published_s / seconds);
}

const SET_CONTAINERS: usize = 2;

async fn task_set(log: &Log, tenant: &TenantId, tasks: usize) {
    let script = format!(
        "i=0; while [ $i -lt {} ]; do (exec /bin/true); i=$((i+1)); done",
        tasks / SET_CONTAINERS
    );
    let started = Instant::now();
    let shells: Vec<Child> = (0..SET_CONTAINERS)
        .map(|_| {
            let shell = Command::new("/bin/sh").args(["-c", &script]).spawn();
            shell.expect("a shell starts")
        })
        .collect();
    for mut shell in shells {
        shell.wait().expect("it ends");
    }
    let alone_s = started.elapsed().as_secs_f64();
    let before = log.head().await.expect("a head");
    let mut events = log.follow(before.next());
    let payload = format!(
        r#"{{"name":"set","kind":"batch","command":{{"start":["/bin/true"]}},"demand":{{"cpu":1}},"tasks":{{"count":{tasks},"concurrency":{SET_CONTAINERS}}}}}"#
    );
    let started = Instant::now();
    log.publish_ingress(
        tenant,
        "submit",
        "application/json",
        payload.into_bytes().into(),
    )
    .await
    .expect("stored");
    wait_for(&mut events, |event| matches!(event, Event::JobCompleted(_))).await;
    let seconds = started.elapsed().as_secs_f64();
    let head = log.head().await.expect("a head");
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let tasks = tasks as f64;
    println!(
        "{:<44} {:9.0}/s",
        "processes that two shells start",
        tasks / alone_s
    );
    println!(
        "{:<44} {:9.0}/s",
        "tasks of a set, ended on the log",
        tasks / seconds
    );
    println!("{:<44} {:9.2}", "  ratio", alone_s / seconds);
    println!("{:<44} {:9}", "  events", head.0 - before.0);
}

const SECTIONS: [&str; 5] = ["latency", "resize", "tasks", "throughput", "docker"];

fn main() {
    let numbers: Vec<usize> = std::env::args()
        .filter_map(|arg| arg.parse().ok())
        .collect();
    let jobs = numbers.first().copied().unwrap_or(200);
    let submissions = numbers.get(1).copied().unwrap_or(10_000);
    let named: Vec<String> = std::env::args()
        .filter(|arg| SECTIONS.contains(&arg.as_str()))
        .collect();
    let wants = |section: &str| named.is_empty() || named.iter().any(|name| name == section);
    let dir = tempfile::tempdir().expect("a folder");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let up = start(dir.path(), "process");
        let log = connect(dir.path()).await;
        let tenant: TenantId = "bench".parse().expect("valid");
        if wants("latency") {
            latency(&log, &tenant, jobs).await;
        }
        if wants("resize") {
            resizes(&log, &tenant, 20).await;
        }
        if wants("tasks") {
            task_set(&log, &tenant, 10 * submissions).await;
        }
        if wants("throughput") {
            throughput(&log, &tenant, submissions).await;
        }
        drop(up);
        if wants("docker") {
            docker(dir.path(), 30).await;
        }
    });
}
