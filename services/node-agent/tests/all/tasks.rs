//! Tests of task sets with real processes.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::*;
use dormouse_messages::Event;
use dormouse_node_agent::{AgentConfig, task_output};

fn config(folder: &Path) -> AgentConfig {
    local(node(), Default::default(), folder.to_owned())
}

fn begin(log: &FakeLog, script: &str, ranks: u32) {
    log.append(admitted(task_set(script)));
    log.append(placed(1, ranks));
    log.append(start(1, None));
    for rank in 0..ranks {
        log.wait_started(&id(1, rank));
    }
}

fn results(folder: &Path, rank: u32) -> String {
    let directory = folder
        .join("nodes/n0/containers")
        .join(id(1, rank).to_string());
    fs::read_to_string(directory.join("results")).unwrap_or_default()
}

#[test]
fn every_task_finds_its_number_and_leaves_its_output() {
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let _agent = Running::start(&log, config(folder.path()), false);
    let script = "[ $DORMOUSE_TASK != 3 ] || exit 7; [ $DORMOUSE_TASK != 4 ] || kill -9 $$; echo $DORMOUSE_TASK of $DORMOUSE_TASKS";
    begin(&log, script, 2);
    log.append(assigned(&[(0, 0..5), (1, 500..503)]));
    wait_tasks(&log, 8);
    let (completed, mut failures) = task_reports(&log);
    let all: Vec<_> = completed.into_iter().collect();
    assert_eq!(all, [0, 1, 2, 500, 501, 502].map(|task| (task, 1)));
    failures.sort_unstable();
    assert_eq!(failures, [(3, 7), (4, 137)]);
    let output = task_output(folder.path(), &id(1, 1), 501).expect("a place");
    assert_eq!(fs::read_to_string(output).expect("read"), "501 of 1000\n");
    log.append(assigned(&[(0, 3..4)]));
    wait_tasks(&log, 9);
    assert_eq!(
        task_reports(&log).1.len(),
        3,
        "the second failure counts too"
    );
}

#[test]
fn an_agent_that_is_started_again_neither_repeats_nor_forgets_tasks() {
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let notes = folder.path().join("notes");
    let script = format!("echo $DORMOUSE_TASK >>{}; sleep 0.02", notes.display());
    let mut agent = Running::start(&log, config(folder.path()), false);
    begin(&log, &script, 1);
    for round in 0..4 {
        log.append(assigned(&[(0, round * 20..round * 20 + 20)]));
        wait_tasks(&log, round as usize * 20 + 5);
        agent.stop().expect("left in order");
        agent = Running::start(&log, config(folder.path()), false);
    }
    wait_tasks(&log, 80);
    let (completed, failures) = task_reports(&log);
    assert_eq!(failures, []);
    assert!(completed.values().all(|times| *times == 1), "{completed:?}");
    let notes = fs::read_to_string(notes).expect("notes");
    let mut ran: Vec<u32> = notes.lines().filter_map(|line| line.parse().ok()).collect();
    ran.sort_unstable();
    assert_eq!(ran, (0..80).collect::<Vec<_>>());
}

#[test]
fn what_ended_while_no_agent_ran_is_reported_before_the_exit() {
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let agent = Running::start(&log, config(folder.path()), false);
    // Task 2 kills its container.
    begin(
        &log,
        "sleep 0.3; [ $DORMOUSE_TASK != 2 ] || kill -9 $PPID",
        1,
    );
    log.append(assigned(&[(0, 0..4)]));
    let until = Instant::now() + Duration::from_secs(10);
    let orders = folder
        .path()
        .join("nodes/n0/containers")
        .join(id(1, 0).to_string());
    while !orders.join("tasks/0").exists() {
        assert!(Instant::now() < until, "the first task has not begun");
        std::thread::sleep(Duration::from_millis(10));
    }
    agent.stop().expect("left in order");
    while results(folder.path(), 0).lines().count() < 2 {
        assert!(Instant::now() < until, "{:?}", results(folder.path(), 0));
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(600));
    let _agent = Running::start(&log, config(folder.path()), false);
    log.wait_exited(&id(1, 0));
    let (completed, failures) = task_reports(&log);
    assert_eq!((completed.len(), failures.len()), (2, 0), "{completed:?}");
    let events = log.events();
    let told = |check: fn(&Event) -> bool| events.iter().rposition(check);
    let ended = told(|event| matches!(event, Event::TasksEnded(_)));
    assert!(ended < told(|event| matches!(event, Event::ContainerExited(_))));
}

#[test]
fn asked_to_leave_it_ends_its_task_and_takes_no_other() {
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let _agent = Running::start(&log, config(folder.path()), false);
    begin(&log, "sleep 0.3", 2);
    log.append(assigned(&[(0, 0..10)]));
    wait_tasks(&log, 1);
    log.append(save(1));
    for rank in [0, 1] {
        let exit = log.wait_exited(&id(1, rank));
        assert_eq!(
            (exit.exit_code, exit.signal),
            (Some(0), None),
            "rank {rank}"
        );
    }
    let (completed, failures) = task_reports(&log);
    assert!((1..=3).contains(&completed.len()), "{completed:?}");
    assert_eq!(failures, [], "none was cut short");
    let failed = log.count(|event| matches!(event, Event::CheckpointFailed(_)));
    assert_eq!(failed, 0, "there is nothing to save");
}

#[test]
fn a_gang_is_not_disturbed_by_tasks_that_it_cannot_have() {
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let _agent = Running::start(&log, config(folder.path()), false);
    log.append(admitted(spec(&["/bin/sh", "-c", "sleep 0.5"])));
    log.append(placed(1, 1));
    log.append(start(1, None));
    log.wait_started(&id(1, 0));
    log.append(assigned(&[(0, 0..3)]));
    assert_eq!(log.wait_exited(&id(1, 0)).exit_code, Some(0));
    assert_eq!(task_reports(&log).0.len(), 0);
}
