//! Tests of the whole agent over a log in memory, with real processes.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::*;
use dormouse_messages::Event;
use dormouse_messages::events::ClusterConfigured;
use dormouse_messages::job::{CheckpointMode, EnvValue, SecretFrom, SecretSource};
use dormouse_messages::policy::{LeaseTerm, Policy};
use dormouse_node_agent::{AgentConfig, AgentError, logs_path};

fn config(folder: &Path) -> AgentConfig {
    local(node(), Default::default(), folder.to_owned())
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn sh(script: &str) -> dormouse_messages::job::JobSpec {
    spec(&["/bin/sh", "-c", script])
}

fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_partition_starts_runs_and_ends() {
    let (folder, log) = (folder(), FakeLog::default());
    let agent = Running::start(&log, config(folder.path()), true);
    assert!(log.wait_joined(1).running.is_empty());
    log.append(admitted(sh(
        "echo out $DORMOUSE_RANK/$DORMOUSE_WORLD_SIZE; echo err >&2; exit $((7 * DORMOUSE_RANK))",
    )));
    log.append(placed(1, 2));
    let request = log.append(start(1, None));
    let exit = log.wait_exited(&id(1, 1));
    assert_eq!(
        (exit.exit_code, exit.signal, exit.evicted),
        (Some(7), None, false)
    );
    assert_eq!(log.wait_exited(&id(1, 0)).exit_code, Some(0));
    log.wait_started(&id(1, 0));
    let logs = logs_path(folder.path(), &id(1, 1)).expect("logs");
    assert_eq!(fs::read_to_string(logs.stdout).expect("read"), "out 1/2\n");
    assert_eq!(fs::read_to_string(logs.stderr).expect("read"), "err\n");
    println!(
        "start requested to exit reported: {:?}",
        log.at(request).elapsed()
    );
    agent.stop().expect("left in order");
    assert_eq!(
        log.count(|event| matches!(event, Event::ContainerStarted(_))),
        2
    );
    assert_eq!(
        log.count(|event| matches!(event, Event::ContainerExited(_))),
        2
    );
}

#[test]
fn signals_are_told_from_exit_codes() {
    let (folder, log) = (folder(), FakeLog::default());
    let _agent = Running::start(&log, config(folder.path()), false);
    log.append(admitted(sh(
        "[ $DORMOUSE_RANK = 0 ] && kill -9 $$; exit 137",
    )));
    log.append(placed(1, 2));
    log.append(start(1, None));
    let exit = log.wait_exited(&id(1, 0));
    assert_eq!((exit.exit_code, exit.signal), (None, Some(9)));
    let exit = log.wait_exited(&id(1, 1));
    assert_eq!((exit.exit_code, exit.signal), (Some(137), None));
}

#[test]
fn what_cannot_start_says_why_and_stops_nothing() {
    let (folder, log) = (folder(), FakeLog::default());
    let _agent = Running::start(&log, config(folder.path()), false);
    log.append(admitted(spec(&["no-such-program-here"])));
    log.append(placed(1, 1));
    log.append(start(1, None));
    let exit = log.wait_exited(&id(1, 0));
    let reason = exit.reason.expect("a reason");
    assert!(
        reason.starts_with("cannot start") && reason.contains("no-such-program"),
        "{reason}"
    );
    assert_eq!(
        (exit.exit_code, exit.signal, exit.evicted),
        (None, None, false)
    );
    let blocked = folder.path().join("nodes/n0/containers/ads/lr/2");
    fs::write(&blocked, "a file in the way").expect("written");
    log.append(placed(2, 1));
    log.append(start(2, None));
    let reason = log.wait_exited(&id(2, 0)).reason.expect("a reason");
    assert!(reason.contains("cannot create its directory"), "{reason}");
    let mut with_secret = sh("true");
    let from = SecretSource::File("/no/such/secret".to_owned());
    let secret = EnvValue::Secret(SecretFrom { from });
    with_secret.env.insert("TOKEN".to_owned(), secret);
    log.append(admitted(with_secret));
    log.append(placed(3, 1));
    log.append(start(3, None));
    let reason = log.wait_exited(&id(3, 0)).reason.expect("a reason");
    assert!(
        reason.contains("TOKEN") && reason.contains("/no/such/secret"),
        "{reason}"
    );
    log.append(admitted(sh("true")));
    log.append(placed(4, 1));
    log.append(start(4, None));
    assert_eq!(log.wait_exited(&id(4, 0)).exit_code, Some(0));
}

#[test]
fn a_stop_is_a_signal_and_then_a_kill() {
    let (folder, log) = (folder(), FakeLog::default());
    let _agent = Running::start(&log, config(folder.path()), false);
    let mut stubborn = sh(
        "[ $DORMOUSE_RANK = 0 ] && trap 'exit 3' TERM || trap '' TERM; echo ready; while :; do sleep 0.05; done",
    );
    stubborn.checkpoint.grace_s = 1;
    log.append(admitted(stubborn));
    log.append(placed(1, 2));
    log.append(start(1, None));
    wait_ready(folder.path(), &id(1, 0));
    wait_ready(folder.path(), &id(1, 1));
    let asked = Instant::now();
    log.append(stop(1));
    assert_eq!(log.wait_exited(&id(1, 0)).exit_code, Some(3));
    let exit = log.wait_exited(&id(1, 1));
    assert_eq!(
        (exit.exit_code, exit.signal, exit.evicted),
        (None, Some(9), false)
    );
    assert!(asked.elapsed() >= Duration::from_secs(1));
}

/// Saves at SIGTERM and leaves; `SLOW` sleeps before.
const TRAINER: &str = r#"
trap 'echo "{\"step\":42,\"bytes\":5}" >$DORMOUSE_CHECKPOINT_DIR/.new; mv $DORMOUSE_CHECKPOINT_DIR/.new $DORMOUSE_CHECKPOINT_DIR/checkpoint.json; echo "{\"step\":42,\"steps_total\":50,\"loss\":0.5}" >>$DORMOUSE_PROGRESS; exit 0' TERM
echo '{"step":1,"steps_total":50}' >>$DORMOUSE_PROGRESS
echo "from $DORMOUSE_RESUME_FROM"
while :; do sleep 0.02; done"#;

#[test]
fn a_requested_checkpoint_is_saved_before_the_exit() {
    let (folder, log) = (folder(), FakeLog::default());
    let agent = Running::start(&log, config(folder.path()), false);
    log.append(admitted(sh(TRAINER)));
    log.append(placed(1, 2));
    log.append(start(1, None));
    log.wait_started(&id(1, 1));
    log.wait("progress", |event| {
        matches!(event, Event::Progress(it) if it.step == 1).then_some(())
    });
    log.append(save(1));
    log.append(stop(1));
    log.wait_exited(&id(1, 1));
    assert_eq!(log.wait_exited(&id(1, 0)).exit_code, Some(0));
    agent.stop().expect("left in order");
    let names: Vec<_> = log
        .reports()
        .iter()
        .filter(|event| !matches!(event, Event::ContainerStarted(_) | Event::NodeJoined(_)))
        .filter(|event| !matches!(event, Event::ContainerExited(it) if it.container.rank.0 == 1))
        .map(|event| event.subject_name())
        .collect();
    assert_eq!(names[0], "progress");
    assert_eq!(names.last().copied(), Some("container.exited"));
    assert!(
        names.contains(&"checkpoint.saved") && names.len() == 4,
        "{names:?}"
    );
    let saved = log.wait("saved", |event| match event {
        Event::CheckpointSaved(it) => Some((**it).clone()),
        _ => None,
    });
    assert_eq!((saved.step, saved.bytes), (42, 5));
    let expected = format!("file://{}/1.1", checkpoints(folder.path()).display());
    assert_eq!(saved.uri, expected);

    let agent = Running::start(&log, config(folder.path()), false);
    log.append(placed(2, 1));
    log.append(start(2, Some(&saved.uri)));
    log.wait_started(&id(2, 0));
    let logs = logs_path(folder.path(), &id(2, 0)).expect("logs");
    let expected = format!("from {}/1.1\n", checkpoints(folder.path()).display());
    let until = Instant::now() + Duration::from_secs(5);
    while fs::read_to_string(&logs.stdout).unwrap_or_default() != expected {
        assert!(Instant::now() < until);
    }
    log.append(stop(2));
    log.wait_exited(&id(2, 0));
    agent.stop().expect("left in order");
}

#[test]
fn a_checkpoint_that_does_not_come_has_failed() {
    let (folder, log) = (folder(), FakeLog::default());
    let _agent = Running::start(&log, config(folder.path()), false);
    let mut deaf = sh("trap '' USR1; while :; do sleep 0.05; done");
    deaf.checkpoint.mode = CheckpointMode::Continue;
    deaf.checkpoint.signal = "SIGUSR1".to_owned();
    deaf.checkpoint.grace_s = 1;
    log.append(admitted(deaf));
    log.append(placed(1, 1));
    log.append(start(1, None));
    log.wait_started(&id(1, 0));
    std::thread::sleep(Duration::from_millis(100));
    log.append(save(1));
    let reason = log.wait("failed", |event| match event {
        Event::CheckpointFailed(it) => Some(it.reason.clone()),
        _ => None,
    });
    assert!(reason.contains("grace_s"), "{reason}");
    assert_eq!(
        log.count(|event| matches!(event, Event::ContainerExited(_))),
        0
    );
    log.append(stop(1));
    log.wait_exited(&id(1, 0));
    let mut spec = sh("while :; do sleep 0.05; done");
    spec.checkpoint.mode = CheckpointMode::Continue;
    let write = "echo '{\"step\":9,\"bytes\":1}' >$DORMOUSE_CHECKPOINT_DIR/checkpoint.json";
    spec.checkpoint.command = vec!["sh".to_owned(), "-c".to_owned(), write.to_owned()];
    log.append(admitted(spec));
    log.append(placed(2, 2));
    log.append(start(2, None));
    log.wait_started(&id(2, 0));
    log.append(save(2));
    log.wait("saved", |event| {
        matches!(event, Event::CheckpointSaved(it) if it.step == 9).then_some(())
    });
    log.append(stop(2));
    log.wait_exited(&id(2, 0));
    log.wait_exited(&id(2, 1));
}

#[test]
fn a_successor_adopts_what_runs_and_tells_what_ended_meanwhile() {
    let (folder, log) = (folder(), FakeLog::default());
    let agent = Running::start(&log, config(folder.path()), false);
    log.append(admitted(sh(
        "[ $DORMOUSE_RANK = 0 ] || { sleep 0.4; exit 5; }; while :; do sleep 0.05; done",
    )));
    log.append(placed(1, 2));
    log.append(start(1, None));
    let pid = log.wait_started(&id(1, 0));
    let ends = log.wait_started(&id(1, 1));
    agent.stop().expect("left in order");
    until("the end of the second", || !is_alive(ends));
    assert!(is_alive(pid));
    let agent = Running::start(&log, config(folder.path()), false);
    assert_eq!(log.wait_joined(2).running, [id(1, 0)]);
    assert_eq!(log.wait_exited(&id(1, 1)).exit_code, Some(5));
    assert_eq!(
        log.count(|event| matches!(event, Event::ContainerStarted(_))),
        2
    );
    log.append(stop(1));
    let exit = log.wait_exited(&id(1, 0));
    assert_eq!((exit.signal, exit.evicted), (Some(15), false));
    assert!(!is_alive(pid));
    agent.stop().expect("left in order");
}

#[test]
fn a_lost_node_ends_everything_and_joins_again() {
    let (folder, log) = (folder(), FakeLog::default());
    let agent = Running::start(&log, config(folder.path()), false);
    log.append(admitted(sh("while :; do sleep 0.05; done")));
    log.append(placed(1, 1));
    log.append(start(1, None));
    let pid = log.wait_started(&id(1, 0));
    log.append(lost(1));
    log.wait_joined(2);
    assert!(!is_alive(pid));
    let exit = log.wait_exited(&id(1, 0));
    assert!(exit.evicted && exit.reason.expect("a reason").contains("declared lost"));
    // Without an agent, stale containers end before the next incarnation.
    log.append(placed(2, 1));
    log.append(start(2, None));
    let pid = log.wait_started(&id(2, 0));
    agent.stop().expect("left in order");
    log.append(lost(2));
    let agent = Running::start(&log, config(folder.path()), false);
    log.wait_joined(3);
    assert!(!is_alive(pid));
    assert!(log.wait_exited(&id(2, 0)).evicted);
    agent.stop().expect("left in order");
}

#[test]
fn an_agent_cut_off_ends_its_containers_before_its_lease_ends() {
    let (folder, log) = (folder(), FakeLog::default());
    let mut config = config(folder.path());
    let term = LeaseTerm {
        lease_ms: 8_000,
        fence_ms: 6_000,
    };
    config.lease = Some(term);
    let ttl = Duration::from_millis(term.lease_ms);
    let agent = Running::start(&log, config, true);
    log.append(admitted(sh(
        "[ $DORMOUSE_RANK = 0 ] || trap '' TERM; while :; do sleep 0.02; done",
    )));
    log.append(placed(1, 2));
    log.append(start(1, None));
    let pids = [log.wait_started(&id(1, 0)), log.wait_started(&id(1, 1))];
    log.set_down(true);
    let cut = Instant::now();
    while pids.iter().any(|pid| is_alive(*pid)) {
        assert!(cut.elapsed() < ttl, "still running when the lease ends");
        std::thread::sleep(Duration::from_millis(10));
    }
    println!(
        "gone {:?} after the cut; the lease is {ttl:?}",
        cut.elapsed()
    );
    assert!(cut.elapsed() > ttl / 3, "fenced too early");
    log.set_down(false);
    log.wait_joined(2);
    for rank in [0, 1] {
        let exit = log.wait_exited(&id(1, rank));
        assert!(exit.evicted && exit.reason.expect("a reason").contains("fenced"));
    }
    agent.stop().expect("left in order");
}

#[test]
fn the_policy_on_the_log_says_how_long_a_lease_lasts() {
    let (folder, log) = (folder(), FakeLog::default());
    let agent = Running::start(&log, config(folder.path()), true);
    let policy = Policy {
        lease_s: 4,
        fence_s: Some(1),
        ..Policy::default()
    };
    log.append(ClusterConfigured { policy });
    log.append(admitted(sh("while :; do sleep 0.02; done")));
    log.append(placed(1, 1));
    log.append(start(1, None));
    let pid = log.wait_started(&id(1, 0));
    log.set_down(true);
    let cut = Instant::now();
    while is_alive(pid) {
        assert!(cut.elapsed() < Duration::from_secs(4), "not fenced");
        std::thread::sleep(Duration::from_millis(10));
    }
    log.set_down(false);
    log.wait_joined(2);
    agent.stop().expect("left in order");
}

#[test]
fn a_second_agent_of_the_name_stops_the_first_and_touches_nothing() {
    let (folder, log) = (folder(), FakeLog::default());
    let mut agent = Running::start(&log, config(folder.path()), false);
    log.append(admitted(sh("sleep 1; while :; do sleep 0.05; done")));
    log.append(placed(1, 1));
    log.append(start(1, None));
    let pid = log.wait_started(&id(1, 0));
    // A second agent fails on a locked directory.
    let mut second = Running::start(&log, config(folder.path()), false);
    assert!(matches!(second.join(), Err(AgentError::Locked(_))));
    log.set_conflict();
    log.append(placed_on(2, &["n1"]));
    log.append(save(1));
    assert!(matches!(agent.join(), Err(AgentError::Superseded(_))));
    std::thread::sleep(Duration::from_millis(100));
    // The container was asked to save, not killed.
    let _ = nix::sys::signal::killpg(
        nix::unistd::Pid::from_raw(i32::try_from(pid).expect("small")),
        nix::sys::signal::Signal::SIGKILL,
    );
}

#[test]
fn another_logs_leftovers_are_not_mistaken_for_this_ones() {
    let (folder, log) = (folder(), FakeLog::default());
    let agent = Running::start(&log, config(folder.path()), false);
    log.append(admitted(sh("while :; do sleep 0.05; done")));
    log.append(placed(1, 1));
    log.append(start(1, None));
    let pid = log.wait_started(&id(1, 0));
    agent.stop().expect("left in order");
    let fresh = FakeLog::default();
    fresh.append(joined(7));
    fresh.append(admitted(sh("exit 4")));
    fresh.append(placed(1, 1));
    fresh.append(start(1, None));
    let agent = Running::start(&fresh, config(folder.path()), false);
    assert_eq!(fresh.wait_exited(&id(1, 0)).exit_code, Some(4));
    assert!(!is_alive(pid));
    assert_eq!(
        fresh.count(|event| matches!(event, Event::ContainerExited(_))),
        1
    );
    agent.stop().expect("left in order");
}
