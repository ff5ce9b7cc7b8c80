//! Task sets on a real local cluster: every task records its run in a file.

use std::collections::BTreeMap;

use crate::common::Cluster;
use dormouse_messages::{Event, JobId};
use serde_json::{Value, json};

const NODE: &str = "cpu=4,memory=8Gi";

fn set(cluster: &Cluster, name: &str, (count, concurrency): (u32, u32), more: &str) -> Value {
    let notes = cluster.dir().join(name);
    let script = format!("echo $DORMOUSE_TASK >>{}; {more}", notes.display());
    json!({
        "name": name, "tenant": "ads", "kind": "batch",
        "command": {"start": ["/bin/sh", "-c", script]},
        "demand": {"cpu": 1, "memory": "64Mi"},
        "tasks": {"count": count, "concurrency": concurrency}, "min_run_s": 0,
    })
}

fn runs(cluster: &Cluster, name: &str) -> BTreeMap<u32, u32> {
    let notes = std::fs::read_to_string(cluster.dir().join(name)).expect("notes");
    let mut runs = BTreeMap::new();
    for line in notes.lines() {
        *runs.entry(line.parse().expect("a number")).or_default() += 1;
    }
    runs
}

fn once(tasks: std::ops::Range<u32>) -> BTreeMap<u32, u32> {
    tasks.map(|task| (task, 1)).collect()
}

fn starts(cluster: &Cluster, job: &str) -> usize {
    let id: JobId = job.parse().expect("an id");
    let log = cluster.log();
    let started = log.iter().filter_map(|it| it.event());
    started
        .filter(|event| matches!(event, Event::PartitionStarted(it) if it.job == id))
        .count()
}

#[test]
fn each_task_runs_once_and_a_failing_one_again_by_itself() {
    let cluster = Cluster::up(1, NODE);
    let flag = cluster.dir().join("flag");
    let more = format!(
        "[ $DORMOUSE_TASK = 7 ] || exit 0; echo of $DORMOUSE_TASKS; mkdir {} 2>/dev/null && kill -9 $$; true",
        flag.display()
    );
    let mut job = set(&cluster, "set", (300, 4), &more);
    job["retries"] = json!(1);
    cluster.submit(&job).ok();
    cluster.wait_completed("ads/set");
    let mut expected = once(0..300);
    expected.insert(7, 2);
    assert_eq!(runs(&cluster, "set"), expected);
    let shown = cluster.run(&["job", "show", "ads/set"]).ok().json();
    assert_eq!(
        shown["tasks"],
        json!({"count": 300, "completed": 300, "failed": 0, "assigned": 0, "retried": 1})
    );
    let printed = cluster.run(&["job", "logs", "ads/set", "--task", "7"]).ok();
    assert!(printed.out.contains("of 300"), "{printed:?}");
    let log = cluster.check();
    let about = |event: &&Event| matches!(event, Event::TasksAssigned(_) | Event::TasksEnded(_));
    let said = log.iter().filter_map(|it| it.event()).filter(about).count();
    assert!(said < 150, "{said} events for 300 tasks");
}

#[test]
fn a_task_that_keeps_failing_fails_its_set_when_the_others_are_done() {
    let cluster = Cluster::up(1, NODE);
    let mut job = set(
        &cluster,
        "set",
        (40, 4),
        "[ $DORMOUSE_TASK != 3 ] || exit 9",
    );
    job["retries"] = json!(2);
    cluster.submit(&job).ok();
    let reason = cluster.wait_event("the end", |event| match event {
        Event::JobFailed(event) => Some(event.reason.clone()),
        _ => None,
    });
    assert!(
        reason.starts_with("1 of 40 tasks failed (3); task 3 exited with 9"),
        "{reason}"
    );
    let mut expected = once(0..40);
    expected.insert(3, 3);
    assert_eq!(runs(&cluster, "set"), expected);
    cluster.check();
}

#[test]
fn a_set_makes_room_between_tasks() {
    let cluster = Cluster::up(2, NODE);
    cluster
        .submit(&set(&cluster, "set", (200, 8), "sleep 0.2"))
        .ok();
    cluster.wait_event("a report", |event| match event {
        Event::TasksEnded(_) => Some(()),
        _ => None,
    });
    cluster
        .submit(&set(&cluster, "other", (20, 4), "sleep 0.2"))
        .ok();
    cluster.wait_completed("ads/other");
    cluster.wait_completed("ads/set");
    assert!(starts(&cluster, "ads/set") > 1, "it was not resized");
    assert_eq!(runs(&cluster, "set"), once(0..200), "no task was cut short");
    assert_eq!(runs(&cluster, "other"), once(0..20));
    cluster.check();
}

#[test]
fn tasks_outlive_the_cluster_that_started_them() {
    let mut cluster = Cluster::up(1, NODE);
    cluster
        .submit(&set(&cluster, "set", (120, 4), "sleep 0.1"))
        .ok();
    for _ in 0..3 {
        let before = cluster.log().len();
        cluster.wait_event("more reports", |event| match event {
            Event::TasksEnded(_) => Some(()),
            _ => None,
        });
        cluster.kill("up");
        cluster.start_up(1, NODE);
        assert!(cluster.log().len() >= before, "nothing is forgotten");
    }
    cluster.wait_completed("ads/set");
    assert_eq!(
        runs(&cluster, "set"),
        once(0..120),
        "adopted, not started again"
    );
    assert_eq!(starts(&cluster, "ads/set"), 1);
    cluster.check();
}

#[test]
fn a_set_is_cancelled_as_one() {
    let cluster = Cluster::up(1, NODE);
    cluster
        .submit(&set(&cluster, "set", (100_000, 4), "sleep 30"))
        .ok();
    crate::common::poll("a task", crate::common::PATIENCE, || {
        cluster.dir().join("set").exists().then_some(())
    });
    cluster.run(&["job", "cancel", "ads/set"]).ok();
    cluster.wait_event("the end", |event| match event {
        Event::JobCancelled(_) => Some(()),
        _ => None,
    });
    assert!(runs(&cluster, "set").len() <= 4, "one each was begun");
    cluster.check();
}

#[test]
fn a_set_that_cannot_be_says_why() {
    let cluster = Cluster::up(1, NODE);
    let refused = |change: &dyn Fn(&mut Value), says: &str| {
        let mut job = set(&cluster, "set", (10, 2), "true");
        change(&mut job);
        let error = cluster.submit(&job).error();
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains(says), "{error}");
    };
    refused(&|job| job["tasks"]["count"] = json!(0), "tasks.count is 0");
    refused(
        &|job| job["tasks"]["count"] = json!(10_000_000),
        "submit several sets",
    );
    refused(
        &|job| job["tasks"]["concurrency"] = json!(0),
        "concurrency 0 must lie",
    );
    refused(&|job| job["kind"] = json!("training"), "add kind: batch");
    refused(&|job| job["executor"] = json!("mpi"), "leave executor out");
    refused(
        &|job| job["containers"] = json!({"min": 2, "max": 2}),
        "leave containers out",
    );
    refused(
        &|job| job["success"] = json!("coordinator"),
        "leave success out",
    );
    refused(
        &|job| job["checkpoint"] = json!({"mode": "continue"}),
        "give grace_s only",
    );
    refused(
        &|job| job["command"]["resume"] = json!(["x"]),
        "leave command.resume out",
    );
    cluster.check();
}
