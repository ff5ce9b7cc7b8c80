//! Measures how fast a log folds into the read models and how fast an archive is written. Without a log,
//! a trace is simulated. The printed hash of the folded state must not change with an optimisation.
//!
//! `cargo bench -p dormouse-replay --bench fold [LOG.parquet] [events] [memory|decoded|folded]`

mod trace;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::Instant;

use dormouse_messages::{Fold, Recorded};
use dormouse_projections::ReadModel;
use dormouse_replay::{LogFileError, LogReader, LogWriter};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A short log is read repeatedly until this many events have passed.
const EVENTS: u64 = 1_000_000;

fn main() {
    let dir = tempfile::tempdir().expect("a folder");
    let given = std::env::args().find(|arg| arg.ends_with(".parquet"));
    let log = given.map_or_else(|| simulated(dir.path()), PathBuf::from);
    let kept: Vec<Recorded> = read(&log).collect();
    let events = kept.len() as u64;
    let wanted = std::env::args().find_map(|arg| arg.parse().ok());
    let times = wanted.unwrap_or(EVENTS).div_ceil(events.max(1));
    println!("{events} events, {times} times");
    let log = dir.path().join("again.parquet");
    measure("written", events, 1, || write(&log, &kept));
    let bytes = std::fs::metadata(&log).map_or(0, |file| file.len());
    println!("{:<20} {:>10} bytes an event", "", bytes / events.max(1));
    let sections = ["decoded", "memory", "folded"];
    let named: Vec<String> = std::env::args()
        .filter(|arg| sections.contains(&arg.as_str()))
        .collect();
    let wants = |section: &str| named.is_empty() || named.iter().any(|name| name == section);
    if wants("memory") {
        measure("folded from memory", events, times, || fold(&kept));
    }
    drop(kept);
    if wants("decoded") {
        measure("decoded", events, times, || {
            let mut count = 0;
            let each = |_: &Recorded| {
                count += 1;
                Ok::<(), LogFileError>(())
            };
            let reader = LogReader::open(&log).expect("opens");
            reader.look(each).expect("decodes");
            assert_eq!(count, events);
        });
    }
    if !wants("folded") {
        return;
    }
    let mut model = ReadModel::default();
    measure("decoded and folded", events, times, || {
        model = ReadModel::default();
        let reader = LogReader::open(&log).expect("opens");
        let each = |recorded: &Recorded| {
            model.evolve(recorded);
            Ok::<(), LogFileError>(())
        };
        reader.look(each).expect("decodes");
    });
    let state = serde_json::to_vec(&model).expect("encodes");
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    println!("state {:016x} of {} bytes", hasher.finish(), state.len());
}

fn write(log: &Path, events: &[Recorded]) {
    let mut writer = LogWriter::create(log, "bench").expect("creates");
    for recorded in events {
        writer.write(recorded).expect("writes");
    }
    writer.finish().expect("finishes");
}

fn fold(events: &[Recorded]) {
    let mut model = ReadModel::default();
    for recorded in events {
        model.evolve(recorded);
    }
}

fn read(log: &Path) -> impl Iterator<Item = Recorded> {
    let reader = LogReader::open(log).expect("opens");
    reader.map(|recorded| recorded.expect("decodes"))
}

#[expect(clippy::cast_precision_loss, reason = "a rate")]
fn measure(name: &str, events: u64, times: u64, mut once: impl FnMut()) {
    let (cpu_s, started) = (processor_s(), Instant::now());
    for _ in 0..times {
        once();
    }
    let (wall_s, cpu_s) = (started.elapsed().as_secs_f64(), processor_s() - cpu_s);
    let all = (events * times) as f64;
    println!(
        "{name:<20} {:>10.0}/s, {:.2} µs of processor time each",
        all / wall_s,
        cpu_s * 1e6 / all
    );
}

/// In ticks of 10 ms: `utime` and `stime` of proc(5).
fn processor_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = stat.split(' ').skip(13).take(2);
    ticks
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum::<f64>()
        / 100.0
}

fn simulated(dir: &Path) -> PathBuf {
    let path = dir.join("log.parquet");
    let mut writer = LogWriter::create(&path, "bench").expect("creates");
    trace::simulated(|recorded| {
        let written = writer.write(recorded);
        written.map_err(|error| error.to_string())
    });
    writer.finish().expect("finishes");
    path
}
