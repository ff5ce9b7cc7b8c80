//! The page's speed on a long log. `DORMOUSE_JOBS` sets its jobs (default 100,000: a million events).

use std::sync::Arc;
use std::time::{Duration, Instant};

use dormouse_messages::{Recorded, Sequence, Timestamp};
use dormouse_state::history::History;
use dormouse_web::answers;
use dormouse_web::site::Site;
use dormouse_web::{Page, Past};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const LIVE: usize = 2_000;
const NODES: usize = 1_000;
const TENANTS: usize = 20;
const DRAGS: u64 = 200;
const EXPLAINED: u64 = 20;

fn name(job: usize) -> String {
    format!("t{}/j{job:06}", job % TENANTS)
}

/// An arrival: a job starts and reports, and the oldest one ends.
fn step(job: usize) -> History {
    let (mut history, id, epoch) = (History::default(), name(job), job as u64 + 1);
    let node = format!("n{:04}", job % NODES);
    history
        .submit(&id)
        .release(&id)
        .allocate(epoch, &[(&id, 0, 1)], &[])
        .place(epoch, &id, 1, &[(&node, 1)])
        .request_start(epoch, &id, 1, 1)
        .container_started(&id, 1, 0, &node)
        .started(epoch, &id, 1, 1)
        .progress(&id, 1, 10, 0.5);
    if let Some(oldest) = job.checked_sub(LIVE) {
        history.complete(&name(oldest));
    }
    history
}

fn read(past: &Past, jobs: usize) {
    let (mut sequence, mut second) = (0_u64, 0_i64);
    let mut push = |history: History| {
        let events = history.log.into_iter().map(|mut recorded: Recorded| {
            sequence += 1;
            second += 1;
            recorded.sequence = Sequence(sequence);
            recorded.stored_at = Timestamp::from_micros(second * 100_000);
            Arc::new(recorded)
        });
        past.push(events).expect("kept");
    };
    let mut nodes = History::default();
    for node in 0..NODES {
        nodes.join(&format!("n{node:04}"), 1);
    }
    push(nodes);
    for job in 0..jobs {
        push(step(job));
    }
    past.caught_up();
}

fn view(site: &Site, at: u64) -> usize {
    let question = format!("at={at}&sort=admitted&descending=true");
    let state = serde_urlencoded::from_str(&question).expect("a question");
    let jobs = serde_urlencoded::from_str(&question).expect("a question");
    let state = answers::state(site, &state).expect("an answer");
    let jobs = answers::jobs(site, &jobs).expect("an answer");
    let bytes = |it: serde_json::Result<Vec<u8>>| it.expect("JSON").len();
    bytes(serde_json::to_vec(&state)) + bytes(serde_json::to_vec(&jobs))
}

fn memory_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"));
    let kib = line.and_then(|it| it.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

fn main() {
    // `cargo test --benches` only checks that the benchmark runs.
    let tested = !std::env::args().any(|it| it == "--bench");
    let asked = std::env::var("DORMOUSE_JOBS")
        .ok()
        .and_then(|it| it.parse().ok());
    let jobs = asked.unwrap_or(if tested { 2_500 } else { 100_000 });
    let page = Page::new(Past::new("bench", false));
    let site = Site {
        page: page.clone(),
        describe: |event| event.subject_name().to_owned(),
        build: "bench".into(),
    };
    let begun = Instant::now();
    read(&page.past, jobs);
    let head = page.past.head();
    println!(
        "{jobs} jobs, {} events: made and read in {:.1?}, {} MiB",
        head.events,
        begun.elapsed(),
        memory_mib()
    );
    let begun = Instant::now();
    let bytes = view(&site, head.head.0);
    println!("first view: {:.1?}, {} KiB", begun.elapsed(), bytes / 1024);
    let mut took: Vec<Duration> = Vec::new();
    for drag in 1..=DRAGS {
        let at = 1 + drag.wrapping_mul(0x9e37_79b9_7f4a_7c15) % head.head.0;
        let begun = Instant::now();
        view(&site, at);
        took.push(begun.elapsed());
    }
    took.sort_unstable();
    let part = |tenths: usize| took[(took.len() - 1) * tenths / 20];
    println!(
        "a drag: median {:.1?}, p95 {:.1?}, most {:.1?}; {} MiB",
        part(10),
        part(19),
        part(20),
        memory_mib()
    );
    explained(&site, jobs);
}

/// Scattered places, folded from the nearest kept fork.
fn explained(site: &Site, jobs: usize) {
    let head = site.page.past.head().head.0;
    let mut took: Vec<Duration> = Vec::new();
    for place in 1..=EXPLAINED {
        let at = head / 10 + place.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (head * 9 / 10);
        let newest = usize::try_from(at).unwrap_or(0) * jobs / usize::try_from(head).unwrap_or(1);
        let id = name(newest.saturating_sub(LIVE / 2));
        let question = format!("at={at}&kind=job&id={id}");
        let question = serde_urlencoded::from_str(&question).expect("a question");
        let begun = Instant::now();
        answers::explain(site, &question).expect("an answer");
        took.push(begun.elapsed());
    }
    let first = took[0];
    took.sort_unstable();
    println!(
        "explained: first {first:.1?}, median {:.1?}, most {:.1?}; {} MiB",
        took[took.len() / 2],
        took[took.len() - 1],
        memory_mib()
    );
}
