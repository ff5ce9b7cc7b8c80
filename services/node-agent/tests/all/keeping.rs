//! Tests of durable checkpoints, bounded logs and node faults.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::*;
use dormouse_messages::events::{CheckpointSaved, JobCompleted, NodeFault, TenantGranted};
use dormouse_messages::grants::Grants;
use dormouse_messages::job::{CheckpointMode, JobSpec};
use dormouse_messages::{Event, Incarnation, Rank};
use dormouse_node_agent::{AgentConfig, LogBounds, log_parts, logs_path};

fn config(folder: &Path) -> AgentConfig {
    local(node(), Default::default(), folder.to_owned())
}

fn sh(script: &str) -> JobSpec {
    let mut spec = spec(&["/bin/sh", "-c", script]);
    spec.checkpoint.mode = CheckpointMode::Continue;
    spec.checkpoint.signal = "SIGUSR1".to_owned();
    spec
}

fn saved(log: &FakeLog, step: u64) -> CheckpointSaved {
    log.wait("checkpoint.saved", |event| match event {
        Event::CheckpointSaved(event) if event.step == step => Some((**event).clone()),
        _ => None,
    })
}

/// The second save stays incomplete.
const TEARS: &str = r#"
cd $DORMOUSE_CHECKPOINT_DIR
trap 'echo first >model; echo "{\"step\":1,\"bytes\":6}" >new; mv new checkpoint.json' USR1
trap 'printf sec >model; exit 9' TERM
echo ready
while :; do sleep 0.02; done"#;

#[test]
fn a_torn_second_save_leaves_the_first_one_whole() {
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let agent = Running::start(&log, config(folder.path()), false);
    log.append(admitted(sh(TEARS)));
    log.append(placed(1, 1));
    log.append(start(1, None));
    wait_ready(folder.path(), &id(1, 0));
    log.append(save(1));
    let first = saved(&log, 1);
    log.append(stop(1));
    assert_eq!(log.wait_exited(&id(1, 0)).exit_code, Some(9));
    log.append(admitted(sh("cat $DORMOUSE_RESUME_FROM/model")));
    log.append(placed(2, 1));
    log.append(start(2, Some(&first.uri)));
    assert_eq!(log.wait_exited(&id(2, 0)).exit_code, Some(0));
    let logs = logs_path(folder.path(), &id(2, 0)).expect("logs");
    assert_eq!(fs::read_to_string(logs.stdout).expect("read"), "first\n");
    agent.stop().expect("left in order");
}

#[test]
fn a_checkpoint_that_cannot_be_read_is_said_and_costs_the_job_nothing() {
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let agent = Running::start(&log, config(folder.path()), false);
    let torn = folder.path().join("checkpoints/ads/lr/7");
    fs::create_dir_all(&torn).expect("made");
    fs::write(torn.join("checkpoint.json"), "{\"step\":").expect("written");
    let uri = format!("file://{}", torn.display());
    log.append(admitted(sh("true")));
    log.append(placed(8, 1));
    log.append(start(8, Some(&uri)));
    let exit = log.wait_exited(&id(8, 0));
    assert!(exit.evicted, "{exit:?}");
    let rejected = log.wait("checkpoint.rejected", |event| match event {
        Event::CheckpointRejected(event) => Some((**event).clone()),
        _ => None,
    });
    assert_eq!(rejected.uri, uri);
    assert!(rejected.reason.contains("checkpoint.json"), "{rejected:?}");
    agent.stop().expect("left in order");
}

/// Fails if it finds anything of another job; rank 1 only prints.
const ALONE: &str = r#"
echo "rank $DORMOUSE_RANK of $1"
[ "$DORMOUSE_RANK" = 0 ] || exit 0
[ -z "$(ls -A $DORMOUSE_CHECKPOINT_DIR)" ] && [ ! -e "$DORMOUSE_PROGRESS" ] || exit 9
echo "{\"step\":$1,\"bytes\":1}" >$DORMOUSE_CHECKPOINT_DIR/new
mv $DORMOUSE_CHECKPOINT_DIR/new $DORMOUSE_CHECKPOINT_DIR/checkpoint.json
echo "{\"step\":$1}" >$DORMOUSE_PROGRESS"#;

