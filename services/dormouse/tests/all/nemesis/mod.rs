//! Fault tests on hosts in network namespaces, with three brokers, two copies of every service and four
//! agents, under load.
//!
//! - `make cluster-test MINUTES=60 SEED=7` runs a fixed list of faults, then a plan from the seed, as
//!   reproducibly as timing allows; `DORMOUSE_NEMESIS_ONLY=KillAgent` selects steps. `cargo test` only tries
//!   the parts.
//! - `faults` plans, `deeds` applies faults; `net`, `ground` and `world` are hosts, disks and the cluster;
//!   `jobs` submits; `judge` checks.

mod deeds;
mod faults;
mod ground;
mod jobs;
mod judge;
mod net;
mod world;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use faults::{Fault, Step};
use jobs::{Submitted, Submitter};
use world::{Done, Took, World};

/// A busy machine is slow: only times beyond this factor are failures.
const LENIENCY: u32 = 5;
const SETTLING: Duration = Duration::from_secs(240);

struct Form {
    steps: Vec<Step>,
    rate: u32,
    each: u32,
}

fn given(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The thread moves among network namespaces.
fn on_hosts(form: Form) {
    let worker = std::thread::spawn(move || run(&form));
    if let Err(panic) = worker.join() {
        std::panic::resume_unwind(panic);
    }
}

fn settle(world: &mut World, submitted: &Submitted) {
    let until = Instant::now() + SETTLING;
    let mut left = Vec::new();
    while Instant::now() < until {
        world.pass(Duration::from_secs(1));
        let Some(log) = world.cluster.try_log() else {
            continue;
        };
        left = judge::unfinished(&log, submitted);
        if left.is_empty() {
            return world.say("all has ended");
        }
    }
    world.say(&format!("not all has ended: {left:?}"));
}

/// Jobs run as different users.
fn folder_for_all(dir: &Path) -> PathBuf {
    let folder = dir.join("records");
    std::fs::create_dir(&folder).expect("made");
    for (path, mode) in [(folder.as_path(), 0o777), (dir, 0o755)] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("set");
    }
    folder
}

fn still(world: &World, done: &[Done]) -> Vec<judge::Still> {
    let frozen = done.iter().filter_map(|it| match it.fault {
        Fault::FreezeNode { node } => Some((world.net.address(node), it.from.up, it.until.up)),
        _ => None,
    });
    frozen.collect()
}

fn times(took: &[Took]) -> Vec<String> {
    let mut kinds: BTreeMap<(&str, Duration), Vec<Duration>> = BTreeMap::new();
    for it in took {
        let kind = kinds.entry((&it.what, it.bound)).or_default();
        kind.push(it.time);
    }
    for ((what, bound), times) in &mut kinds {
        times.sort_unstable();
        let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
        let late = times.iter().filter(|it| *it > bound).count();
        let count = times.len();
        println!(
            "  {what}: {count} times, median {median:.1?}, most {most:.1?}, {late} over {bound:?}"
        );
    }
    for it in took
        .iter()
        .filter(|it| it.time > it.bound && !it.story.is_empty())
    {
        println!("  {:.1?}: {}", it.time, it.story);
    }
    let much_too_long = took.iter().filter(|it| it.time > LENIENCY * it.bound);
    let said = much_too_long.map(|it| format!("{} took {:.1?}", it.what, it.time));
    said.collect()
}

fn run(form: &Form) {
    let mut world = World::start();
    let folder = folder_for_all(world.cluster.dir());
    let log = world.log.clone();
    let submitter = Submitter::start(&world.runtime, log, folder.clone(), form.rate, form.each);
    let done = world.torment(&form.steps);
    let submitted = submitter.stop(&world.runtime);
    world.say("nothing is wrong any more");
    settle(&mut world, &submitted);

    let (log, records) = (world.cluster.log(), judge::records(&folder));
    let mut found = world.found.clone();
    let figures = judge::log(&log, &submitted, &mut found);
    let still = still(&world, &done);
    for (job, record) in &records {
        found.extend(judge::doubles(job, record, &still));
    }
    found.extend(judge::crowded(&records));
    let real = submitted.acknowledged.iter().filter(|it| it.real).count();
    if figures.completed < real || real == 0 {
        found.push(format!("{} of {real} jobs completed", figures.completed));
    }
    let mut took = world.took.clone();
    took.extend(judge::fail_overs(&log, &submitted, &done));
    found.extend(times(&took));
    world.say(&format!(
        "{} faults; {} submissions acknowledged, {real} of them real jobs, {} in doubt; {figures:?}; {} records",
        done.len(),
        submitted.acknowledged.len(),
        submitted.doubtful,
        records.len(),
    ));
    let file = world.cluster.log_file();
    assert_eq!(found, Vec::<String>::new(), "{}", file.display());
}

#[test]
fn a_cluster_survives_a_minute_of_faults() {
    if given("DORMOUSE_NEMESIS_MINUTES").is_none() {
        return println!("the nemesis is `make cluster-test`");
    }
    if let Some(why) = net::lacking() {
        return eprintln!(
            "SKIPPED: no hosts can be made here, and the nemesis does nothing: {why}"
        );
    }
    on_hosts(Form {
        steps: faults::short(),
        rate: 10,
        each: 10,
    });
}

#[test]
fn a_cluster_survives_its_nemesis() {
    let Some(minutes) = given("DORMOUSE_NEMESIS_MINUTES") else {
        return println!("the nemesis is `make cluster-test`");
    };
    let seed = given("DORMOUSE_NEMESIS_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("the nemesis: make cluster-test SEED={seed} MINUTES={minutes}");
    let lacking = net::lacking();
    assert_eq!(lacking, None, "no hosts can be made here");
    let mut steps = faults::plan(seed, minutes * 60_000);
    if let Ok(only) = std::env::var("DORMOUSE_NEMESIS_ONLY") {
        steps.retain(|step| step.faults.iter().any(|it| it.kind() == only));
    }
    on_hosts(Form {
        steps,
        rate: 10,
        each: 20,
    });
}
