//! Queries answer alike for a live cluster and for its exported log.

use std::sync::Arc;

use dormouse_messages::{Event, Recorded};
use serde_json::{Value, json};

use crate::common::{Cluster, count_job};

#[test]
fn a_live_cluster_and_its_log_answer_alike() {
    let cluster = Cluster::up(1, "cpu=4,memory=8Gi");
    cluster.submit(&count_job("first", 60, (1, 4), &[])).ok();
    cluster.wait_event("progress", |event| match event {
        Event::Progress(_) => Some(()),
        _ => None,
    });
    cluster.submit(&count_job("second", 20, (2, 2), &[]));
    cluster.wait_completed("ads/second");
    cluster.wait_completed("ads/first");
    let log = cluster.check();
    let last = log.last().expect("events").sequence.0.to_string();
    let file = cluster.log_file();
    let file = file.to_str().expect("UTF-8");
    let placed = log.iter().find_map(|it| match it.event() {
        Some(Event::PartitionStarted(it)) if it.job.name() == "second" => Some(it.epoch.0),
        _ => None,
    });
    let placed = placed.expect("second ran");
    let epoch = format!("epoch/{placed}");
    for question in [
        &["explain", "ads/first"][..],
        &["explain", &epoch],
        &["explain", "tenant", "ads"],
        &["explain", "node", "n0"],
        &["ledger"],
        &["log", "bisect", "ads/second=running"],
        &["log", "diff", "--set", "policy.theta1=0.9"],
        &["whatif", "--set", "policy.theta2=0.5"],
        &["plan", "--add-node", "n9:cpu=4,memory=8Gi"],
    ] {
        // A fork at the end has no events to compare.
        let at: &[&str] = match question[0] {
            "whatif" | "log" if question[1] != "bisect" => &[],
            _ => &["--at", &last],
        };
        let live = cluster.run(&[question, at].concat()).ok().json();
        let of_file = cluster
            .run(&[question, &["--log", file]].concat())
            .ok()
            .json();
        assert_eq!(live, of_file, "{question:?}");
    }
    first_gave_way(&cluster, &epoch);
    a_part_answers_alike(&cluster, &log, &epoch);
    held_to_a_plan(&cluster);
}

fn held_to_a_plan(cluster: &Cluster) {
    let identity = cluster.run(&["whatif"]).ok().json();
    assert_eq!(identity["identity"]["jobs"], 2, "{identity}");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("job.json");
    let planned = |name: &str| {
        let document = count_job(name, 600, (1, 2), &[]);
        std::fs::write(&file, document.to_string()).expect("written");
        let plan = cluster.run(&["plan", file.to_str().expect("UTF-8")]);
        plan.ok().json()
    };
    let file_name = file.to_str().expect("UTF-8");
    let plan = planned("third");
    assert_eq!(
        (&plan["code"], &plan["containers"]),
        (&json!("runs"), &json!(2))
    );
    assert_eq!(plan["start"]["unknown"], true);
    let token = plan["token"].as_str().expect("a token");
    let submitted = cluster
        .run(&["submit", file_name, "--if-plan", token])
        .ok()
        .json();
    assert_eq!(submitted["containers"], 2);
    let document = count_job("fourth", 600, (1, 2), &[]);
    std::fs::write(&file, document.to_string()).expect("written");
    let submitted = cluster
        .run(&["submit", file_name, "--if-plan", token])
        .ok()
        .json();
    assert_eq!(submitted["containers"], 2);
    let document = count_job("fifth", 600, (4, 4), &[]);
    std::fs::write(&file, document.to_string()).expect("written");
    let refused = cluster.run(&["submit", file_name, "--if-plan", token]);
    assert_eq!(refused.error()["code"], "plan_stale", "{refused:?}");
}

fn explain(cluster: &Cluster, more: &[&str]) -> Value {
    cluster.run(&[&["explain"], more].concat()).ok().json()
}

fn first_gave_way(cluster: &Cluster, epoch: &str) {
    let first = explain(cluster, &["ads/first"]);
    assert_eq!(first["state"], "completed");
    assert_eq!(
        (&first["resizes"][0]["from"], &first["resizes"][0]["to"]),
        (&json!(4), &json!(2))
    );
    assert_eq!(first["resizes"][0]["gained"][0]["job"], "ads/second");
    assert!(
        first["resizes"][0]["cost_s"]
            .as_f64()
            .is_some_and(|cost_s| cost_s > 0.0),
        "{first}"
    );
    assert_eq!(explain(cluster, &[epoch])["decision"]["remade"], "equal");
    let refused = cluster.run(&["explain", "ads/nobody"]);
    assert_eq!(
        (refused.code, refused.error()["code"].as_str()),
        (1, Some("not_found"))
    );
    let elsewhere = cluster.run(&["job", "show", "first"]);
    assert!(
        elsewhere.err.contains("did you mean ads/first?"),
        "{elsewhere:?}"
    );
    for unknown in [
        &["ledger", "--job", "ads/nobody"][..],
        &["ledger", "--as", "nobody"],
        &["log", "bisect", "ads/nobody=running"],
    ] {
        let refused = cluster.run(unknown);
        let error = refused.error();
        assert_eq!(error["code"], "not_found", "{refused:?}");
        let message = error["message"].to_string();
        assert!(message.contains("there is no "), "{message}");
    }
    let csv = cluster.run_with(&["ledger"], &["-o", "csv"]).ok();
    assert!(
        csv.out.starts_with("scope,name,resource,unit,capacity"),
        "{}",
        csv.out
    );
}

fn a_part_answers_alike(cluster: &Cluster, log: &[Arc<Recorded>], epoch: &str) {
    let file = cluster.log_file();
    let file = file.to_str().expect("UTF-8");
    let from = log
        .iter()
        .find(|it| it.envelope.subject.as_str() == epoch)
        .expect("it is there");
    let slice = file.replace(".jsonl", "-slice.jsonl");
    let from = from.sequence.to_string();
    cluster
        .run(&["log", "slice", "--from", &from, "--file", &slice])
        .ok();
    let verified = cluster.run(&["log", "verify", "--log", &slice]).ok().json();
    assert_eq!(verified["findings"], json!([]));
    assert!(
        verified["decisions"]
            .as_u64()
            .is_some_and(|decisions| decisions > 0)
    );
    assert_eq!(
        explain(cluster, &[epoch, "--log", &slice]),
        explain(cluster, &[epoch, "--log", file])
    );
    let shown = cluster
        .run(&["job", "show", "ads/second", "--log", &slice])
        .ok()
        .json();
    assert_eq!(shown["phase"], "completed");
    let trace = file.replace(".jsonl", ".pftrace");
    cluster
        .run_with(&["log", "trace"], &["--file", &trace])
        .ok();
    assert!(std::fs::metadata(&trace).expect("a trace").len() > 1000);
}