#[test]
fn a_later_job_of_a_name_finds_nothing_of_the_one_before() {
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let config = config(folder.path());
    let layout = config.layout();
    let agent = Running::start(&log, config, false);
    let run = |step: &str, ranks: u32| {
        let mut spec = sh(ALONE);
        spec.command
            .start
            .extend(["job".to_owned(), step.to_owned()]);
        let admitted = log.append(admitted(spec));
        log.append(placed(1, ranks));
        log.append(start(1, None));
        let exits = || log.count(|event| matches!(event, Event::ContainerExited(_)));
        let all = exits() + ranks as usize;
        until("every container exits", || exits() == all);
        let saved = saved(&log, step.parse().expect("a step"));
        log.append(JobCompleted {
            job: job(),
            reason: String::new(),
            attempts: 0,
            basis: None,
        });
        (admitted, saved.uri)
    };
    let (first, first_uri) = run("1", 2);
    assert_eq!(layout.ranks(&job(), Incarnation(1)), [Rank(0), Rank(1)]);
    let (second, second_uri) = run("2", 1);
    let place = |admitted| format!("/checkpoints/ads/lr/{admitted}/1.1");
    assert!(first_uri.ends_with(&place(first)), "{first_uri}");
    assert!(second_uri.ends_with(&place(second)), "{second_uri}");
    assert_eq!(layout.ranks(&job(), Incarnation(1)), [Rank(0)]);
    let logs = logs_path(folder.path(), &id(1, 0)).expect("logs");
    let printed = fs::read_to_string(logs.stdout).expect("read");
    assert_eq!(printed, "rank 0 of 2\n");
    agent.stop().expect("left in order");
}

