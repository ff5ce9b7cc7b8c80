//! A parameter server with workers as plain processes: training, resizes in place, completion.

use std::collections::BTreeSet;

use crate::common::{Cluster, root};
use dormouse_messages::Event;
use serde_json::{Value, json};

fn with_server(name: &str, steps: u32) -> Value {
    let program = root().join("deploy/examples/parameter_server.py");
    let steps = steps.to_string();
    json!({
        "name": name, "tenant": "ads",
        "command": {"start": ["python3", program, "--steps", steps, "--step-ms", "10"]},
        "demand": {"cpu": 1, "memory": "256Mi"}, "resize": "in_place",
        "containers": {"min": 1, "start": 2, "max": 3},
        "roles": {"ps": {"count": 1, "demand": {"cpu": "500m", "memory": "128Mi"}}},
        "checkpoint": {"mode": "exit", "grace_s": 5},
    })
}

#[test]
fn a_parameter_server_serves_workers_that_come_and_go() {
    let cluster = Cluster::up(1, "cpu=4,memory=4Gi");
    cluster.submit(&with_server("trained", 1_000_000)).ok();
    // Three cores and a half of four are its own.
    let mut on = BTreeSet::new();
    cluster.wait_event("three workers and their server", |event| {
        if let Event::ContainerStarted(it) = event {
            on.insert(it.container.rank.0);
        }
        (on.len() == 4).then_some(())
    });
    let trains = |event: &Event| match event {
        Event::Progress(it) if it.step > 20 && it.job.name() == "trained" => Some(it.containers),
        _ => None,
    };
    cluster.wait_event("progress", trains);
    let mut other = with_server("other", 60);
    other["containers"] = json!({"min": 1, "start": 1, "max": 1});
    cluster.submit(&other).ok();
    cluster.wait_completed("ads/other");
    let shown = cluster.run_with(&["job", "show", "ads/other"], &[]).ok();
    assert!(shown.out.contains("ps: 1"), "{shown:?}");
    let logs = &["job", "logs", "ads/other", "--rank", "1"];
    let logs = cluster.run_with(logs, &[]).ok();
    assert!(logs.out.contains("ps: serves on port"), "{logs:?}");
    cluster.run(&["job", "cancel", "ads/trained"]).ok();
    cluster.run(&["job", "wait", "ads/trained"]);
    cluster.wait_no_programs();
    let log = cluster.check();
    let left: Vec<u32> = log
        .iter()
        .filter_map(|it| match it.event() {
            Some(Event::PartitionResizeRequested(it)) if it.job.name() == "trained" => {
                Some(it.leave.iter().map(|rank| rank.0).collect::<Vec<_>>())
            }
            _ => None,
        })
        .flatten()
        .collect();
    assert!(
        !left.is_empty() && left.iter().all(|rank| *rank > 1),
        "{left:?}"
    );
    let starts = log.iter().filter(
        |it| matches!(it.event(), Some(Event::PartitionStarted(it)) if it.job.name() == "trained"),
    );
    assert_eq!(starts.count(), 1, "nothing was started again");
}
