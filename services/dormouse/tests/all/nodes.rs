//! Operators' commands on nodes, and their effects on jobs.

use dormouse_messages::Event;
use serde_json::{Value, json};

use crate::common::{Cluster, PATIENCE, count_job, poll};

fn endless(name: &str, more: Value) -> Value {
    let mut job = json!({"name": name, "tenant": "ads", "demand": {"cpu": 1},
        "command": {"start": ["sleep", "1000"]}, "checkpoint": {"mode": "none", "grace_s": 1}});
    let fields = job.as_object_mut().expect("a map");
    fields.extend(more.as_object().cloned().unwrap_or_default());
    job
}

fn places(cluster: &Cluster, job: &str) -> Vec<String> {
    let log = cluster.log();
    let started = log.iter().filter_map(|it| match it.event() {
        Some(Event::ContainerStarted(it)) if it.container.job.to_string() == job => {
            Some(it.node.to_string())
        }
        _ => None,
    });
    started.collect()
}

#[track_caller]
fn wait_places(cluster: &Cluster, job: &str, expected: &[&str]) {
    poll(&format!("{job} on {expected:?}"), PATIENCE, || {
        (places(cluster, job) == expected).then_some(())
    });
}

#[test]
fn a_drain_with_a_deadline_stops_what_cannot_move_and_the_node_can_be_removed() {
    let cluster = Cluster::up(2, "cpu=1,memory=2Gi");
    cluster.submit(&endless("a", json!({}))).ok();
    let first = poll("the job", PATIENCE, || places(&cluster, "ads/a").pop());
    let other = if first == "n0" { "n1" } else { "n0" };
    let early = cluster.run(&["node", "remove", &first]);
    assert_eq!(early.code, 1, "{early:?}");
    let fence = ["node", "fence", &first, "--reason", "its power is off"];
    let early = cluster.run(&fence);
    assert_eq!(early.error()["code"], "not_ended", "{early:?}");
    let drain = [
        "node",
        "drain",
        &first,
        "--deadline",
        "1",
        "--reason",
        "a new disk",
    ];
    cluster.run(&drain).ok();
    wait_places(&cluster, "ads/a", &[&first, other]);
    let shown = cluster.run(&["nodes"]).ok();
    assert!(shown.out.contains("a new disk"), "{shown:?}");
    poll("it is empty", PATIENCE, || {
        (cluster.run(&["node", "remove", &first]).code == 0).then_some(())
    });
    cluster.run(&["job", "cancel", "ads/a"]).ok();
    cluster.check();
}

#[test]
fn a_taint_keeps_jobs_away_that_do_not_tolerate_it() {
    let cluster = Cluster::up(1, "cpu=4,memory=4Gi");
    cluster.run(&["node", "taint", "n0", "owner=search"]).ok();
    cluster.submit(&endless("kept", json!({})));
    let tolerant = json!({"tolerations": ["owner=search"]});
    cluster.submit(&endless("let", tolerant)).ok();
    wait_places(&cluster, "ads/let", &["n0"]);
    assert!(places(&cluster, "ads/kept").is_empty());
    let shown = cluster.run(&["job", "show", "ads/kept"]).ok();
    assert!(shown.out.contains("owner=search"), "{shown:?}");
    cluster.run(&["node", "taint", "n0", "owner=search-"]).ok();
    let twice = cluster.run(&["node", "taint", "n0", "owner=search-"]);
    assert_eq!(twice.error()["code"], "not_found", "{twice:?}");
    let said = cluster.log().into_iter();
    let said = said.filter(|it| matches!(it.event(), Some(Event::NodeLabelled(_))));
    assert_eq!(said.count(), 2, "what changes nothing is not on the log");
    wait_places(&cluster, "ads/kept", &["n0"]);
    cluster
        .run(&["job", "cancel", "--tenant", "ads", "--yes"])
        .ok();
    cluster.check();
}

#[test]
fn a_job_that_is_requeued_stops_and_starts_again() {
    let cluster = Cluster::up(1, "cpu=4,memory=4Gi");
    cluster.submit(&count_job("again", 60, (1, 1), &[])).ok();
    cluster.wait_event("progress", |event| match event {
        Event::Progress(_) => Some(()),
        _ => None,
    });
    let requeued = cluster.run(&["job", "requeue", "ads/again"]).ok().json();
    let said = requeued["state"].as_str().expect("one answer");
    assert!(said.starts_with("is requeued"), "{said}");
    let released = cluster.run(&["job", "release", "ads/again"]);
    assert_eq!(released.error()["code"], "not_on_hold", "{released:?}");
    cluster.wait_completed("ads/again");
    assert_eq!(places(&cluster, "ads/again"), ["n0", "n0"]);
    cluster.check();
}