#[test]
fn old_checkpoints_go_and_the_newest_stay() {
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let agent = Running::start(&log, config(folder.path()), false);
    log.append(admitted(sh(r#"
n=0; cd $DORMOUSE_CHECKPOINT_DIR
trap 'n=$((n+1)); echo "{\"step\":$n}" >new; mv new checkpoint.json' USR1
echo ready
while :; do sleep 0.02; done"#)));
    log.append(placed(1, 1));
    log.append(start(1, None));
    wait_ready(folder.path(), &id(1, 0));
    for step in 1..=4 {
        log.append(save(1));
        saved(&log, step);
    }
    let until = Instant::now() + Duration::from_secs(5);
    let kept = || {
        let entries = fs::read_dir(checkpoints(folder.path())).expect("read");
        let names = entries.flatten().map(|entry| entry.file_name());
        let mut names: Vec<_> = names.filter_map(|name| name.into_string().ok()).collect();
        names.sort();
        names
    };
    while kept() != ["1", "1.3", "1.4"] {
        assert!(Instant::now() < until, "{:?}", kept());
        std::thread::sleep(Duration::from_millis(20));
    }
    log.append(stop(1));
    log.wait_exited(&id(1, 0));
    agent.stop().expect("left in order");
}

#[test]
fn what_a_container_prints_is_bounded() {
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let mut config = config(folder.path());
    config.keep.log_bounds = LogBounds {
        bytes: 10_000,
        files: 2,
    };
    let agent = Running::start(&log, config, false);
    log.append(admitted(sh(
        "for i in 1 2 3 4 5 6; do head -c 20000 /dev/zero; sleep 0.6; done; echo end",
    )));
    log.append(placed(1, 1));
    log.append(start(1, None));
    assert_eq!(log.wait_exited(&id(1, 0)).exit_code, Some(0));
    let logs = logs_path(folder.path(), &id(1, 0)).expect("logs");
    let parts = log_parts(&logs.stdout);
    assert_eq!(parts.len(), 2, "{parts:?}");
    let bytes: u64 = parts
        .iter()
        .map(|part| fs::metadata(part).expect("there").len())
        .sum();
    assert!(bytes < 80_000, "{bytes} of 120,000 bytes are left");
    assert!(fs::read(&parts[1]).expect("read").ends_with(b"end\n"));
    agent.stop().expect("left in order");
}

#[test]
fn a_start_that_fails_for_the_nodes_reason_is_told_apart() {
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let mut config = config(folder.path());
    config.checkpoint_dir = folder.path().join("not-mounted");
    let agent = Running::start(&log, config, false);
    log.wait_joined(1);
    log.append(admitted(sh("true")));
    let uri = format!("file://{}/not-mounted/ads/lr/1.1", folder.path().display());
    log.append(placed(2, 1));
    // The file system disappears after the directories were created.
    std::thread::sleep(Duration::from_millis(200));
    let _ = fs::remove_dir_all(folder.path().join("not-mounted"));
    log.append(start(2, Some(&uri)));
    let exit = log.wait_exited(&id(2, 0));
    assert!(exit.evicted, "{exit:?}");
    let fault = log.wait("node.faulted", |event| match event {
        Event::NodeFaulted(event) => Some(event.fault),
        _ => None,
    });
    assert_eq!(fault, NodeFault::Checkpoints);
    assert_eq!(
        log.count(|event| matches!(event, Event::CheckpointRejected(_))),
        0
    );
    log.append(admitted(spec(&["no-such-program-here"])));
    log.append(placed(3, 1));
    log.append(start(3, None));
    assert!(!log.wait_exited(&id(3, 0)).evicted);
    assert_eq!(log.count(|event| matches!(event, Event::NodeFaulted(_))), 1);
    agent.stop().expect("left in order");
}

#[test]
fn a_full_share_stops_its_tenant_with_a_reason_and_nobody_else() {
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let mut config = config(folder.path());
    config.keep.tenant_bytes = Some(8 << 20);
    a_full_share_stops_its_tenant(config, &log, "--tenant-storage");
}

#[test]
fn a_share_that_is_granted_on_the_log_stops_its_tenant_alike() {
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    log.append(TenantGranted {
        tenant: "ads".parse().expect("a tenant"),
        grants: Grants {
            max_storage: Some(8 << 20),
            ..Grants::default()
        },
    });
    let config = config(folder.path());
    a_full_share_stops_its_tenant(config, &log, "dormouse tenant grant ads --max-storage");
}

fn a_full_share_stops_its_tenant(config: AgentConfig, log: &FakeLog, bound: &str) {
    let agent = Running::start(log, config, false);
    let other: dormouse_messages::JobId = "other/lr".parse().expect("valid");
    let container = |job: &dormouse_messages::JobId| dormouse_messages::ContainerId {
        job: job.clone(),
        ..id(1, 0)
    };
    let fills =
        "head -c 20000000 /dev/zero >$DORMOUSE_CHECKPOINT_DIR/big; while :; do sleep 0.05; done";
    log.append(admitted(sh(fills)));
    log.append(placed(1, 1));
    log.append(start(1, None));
    let mut events = [
        admitted(sh("while :; do sleep 0.05; done")),
        placed(1, 1),
        start(1, None),
    ];
    match &mut events {
        [
            Event::JobAdmitted(job),
            Event::PlacementDecided(placed),
            Event::PartitionStartRequested(start),
        ] => {
            job.job = other.clone();
            job.spec.tenant = "other".to_owned();
            placed.create[0].job = other.clone();
            start.job = other.clone();
        }
        _ => unreachable!("as they were made"),
    }
    for event in events {
        log.append(event);
    }
    log.wait_started(&container(&other));
    let exit = log.wait_exited(&id(1, 0));
    let reason = exit.reason.expect("a reason");
    assert!(reason.contains(bound) && !exit.evicted, "{reason}");
    // The other tenant runs on.
    log.append(placed(2, 1));
    log.append(start(2, None));
    let reason = log.wait_exited(&id(2, 0)).reason.expect("a reason");
    assert!(reason.contains(bound), "{reason}");
    let others =
        |event: &Event| matches!(event, Event::ContainerExited(it) if it.container.job == other);
    assert_eq!(log.count(others), 0);
    log.append(Event::from(
        dormouse_messages::events::PartitionStopRequested {
            job: other.clone(),
            ..match stop(1) {
                Event::PartitionStopRequested(stop) => *stop,
                _ => unreachable!("as it was made"),
            }
        },
    ));
    log.wait_exited(&container(&other));
    agent.stop().expect("left in order");
}
