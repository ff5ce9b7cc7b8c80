//! Whole-system figures, each as a ratio against a baseline measured in the same run.
//!
//! 1. Submit to process started, one job at a time, against fork and exec alone.
//! 2. Ten thousand submissions as fast as they can be published: decided a second, against the
//!    rate at which the same client publishes to the ingress stream.
//! 3. Folding: the read models over the log from the broker and from the compact archive.
//!
//! `cargo bench -p dormouse --bench system [jobs] [submissions]`

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dormouse_messages::{Event, Fold, Sequence, TenantId};
use dormouse_projections::ReadModel;
use dormouse_replay::{LogReader, LogWriter};
use dormouse_runtime::{Followed, LocalBroker, Log, Settings};
use tokio::sync::mpsc::Receiver;

struct Up(Child);

impl Drop for Up {
    fn drop(&mut self) {
        // SIGTERM ends the broker as well; it is given time to.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

fn start(data: &std::path::Path) -> Up {
    let up = Command::new(env!("CARGO_BIN_EXE_dormouse"))
        .args([
            "up",
            "--nodes",
            "2",
            "--capacity",
            "cpu=64,memory=64Gi",
            "--data",
        ])
        .arg(data)
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

async fn wait_for(events: &mut Receiver<Followed>, mut wanted: impl FnMut(&Event) -> bool) {
    while let Some(followed) = events.recv().await {
        if let Followed::Event(recorded) = followed
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
    let mut ours = Vec::new();
    let mut events = log.follow(log.head().await.expect("a head").next());
    for index in 0..jobs {
        let name = format!("latency-{index}");
        let started = Instant::now();
        let payload = document(&name, "1").into();
        log.publish_ingress(tenant, "submit", "application/json", payload)
            .await
            .expect("published");
        wait_for(
            &mut events,
            |event| matches!(event, Event::ContainerStarted(it) if it.job.name() == name),
        )
        .await;
        ours.push(started.elapsed().as_secs_f64() * 1e3);
        wait_for(
            &mut events,
            |event| matches!(event, Event::JobCompleted(it) if it.job.name() == name),
        )
        .await;
    }
    let (bare_median, _) = print_latency("fork and exec alone", &mut bare);
    let (median, _) = print_latency("submit to container.started on the log", &mut ours);
    println!(
        "{:<44} {:+.2} ms at the median",
        "  beyond fork and exec",
        median - bare_median
    );
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
                // 0.001 of a processor each, held back by memory: most of them queue.
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

async fn folds(log: &Log, dir: &std::path::Path) {
    let head = log.head().await.expect("a head");
    let archive = dir.join("log.dmlog");
    let mut writer = LogWriter::create(&archive, "bench").expect("creates");
    let mut events = log.read(Sequence(1), head).await.expect("reads");
    let mut from_broker = 0u32;
    let started = Instant::now();
    let mut kept = Vec::new();
    while let Some(followed) = events.recv().await {
        if let Followed::Event(recorded) = followed {
            from_broker += 1;
            kept.push(recorded);
        }
    }
    let read_s = started.elapsed().as_secs_f64();
    for recorded in &kept {
        writer.write(recorded).expect("writes");
    }
    writer.finish().expect("finishes");
    let started = Instant::now();
    let mut model = ReadModel::default();
    let mut from_archive = 0u32;
    for recorded in LogReader::open(&archive).expect("opens") {
        model.evolve(&recorded.expect("decodes"));
        from_archive += 1;
    }
    let archive_s = started.elapsed().as_secs_f64();
    println!(
        "{:<44} {:9.0}/s",
        "events read from the broker",
        f64::from(from_broker) / read_s
    );
    println!(
        "{:<44} {:9.0}/s",
        "events folded from the archive",
        f64::from(from_archive) / archive_s
    );
}

fn main() {
    let numbers: Vec<usize> = std::env::args()
        .filter_map(|arg| arg.parse().ok())
        .collect();
    let jobs = numbers.first().copied().unwrap_or(200);
    let submissions = numbers.get(1).copied().unwrap_or(10_000);
    let dir = tempfile::tempdir().expect("a folder");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let up = start(dir.path());
        let log = connect(dir.path()).await;
        let tenant: TenantId = "bench".parse().expect("valid");
        latency(&log, &tenant, jobs).await;
        throughput(&log, &tenant, submissions).await;
        folds(&log, dir.path()).await;
        drop(up);
    });
}
