//! The offline document: an example, the procedures, refused documents.

use dormouse_optimizer::document::{read, write};
use dormouse_optimizer::{check, solve, solve_document};
use serde_json::{Value, json};

fn solved(document: &Value) -> Value {
    let text = document.to_string();
    let problem = read(&text).expect("a document");
    let solution = solve(&problem);
    check(&problem, &solution).expect("a solution");
    write(&solution)
}

fn containers(value: &Value, job: &str) -> u64 {
    let jobs = value["jobs"].as_array().expect("jobs");
    let found = jobs
        .iter()
        .find(|entry| entry["job"] == job)
        .expect("listed");
    found["containers"].as_u64().expect("a count")
}

fn example() -> Value {
    json!({
        "nodes": [{"name": "n0", "capacity": {"cpu": 12, "memory": "128Gi", "gpu": 1}}],
        "jobs": [{"job": "ads/lr", "demand": {"cpu": 2, "memory": "8Gi"}, "weight": 1,
                  "containers": {"min": 1, "max": 32}, "previous": {"n0": 3}}],
        "policy": {"allocation": "dorm", "theta1": 0.1, "theta2": 0.1, "fairness_bound": "paper"},
        "budget": {"gap": 0.01, "work": 2_000_000_000}
    })
}

#[test]
fn static_gives_no_more_than_the_empty_cluster_holds() {
    // Three fit; nine would block the queue.
    let value = solved(&json!({
        "nodes": [{"name": "n0", "capacity": {"cpu": 7}}],
        "jobs": [{"job": "t/a", "demand": {"cpu": 2}, "containers": {"max": 9}, "static_containers": 9}],
        "policy": {"allocation": "static"}
    }));
    assert_eq!(containers(&value, "t/a"), 3);
}

#[test]
fn a_job_grows_into_free_capacity() {
    let text = example().to_string();
    let value = solve_document(&text).expect("solves");
    assert_eq!(containers(&value, "ads/lr"), 6);
    assert_eq!(value["jobs"][0]["nodes"], json!({"n0": 6}));
    assert_eq!(value["adjusted_jobs"], 1);
    assert_eq!(value["type"], "dormouse.allocation.decided.v1");
}

#[test]
fn nothing_to_change_is_kept_with_a_reason() {
    let mut document = example();
    document["jobs"][0]["previous"] = json!({"n0": 6});
    let value = solved(&document);
    assert_eq!(value["type"], "dormouse.allocation.unchanged.v1");
    assert!(
        value["reason"]
            .as_str()
            .expect("a reason")
            .contains("worth")
    );
    assert_eq!(containers(&value, "ads/lr"), 6);
    document["jobs"][0]["previous"] = json!({"n0": 3});
    document["jobs"][0]["adjustable"] = json!(false);
    assert_eq!(containers(&solved(&document), "ads/lr"), 3);
}

#[test]
fn offers_in_node_order() {
    let mut document = json!({
        "nodes": [{"name": "n0", "capacity": {"cpu": 9, "memory": 18}}],
        "jobs": [
            {"job": "t/a", "demand": {"cpu": 1, "memory": 4}, "containers": {"max": 99}},
            {"job": "t/b", "demand": {"cpu": 3, "memory": 1}, "weight": 3, "containers": {"max": 99}}
        ],
        "policy": {"allocation": "drf"}
    });
    let value = solved(&document);
    assert_eq!(
        (containers(&value, "t/a"), containers(&value, "t/b")),
        (3, 2)
    );
    let fair = value["jobs"][0]["fair_share"].as_f64().expect("a share");
    // The floor of one container is granted first; the rest rises as 1 : 3.
    assert!((fair - 2.0 / 7.0).abs() < 1e-12, "{fair}");
    document["policy"]["drf"] = json!("stop");
    let value = solved(&document);
    assert_eq!(
        (containers(&value, "t/a"), containers(&value, "t/b")),
        (2, 2)
    );
}

