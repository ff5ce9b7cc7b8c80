//! Tests of a tenant's disk share: each evasion in [`attempts.sh`](attempts.sh) (`disk`) is stopped, alone.
//! The engine's copies are bounded or counted.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::*;
use crate::containment::attempts;
use crate::docker;
use dormouse_messages::events::ContainerExited;
use dormouse_messages::job::JobSpec;
use dormouse_messages::{ContainerId, Event};
use dormouse_node_agent::config::Contain;
use dormouse_node_agent::{AgentConfig, LogBounds, RuntimeKind, log_parts, logs_path};

/// Less than an attempt writes.
const SHARE_BYTES: u64 = 8 << 20;

/// More than the attempts create.
const SHARE_FILES: u64 = 20_000;

/// Other tests use other users.
fn contained(kind: RuntimeKind) -> Contain {
    let first = match kind {
        RuntimeKind::Process => 210_000,
        RuntimeKind::Docker => 211_000,
    };
    Contain {
        uids: first..=first + 99,
        ..Contain::default()
    }
}

fn config(folder: &Path, kind: RuntimeKind, cluster: &str) -> AgentConfig {
    let mut config = local(node(), Default::default(), folder.to_owned());
    config.runtime = kind;
    config.cluster = format!("disk-{cluster}-{}", std::process::id());
    config.keep.tenant_bytes = Some(SHARE_BYTES);
    config.keep.tenant_files = Some(SHARE_FILES);
    config
}

fn sh(script: &str) -> JobSpec {
    spec(&["/bin/sh", "-c", script])
}

fn run(log: &FakeLog, tenant: &str, spec: JobSpec) -> ContainerId {
    let job: dormouse_messages::JobId = format!("{tenant}/lr").parse().expect("valid");
    let mut events = [admitted(spec), placed(1, 1), start(1, None)];
    match &mut events {
        [
            Event::JobAdmitted(admitted),
            Event::PlacementDecided(placed),
            Event::PartitionStartRequested(start),
        ] => {
            admitted.job = job.clone();
            admitted.spec.tenant = tenant.to_owned();
            placed.create[0].job = job.clone();
            start.job = job.clone();
        }
        _ => unreachable!("as they were made"),
    }
    for event in events {
        log.append(event);
    }
    ContainerId { job, ..id(1, 0) }
}

fn exits(log: &FakeLog) -> BTreeMap<ContainerId, ContainerExited> {
    let exits = log.events().into_iter().filter_map(|event| match event {
        Event::ContainerExited(exit) => Some((exit.container.clone(), *exit)),
        _ => None,
    });
    exits.collect()
}

fn end(log: &FakeLog, container: &ContainerId) {
    let mut stop = stop(1);
    if let Event::PartitionStopRequested(stop) = &mut stop {
        stop.job = container.job.clone();
    }
    log.append(stop);
    log.wait_exited(container);
}

