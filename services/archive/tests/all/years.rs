//! A log of years: the size of its archive, the archive's cost, and the time that everybody needs who starts from
//! it. `make bench-years` measures millions of events, optimised.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use dormouse_admission::AdmissionState;
use dormouse_agent_core::state::AgentState;
use dormouse_archive::{Archive, ArchiveError, Folds, Start};
use dormouse_messages::{Fold, JobId, Recorded, Sequence};
use dormouse_projections::ReadModel;
use dormouse_replay::history::explain::{Explainer, SOLVES, Subject};
use dormouse_replay::history::slice::States;
use dormouse_replay::log_file::Row;
use dormouse_replay::scenario::generate::{Kind, Size, generate};
use dormouse_replay::scenario::read_value;
use dormouse_replay::simulate::{Options, simulate};
use dormouse_runtime::Log;
use dormouse_state::ClusterState;
use nix::sys::resource::{UsageWho, getrusage};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::common::Cluster;

/// Jobs a day of the simulated cluster: its queues are short at night.
const JOBS_A_DAY: f64 = 600.0;

const MOMENTS: u64 = 12;

/// The measurements.
struct Figures {
    events: u64,
    segments: u64,
    /// The segments' size, without states.
    bytes: u64,
    states_bytes: u64,
    archive_cpu_s: f64,
    joins_s: Vec<(&'static str, f64)>,
    state_s: Vec<f64>,
    explain_s: Vec<f64>,
    folded_a_second: f64,
}

/// Simulates a cluster's years on another thread, event by event.
fn years(jobs: u32, segment_events: u32) -> impl Iterator<Item = Result<Recorded, String>> {
    let size = Size {
        jobs,
        nodes: 12,
        days: f64::from(jobs) / JOBS_A_DAY,
    };
    let mut scenario = generate(Kind::Trace, 3, size);
    scenario["policy"]["allocation"] = json!("drf");
    scenario["policy"]["archive"] =
        json!({"segment_events": segment_events, "segment_hours": 8_760});
    let (events, made) = sync_channel(10_000);
    std::thread::spawn(move || {
        let scenario = read_value(scenario).expect("a scenario");
        let each = |recorded: &Arc<Recorded>| {
            let sent = events.send(Ok((**recorded).clone()));
            sent.map_err(|_| "nobody reads it".to_owned())
        };
        simulate(&scenario, &Options::default(), each, |_| {}).expect("simulates");
    });
    made.into_iter()
}

fn cpu_s() -> f64 {
    let used = getrusage(UsageWho::RUSAGE_SELF).expect("a number");
    let seconds =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    seconds(used.user_time()) + seconds(used.system_time())
}

async fn join<F: Fold>(log: &Log) -> (&'static str, f64) {
    let begun = Instant::now();
    let joined = log.folded::<F>().await.expect("joins");
    let took_s = begun.elapsed().as_secs_f64();
    assert_eq!(
        joined.sequence,
        log.head().await.expect("a head"),
        "{}",
        F::NAME
    );
    (F::NAME, took_s)
}

/// Returns the states after `at`, as `log state` finds them.
async fn state_at(archive: &Archive, at: Sequence) -> States {
    let start = archive.start(Some(at), None).await.expect("a start");
    let mut states = start.states.clone().unwrap_or_default();
    let each = |row: Row| {
        let is_within = row.sequence() <= at;
        if let Row::Event(recorded) = &row
            && is_within
        {
            states.read(recorded);
        }
        Ok::<_, ArchiveError>(is_within)
    };
    archive.read(&start, each).await.expect("reads");
    states
}

async fn explain_at(archive: &Archive, job: JobId, at: Sequence) {
    let start = archive.start(Some(at), None).await.expect("a start");
    let states = start.states.clone().unwrap_or_default();
    let explainer = Explainer::new(Subject::Job(job), None, SOLVES);
    let mut explainer = explainer.starting_from(states.fork, states.model);
    let each = |row: Row| {
        let is_within = row.sequence() <= at;
        if let Row::Event(recorded) = row
            && is_within
        {
            explainer.read(&Arc::new(recorded));
        }
        Ok::<_, ArchiveError>(is_within)
    };
    archive.read(&start, each).await.expect("reads");
    let explained = explainer.explain();
    assert!(explained.is_ok(), "{:?}", explained.err());
}

/// Returns a job that waits or runs then.
fn some_job(states: &States) -> Option<JobId> {
    states.fork.cluster.live().next().map(|(id, _)| id.clone())
}

/// Folds whole segments for some seconds; returns the events a second of one core.
async fn fold_rate(archive: &Archive) -> f64 {
    let mut folds = Folds::default();
    let (begun, mut count) = (cpu_s(), 0.0);
    let each = |row: Row| {
        folds.read(&row);
        count += 1.0;
        Ok::<_, ArchiveError>(count < 1_000_000.0)
    };
    archive.read(&Start::default(), each).await.expect("reads");
    count / (cpu_s() - begun)
}

async fn measure(jobs: u32, segment_events: u32) -> (Figures, Cluster) {
    let cluster = Cluster::start(&[]).await;
    let log = &cluster.log;
    let events = log.import(years(jobs, segment_events), None).await;
    let events = events.expect("imports");
    let before = cpu_s();
    let stop = CancellationToken::new();
    let archiver = cluster.archiver("a", &stop);
    let archive = cluster.archive();
    let segments = events / u64::from(segment_events);
    while archive.newest_number().await.expect("answers") < segments {
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!archiver.is_finished(), "the archiver ended");
    }
    let patience = Duration::from_secs(3_600);
    cluster
        .archived_after(Sequence(0), segments, patience)
        .await;
    let archive_cpu_s = cpu_s() - before;
    stop.cancel();
    archiver.await.expect("joins").expect("stops");
    let (mut bytes, mut states_bytes) = (0, 0);
    for number in 1..=segments {
        let manifest = archive.manifest(number).await.expect("there").manifest;
        bytes += manifest.segment.bytes;
        states_bytes += manifest
            .states
            .iter()
            .map(|it| it.object.bytes)
            .sum::<u64>();
        assert_eq!(manifest.decisions.findings, 0, "segment {number}");
    }
    let joins_s = vec![
        join::<ClusterState>(log).await,
        join::<AdmissionState>(log).await,
        join::<ReadModel>(log).await,
        join::<AgentState>(log).await,
    ];
    let archived = segments * u64::from(segment_events);
    let (mut state_s, mut explain_s) = (Vec::new(), Vec::new());
    for moment in 1..=MOMENTS {
        // The worst place: just before a segment's states.
        let at = Sequence(archived * moment / (MOMENTS + 1));
        let begun = Instant::now();
        let states = state_at(&archive, at).await;
        state_s.push(begun.elapsed().as_secs_f64());
        if let Some(job) = some_job(&states) {
            let begun = Instant::now();
            explain_at(&archive, job, at).await;
            explain_s.push(begun.elapsed().as_secs_f64());
        }
    }
    let folded_a_second = fold_rate(&archive).await;
    let figures = Figures {
        events: archived,
        segments,
        bytes,
        states_bytes,
        archive_cpu_s,
        joins_s,
        state_s,
        explain_s,
        folded_a_second,
    };
    (figures, cluster)
}