#[test]
fn fixed_counts_are_all_or_nothing_and_in_order() {
    let value = solved(&json!({
        "nodes": [{"name": "g", "capacity": {"cpu": 4, "gpu": 1}}, {"name": "n", "capacity": {"cpu": 4}}],
        "jobs": [
            {"job": "t/a", "demand": {"cpu": 2}, "containers": {"max": 9}, "static_containers": 2},
            {"job": "t/b", "demand": {"cpu": 2}, "containers": {"max": 9}, "static_containers": 3},
            {"job": "t/c", "demand": {"cpu": 2}, "containers": {"max": 9}, "static_containers": 1}
        ],
        "policy": {"allocation": "static"}
    }));
    assert_eq!(value["jobs"][0]["nodes"], json!({"n": 2}));
    assert_eq!(value["waiting"][0]["code"], "resources");
    assert_eq!(value["waiting"][1]["code"], "behind");
}

#[test]
fn reasons_say_what_is_missing() {
    let value = solved(&json!({
        "nodes": [{"name": "n", "capacity": {"cpu": 4, "memory": "8Gi"}}],
        "jobs": [
            {"job": "t/gpu", "demand": {"cpu": 1, "gpu": 1}},
            {"job": "t/huge", "demand": {"cpu": 5}},
            {"job": "t/runs", "demand": {"cpu": 3}, "adjustable": false, "previous": {"n": 1}},
            {"job": "t/head", "demand": {"cpu": 2}},
            {"job": "t/next", "demand": {"cpu": 2}}
        ]
    }));
    let waiting = value["waiting"].as_array().expect("waiting");
    let codes: Vec<_> = waiting
        .iter()
        .map(|w| w["code"].as_str().expect("a code"))
        .collect();
    assert_eq!(
        codes,
        ["no_such_resource", "never_fits", "resources", "behind"]
    );
    let reason = waiting[2]["reason"].as_str().expect("a reason");
    assert_eq!(
        reason,
        "its minimum of 1 container needs cpu 2, and 1 can be had now: of 4 in all, 3 is of jobs that cannot be changed now (t/runs); 1 more is needed"
    );
    assert!(
        waiting[3]["reason"]
            .as_str()
            .expect("a reason")
            .contains("t/head")
    );
}

#[test]
fn an_idle_clusters_head_is_admitted_without_the_bound() {
    let value = solved(&json!({
        "nodes": [{"name": "n", "capacity": {"cpu": 4}}],
        "jobs": [
            {"job": "t/a", "demand": {"cpu": 3}, "containers": {"max": 1}},
            {"job": "t/b", "demand": {"cpu": 1}, "containers": {"max": 4}}
        ],
        "policy": {"theta1": 0, "theta2": 0.1, "fairness_bound": "exact"}
    }));
    // Both fit exactly fairly, without the exception.
    assert_eq!(value["unbounded"], false);
    let value = solved(&json!({
        "nodes": [{"name": "n", "capacity": {"cpu": 4}}],
        "jobs": [{"job": "t/a", "demand": {"cpu": 3}, "containers": {"max": 2}}],
        "policy": {"theta1": 0, "theta2": 0.1, "fairness_bound": "exact"}
    }));
    assert_eq!(value["unbounded"], true);
    assert_eq!(containers(&value, "t/a"), 1);
}

#[test]
fn wrong_documents_are_refused_by_name() {
    let refused = |change: fn(&mut Value), expected: &str| {
        let mut document = example();
        change(&mut document);
        let error = read(&document.to_string())
            .expect_err("refused")
            .to_string();
        assert!(error.contains(expected), "{error}");
    };
    refused(|d| d["jobs"][0]["wieght"] = json!(2), "wieght");
    refused(|d| d["policy"]["theta3"] = json!(2), "theta3");
    refused(|d| d["policy"]["theta1"] = json!(2), "theta1");
    refused(|d| d["policy"]["theta1"] = json!(-0.1), "theta1");
    refused(|d| d["jobs"][0]["demand"]["cpu"] = json!("two"), "cpu");
    refused(|d| d["jobs"][0]["job"] = json!("lr"), "tenant/name");
    refused(
        |d| d["jobs"][0]["containers"] = json!({"min": 3, "max": 2}),
        "containers",
    );
    refused(|d| d["jobs"][0]["previous"] = json!({"n9": 1}), "n9");
    refused(
        |d| d["nodes"] = json!([d["nodes"][0], d["nodes"][0]]),
        "twice",
    );
    refused(|d| d["budget"]["gap"] = json!(-1), "gap");
}

#[test]
fn the_same_document_gives_the_same_answer() {
    let text = example().to_string();
    let first = solve_document(&text).expect("solves");
    assert_eq!(first, solve_document(&text).expect("solves"));
}