/// Each check takes seconds.
fn wait_exits(log: &FakeLog, count: usize) -> BTreeMap<ContainerId, ContainerExited> {
    let until = Instant::now() + Duration::from_secs(90);
    loop {
        let exits = exits(log);
        if exits.len() >= count {
            return exits;
        }
        assert!(
            Instant::now() < until,
            "only these were stopped: {exits:#?}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn evade(kind: RuntimeKind) {
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let mut config = config(folder.path(), kind, "evade");
    config.contain = Some(contained(kind));
    let agent = Running::start(&log, config, false);
    log.wait_joined(1);
    let good = run(
        &log,
        "good",
        sh("head -c 100000 /dev/zero >f; exec sleep 1000"),
    );
    log.wait_started(&good);
    let attempts = attempts();
    let attempts: Vec<_> = attempts.iter().filter(|it| it.places == ["disk"]).collect();
    assert!(attempts.len() >= 10);
    for attempt in &attempts {
        let script = format!("{}\nexec sleep 1000", attempt.script);
        // Written files count as memory too.
        let mut spec = sh(&script);
        spec.demand = "cpu=1,memory=512Mi".parse().expect("valid");
        run(&log, attempt.name, spec);
    }
    let exits = wait_exits(&log, attempts.len());
    assert!(!exits.contains_key(&good), "{:?}", exits.get(&good));
    for (container, exit) in exits {
        let reason = exit.reason.unwrap_or_default();
        let bound = match container.job.tenant() {
            "many-files" => "--tenant-files",
            _ => "--tenant-storage",
        };
        assert!(
            reason.contains(bound) && !exit.evicted,
            "{container}: {reason}"
        );
    }
    end(&log, &good);
    agent.stop().expect("left in order");
}

#[test]
fn no_plain_process_evades_its_share_of_the_disk() {
    if !Contain::is_possible() {
        return skipped("only root builds sandboxes");
    }
    evade(RuntimeKind::Process);
}

#[test]
fn no_docker_container_evades_its_share_of_the_disk() {
    if !Contain::is_possible() || !docker::engine() {
        return;
    }
    evade(RuntimeKind::Docker);
}

#[test]
fn what_the_engine_keeps_of_a_container_counts() {
    if !Contain::is_possible() || !docker::engine() {
        return;
    }
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let agent = Running::start(
        &log,
        config(folder.path(), RuntimeKind::Docker, "layer"),
        false,
    );
    log.wait_joined(1);
    let fills = "head -c 20000000 /dev/zero >/large; exec sleep 1000";
    let container = run(&log, "ads", sh(fills));
    let exits = wait_exits(&log, 1);
    let reason = exits[&container].reason.clone().unwrap_or_default();
    assert!(reason.contains("--tenant-storage"), "{reason}");
    agent.stop().expect("left in order");
}

/// Bursts on demand; the agent is absent for one.
const BURSTS: &str = "import os, time
for burst, lines in enumerate((15, 15, 15, 15, 15, 10)):
    while not os.path.exists(f'go-{burst}'): time.sleep(.02)
    for line in range(lines): print(f'{burst}-{line:03} '.ljust(999, '.'), flush=True)
    open(f'gone-{burst}', 'w').close()
while True: time.sleep(1)";

fn engines_bytes(config: &AgentConfig, container: &ContainerId) -> u64 {
    let path = docker::log_file(config, container).display().to_string();
    let paths = [path.clone(), format!("{path}.1"), format!("{path}.2")];
    let files = paths.iter().filter_map(|path| fs::metadata(path).ok());
    files.map(|file| file.len()).sum()
}

fn is_noted(marks: &Path, what: &str) -> bool {
    let names = fs::read_dir(marks).into_iter().flatten().flatten();
    let notes = names.filter_map(|name| fs::read_to_string(name.path()).ok());
    notes.into_iter().any(|note| note.contains(what))
}

fn last_lines(stdout: &Path, count: usize) -> Vec<String> {
    let parts = log_parts(stdout);
    let parts = parts.iter().map(|it| fs::read_to_string(it).expect("read"));
    let text: String = parts.collect();
    let lines: Vec<_> = text.lines().map(|line| line[..5].to_owned()).collect();
    lines[lines.len().saturating_sub(count)..].to_vec()
}

#[test]
fn the_engines_own_copy_is_bounded_and_a_successor_goes_on_where_it_was() {
    if !docker::engine() {
        return;
    }
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let mut config = config(folder.path(), RuntimeKind::Docker, "copy");
    config.keep.log_bounds = LogBounds {
        bytes: 20_000,
        files: 2,
    };
    let agent = Running::start(&log, config.clone(), false);
    let script = format!("cd $(dirname $DORMOUSE_PROGRESS); exec python3 -c \"{BURSTS}\"");
    let container = run(&log, "ads", sh(&script));
    log.wait_started(&container);
    let own = config.layout().container(&container);
    let until = Instant::now() + Duration::from_secs(30);
    let wait = |what: &str, is_so: &dyn Fn() -> bool| {
        while !is_so() {
            assert!(Instant::now() < until, "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let logs = logs_path(folder.path(), &container).expect("a place");
    let ends_with = |line: &str| {
        let text = fs::read_to_string(&logs.stdout).unwrap_or_default();
        text.lines()
            .last()
            .is_some_and(|last| last.starts_with(line))
    };
    let burst = |number: u32| {
        fs::write(own.join(format!("go-{number}")), "").expect("written");
        wait("it prints", &|| own.join(format!("gone-{number}")).exists());
    };
    // Shorter than an engine file, so late copies lose nothing.
    for number in 0..4 {
        burst(number);
        wait("it is copied", &|| ends_with(&format!("{number}-014")));
    }
    let marks = config.layout().node().join("marks");
    wait("it is noted", &|| is_noted(&marks, "\"bytes\":60000"));
    agent.stop().expect("left in order");
    burst(4);
    let bytes = engines_bytes(&config, &container);
    assert!((1..60_000).contains(&bytes), "{bytes} bytes");
    let agent = Running::start(&log, config, false);
    log.wait_joined(2);
    wait("it is copied", &|| ends_with("4-014"));
    burst(5);
    wait("it is copied", &|| ends_with("5-009"));
    let expected = (0..10).map(|line| format!("5-{line:03}"));
    let expected = (0..15).map(|line| format!("4-{line:03}")).chain(expected);
    let expected: Vec<_> = expected.collect();
    assert_eq!(last_lines(&logs.stdout, 25), expected, "once, in order");
    // Readers continue at their byte offset.
    let noted = fs::read_to_string(own.join("stdout.log.starts")).unwrap_or_default();
    let start: u64 = noted
        .split(' ')
        .next()
        .and_then(|it| it.parse().ok())
        .unwrap_or(0);
    let length = fs::metadata(&logs.stdout).expect("there").len();
    assert_eq!(start + length, 85_000, "{noted}");
    end(&log, &container);
    agent.stop().expect("left in order");
}