fn most(of: &[f64]) -> f64 {
    of.iter().copied().fold(0.0, f64::max)
}

impl Figures {
    fn bytes_an_event(&self) -> f64 {
        self.bytes as f64 / self.events as f64
    }

    /// Returns the per cent of one core at 100 events a second.
    fn share_at_100(&self) -> f64 {
        100.0 * self.archive_cpu_s / self.events as f64
    }

    fn print(&self) {
        println!("{} events in {} segments", self.events, self.segments);
        println!(
            "{:.1} bytes an event, {} of states",
            self.bytes_an_event(),
            self.states_bytes
        );
        println!(
            "archiving takes {:.1} % of a core at 100 events/s",
            100.0 * self.share_at_100()
        );
        for (name, took_s) in &self.joins_s {
            println!("{name} joins in {took_s:.2} s");
        }
        println!(
            "the state of a moment: {:.2} s at most",
            most(&self.state_s)
        );
        println!("explain there: {:.2} s at most", most(&self.explain_s));
        println!("{:.0} events/s of one core folded", self.folded_a_second);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archive_is_small_and_everybody_starts_from_its_states() {
    let (figures, _cluster) = measure(1_500, 4_000).await;
    figures.print();
    assert!(figures.segments >= 3);
    assert!(figures.bytes_an_event() < 60.0);
    // Bounds for a busy machine and an unoptimised build.
    assert!(most(&figures.state_s) < 10.0 && most(&figures.explain_s) < 30.0);
    assert!(figures.joins_s.iter().all(|(_, took_s)| *took_s < 10.0));
}

/// `up` on a folder: the time until it answers, and its memory a little later.
fn up(program: &str, data: &Path) -> (f64, u64) {
    let begun = Instant::now();
    let mut child = Command::new(program)
        .args(["up", "--nodes", "1", "--data"])
        .arg(data)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let answers = || {
        let mut asking = Command::new(program);
        asking.args(["jobs", "--limit", "1", "--data"]).arg(data);
        let asked = asking.stdout(Stdio::null()).stderr(Stdio::null()).status();
        asked.is_ok_and(|it| it.success())
    };
    while !answers() {
        assert!(
            begun.elapsed() < Duration::from_secs(300),
            "it does not answer"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let took_s = begun.elapsed().as_secs_f64();
    std::thread::sleep(Duration::from_secs(20));
    let memory = resident(&child);
    let ended = Command::new("kill").arg(child.id().to_string()).status();
    ended.expect("asked to end");
    child.wait().expect("ends");
    (took_s, memory)
}

fn resident(child: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
    let status = status.expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|it| it.trim().split(' ').next()?.parse::<u64>().ok());
    kib.expect("a number") << 10
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "minutes: make bench-years"]
async fn figures_of_years() {
    let jobs = std::env::var("DORMOUSE_YEARS_JOBS").ok();
    let jobs = jobs.and_then(|it| it.parse().ok()).unwrap_or(250_000);
    let (figures, cluster) = measure(jobs, 200_000).await;
    figures.print();
    let Ok(program) = std::env::var("DORMOUSE_YEARS_UP") else {
        return;
    };
    let Cluster {
        broker,
        log,
        folder,
    } = cluster;
    log.close().await;
    broker.stop().await;
    let empty = tempfile::tempdir().expect("a folder");
    for (what, data) in [("an empty log", empty.path()), ("this log", folder.path())] {
        let (took_s, memory) = up(&program, data);
        println!(
            "up with {what} answers in {took_s:.2} s and holds {} MB",
            memory / 1_000_000
        );
    }
}
