//! The scenario reader, and an error for every mistake.

use dormouse_replay::scenario::{read, read_value};
use dormouse_replay::simulate::{Options, Outcome, Percentiles, simulate};
use serde_json::{Value, json};

fn good() -> Value {
    json!({
        "scenario": "small", "horizon_s": 3600,
        "costs": {"adjustment_s": 30, "start_s": 1},
        "nodes": [
            {"name": "n0", "capacity": {"cpu": 4, "memory": "8Gi"}},
            {"name": "n1", "capacity": {"cpu": 4, "memory": "8Gi"}},
        ],
        "jobs": [
            {"at_s": 0, "spec": {"name": "a", "tenant": "ads", "command": {"start": ["x"]}, "demand": {"cpu": 1},
             "containers": {"min": 1, "max": 4}, "checkpoint": {}},
             "static_containers": 2,
             "model": {"work_container_s": 400, "scaling": {"kind": "table", "speed": [1, 1.8]}}},
            {"at_s": 5, "spec": {"name": "b", "tenant": "ads", "kind": "batch", "command": {"start": ["x"]}, "demand": {"cpu": 2}},
             "model": {"tasks": {"count": 3, "interval_s": 10, "duration_s": 60}}},
        ],
    })
}

#[test]
fn a_scenario_reads_and_its_jobs_run_as_modelled() {
    let scenario = read_value(good()).expect("reads");
    let names: Vec<&str> = scenario
        .submissions
        .iter()
        .map(|one| one.job.as_str())
        .collect();
    assert_eq!(names, ["ads/a", "ads/b-0", "ads/b-1", "ads/b-2"]);
    let outcome = run(good());
    assert_eq!(outcome.figures.completed, 4);
    let task = outcome
        .jobs
        .iter()
        .find(|job| job.job.as_str() == "ads/b-1")
        .expect("ran");
    assert!(
        (task.ended_s - task.submitted_s - 61.0).abs() < 1e-6,
        "{task:?}"
    );
    assert_eq!(outcome.figures.tenants["ads"].jobs, 4);
}

#[test]
fn speed_follows_the_table() {
    let mut alone = good();
    alone["jobs"] = json!([alone["jobs"][0]]);
    let outcome = run(alone);
    let jct_s = outcome.figures.jct_s.mean;
    assert!((jct_s - (1.0 + 400.0 / 1.8)).abs() < 1e-3, "{jct_s}");
}

#[test]
fn an_adjusted_job_loses_what_the_scenario_says() {
    let job = |at_s: u32, name: &str, min: u32, work: u32| {
        json!({"at_s": at_s, "spec": {"name": name, "command": {"start": ["x"]}, "demand": {"cpu": 1},
               "containers": {"min": min, "max": 8}, "checkpoint": {}, "min_run_s": 0},
               "model": {"work_container_s": work}})
    };
    for (save_s, first) in [(0, 10.0), (20, 30.0)] {
        let mut document = good();
        document["costs"] = json!({"adjustment_s": 30, "save_s": save_s});
        document["jobs"] = json!([job(0, "a", 1, 800), job(10, "b", 4, 100_000)]);
        let outcome = run(document);
        // Eight containers for 10 s, 30 s of pause, four for the other 720.
        let record = |name: &str| {
            outcome
                .jobs
                .iter()
                .find(|job| job.job.name() == name)
                .expect("ran")
        };
        assert!(
            (record("a").ended_s - 220.0).abs() < 1e-3,
            "{:?}",
            record("a")
        );
        assert!((record("b").started_s.expect("ran") - first).abs() < 1e-3);
    }
}

fn run(document: Value) -> Outcome {
    let options = Options {
        check: true,
        ..Options::default()
    };
    let scenario = read_value(document).expect("reads");
    simulate(&scenario, &options, |_| Ok(()), |_| ()).expect("runs")
}

#[test]
fn every_mistake_is_named() {
    let cases: [(&str, Value, &str); 22] = [
        ("/horizon_s", json!(0), "horizon_s"),
        ("/horizon_s", json!("x"), "scenario"),
        ("/policy", json!({"theta1": 2}), "theta1"),
        ("/policy", json!({"colour": 2}), "colour"),
        ("/policy", json!({"allocation": "magic"}), "magic"),
        ("/costs/adjustment_s", json!(-1), "costs.adjustment_s"),
        ("/costs/save_s", json!(60), "costs.save_s"),
        ("/nodes", json!([]), "nodes"),
        ("/nodes/0/name", json!("n1"), "two of this name"),
        ("/nodes/0/name", json!("N 1"), "N 1"),
        ("/nodes/0/capacity", json!({}), "capacity"),
        ("/nodes/0/capacity", json!({"cpu": "many"}), "many"),
        ("/jobs", json!([]), "jobs"),
        ("/jobs/0/at_s", json!(-5), "at_s"),
        ("/jobs/0/colour", json!(1), "colour"),
        (
            "/jobs/0/spec/containers",
            json!({"min": 3, "max": 2}),
            "min 3",
        ),
        ("/jobs/0/spec/colour", json!(1), "colour"),
        ("/jobs/0/static_containers", json!(9), "static_containers"),
        ("/jobs/0/model", json!({}), "neither"),
        (
            "/jobs/0/model/scaling",
            json!({"kind": "table", "speed": []}),
            "speed",
        ),
        (
            "/jobs/0/model/scaling",
            json!({"kind": "efficiency", "per_doubling": 1.5}),
            "per_doubling",
        ),
        ("/jobs/1/spec/kind", json!("training"), "kind: batch"),
    ];
    for (place, value, named) in cases {
        let mut document = good();
        let (parent, field) = place.rsplit_once('/').expect("a pointer");
        document.pointer_mut(parent).expect("is there")[field] = value;
        let error = read_value(document).expect_err(place);
        let text = format!("{:#}", anyhow_like(&error));
        assert!(text.contains(named), "{place}: {text}");
    }
    let mut both = good();
    both["jobs"][1]["model"]["work_container_s"] = json!(5);
    assert!(
        read_value(both)
            .expect_err("both")
            .to_string()
            .contains("give one")
    );
    let mut twice = good();
    twice["jobs"][1]["spec"]["name"] = json!("a");
    twice["jobs"][0]["spec"]["name"] = json!("a-1");
    assert!(
        read_value(twice)
            .expect_err("twice")
            .to_string()
            .contains("twice")
    );
    let line = read("{\n \"scenario\": 1}").expect_err("no text");
    assert!(anyhow_like(&line).contains("line 2"), "{line:?}");
}

fn anyhow_like(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(next) = source {
        text.push_str(&format!(": {next}"));
        source = next.source();
    }
    text
}

#[test]
fn percentiles_are_nearest_ranks() {
    let values = (1..=200).map(f64::from).collect();
    let found = Percentiles::of(values);
    assert_eq!(
        (found.p50, found.p90, found.p99, found.max),
        (100.0, 180.0, 198.0, 200.0)
    );
    assert_eq!(Percentiles::of(Vec::new()), Percentiles::default());
}
