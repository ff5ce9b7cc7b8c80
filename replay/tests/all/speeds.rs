//! Allocation by speed: two jobs that scale and one that bends.

use std::sync::Arc;

use dormouse_messages::speed::CurveSource;
use dormouse_messages::{Event, Recorded, Sequence};
use dormouse_replay::Verifier;
use dormouse_replay::scenario::read_value;
use dormouse_replay::simulate::{Options, simulate};
use serde_json::{Value, json};

/// `bent` gains nothing from its third container on.
fn scenario(objective: &Value, stated: &[f64]) -> Value {
    let job = |name: &str, at_s: f64, work: f64, scaling: Value, speed: &[f64]| {
        json!({
            "at_s": at_s,
            "spec": {
                "name": name, "tenant": "ads", "kind": "training", "speed": speed,
                "command": {"start": ["train"]}, "demand": {"gpu": 1},
                "containers": {"min": 1, "max": 8}, "checkpoint": {"mode": "exit"},
            },
            "model": {"work_container_s": work, "scaling": scaling},
        })
    };
    let bent = json!({"kind": "table", "speed": [1.0, 1.6, 1.6, 1.55, 1.5, 1.45, 1.4, 1.35]});
    let linear = || json!({"kind": "linear"});
    json!({
        "scenario": "bent", "horizon_s": 20_000,
        "policy": {"objective": objective},
        "costs": {"start_s": 5, "progress_s": 10},
        "nodes": [
            {"name": "n0", "capacity": {"gpu": 4}},
            {"name": "n1", "capacity": {"gpu": 4}},
        ],
        "jobs": [
            job("bent-1", 0.0, 3_000.0, bent, stated),
            job("line-1", 300.0, 6_000.0, linear(), &[]),
            job("line-2", 900.0, 6_000.0, linear(), &[]),
        ],
    })
}

/// The mean completion time in seconds, and the log.
fn run(scenario: Value) -> (f64, Vec<Arc<Recorded>>) {
    let scenario = read_value(scenario).expect("a scenario");
    let mut log = Vec::new();
    let each = |recorded: &Arc<Recorded>| {
        log.push(Arc::clone(recorded));
        Ok(())
    };
    let outcome = simulate(&scenario, &Options::default(), each, |_| {}).expect("it ends");
    let took_s = outcome.jobs.iter().map(|job| job.ended_s - job.submitted_s);
    (took_s.sum::<f64>() / outcome.jobs.len() as f64, log)
}

fn speed() -> Value {
    json!({"value": "speed", "concave": 0.7, "attained": 0.5, "loss": 0.1, "amortise_s": 300})
}

#[test]
fn a_cluster_that_knows_speeds_ends_earlier_and_every_decision_comes_out_again() {
    let (before, linear) = run(scenario(&json!({}), &[]));
    let (after, learnt) = run(scenario(&speed(), &[]));
    println!("{after} s instead of {before} s");
    assert!(after < 0.97 * before, "{after} s instead of {before} s");
    let mut verifier = Verifier::default();
    learnt.iter().for_each(|recorded| verifier.read(recorded));
    let report = verifier.finish();
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
    let is_fit = |it: &&Arc<Recorded>| matches!(it.event(), Some(Event::JobSpeedFitted(_)));
    assert_eq!(linear.iter().filter(is_fit).count(), 0);
    assert!(learnt.iter().filter(is_fit).count() >= 3);
}

/// The curve that a decision uses is on the log before the decision's basis.
#[test]
fn a_curve_is_on_the_log_before_a_decision_uses_it() {
    let (_, log) = run(scenario(&speed(), &[]));
    let mut newest = Sequence(0);
    for recorded in &log {
        match recorded.event() {
            Some(Event::JobSpeedFitted(_)) => newest = recorded.sequence,
            Some(Event::AllocationDecided(event)) => {
                let asof = event.basis.as_ref().map_or(Sequence(0), |basis| basis.asof);
                assert!(newest <= asof, "{} after {asof}", newest);
            }
            _ => {}
        }
    }
}

#[test]
fn a_stated_curve_counts_from_the_start_and_a_wrong_one_is_overruled() {
    let (_, log) = run(scenario(&speed(), &[1.0, 2.0, 3.0, 4.0]));
    let fits = log.iter().filter_map(|it| match it.event() {
        Some(Event::JobSpeedFitted(event)) if event.job.name() == "bent-1" => Some(&**event),
        _ => None,
    });
    let fits: Vec<_> = fits.collect();
    assert_eq!(fits[0].source, CurveSource::Document);
    assert!(fits[0].curve.useful(2) > 1.9, "{:?}", fits[0]);
    let last = fits.last().expect("a curve");
    assert_eq!(last.source, CurveSource::Measured);
    assert!(last.curve.useful(4) < 2.2, "{last:?}");
}

/// Three jobs of a family and a longer one of another: with `remaining` the short ones pass.
#[test]
fn jobs_that_say_that_little_is_left_pass_the_others() {
    let job = |name: &str, at_s: f64, work: f64| {
        json!({
            "at_s": at_s,
            "spec": {
                "name": name, "tenant": "ads", "kind": "training",
                "command": {"start": ["train"]}, "demand": {"gpu": 1},
                "containers": {"min": 1, "max": 8}, "checkpoint": {"mode": "exit"},
            },
            "model": {"work_container_s": work, "scaling": {"kind": "efficiency", "per_doubling": 0.95}},
        })
    };
    let mean = |objective: &Value| {
        let mut value = scenario(objective, &[]);
        value["jobs"] = json!([
            job("long-1", 0.0, 16_000.0),
            job("short-1", 600.0, 4_000.0),
            job("short-2", 1_200.0, 4_000.0),
            job("long-2", 1_500.0, 16_000.0),
        ]);
        run(value).0
    };
    let mut objective = speed();
    objective["attained"] = json!(0);
    let before = mean(&objective);
    objective["remaining"] = json!(1);
    let after = mean(&objective);
    println!("{after} s instead of {before} s");
    assert!(after < 0.99 * before, "{after} s instead of {before} s");
}

/// Three jobs of two containers fill two nodes of three, so one job is on both nodes.
#[test]
fn the_loss_on_several_nodes_is_measured() {
    let job = |name: &str| {
        json!({
            "at_s": 0.0,
            "spec": {
                "name": name, "tenant": "ads", "kind": "training",
                "command": {"start": ["train"]}, "demand": {"gpu": 1},
                "containers": {"min": 2, "max": 2}, "checkpoint": {"mode": "exit"},
            },
            "model": {
                "work_container_s": 2_000.0,
                "scaling": {"kind": "table", "speed": [1.0, 2.0], "spread": {"speed": [1.0, 1.2], "per_node": 2}},
            },
        })
    };
    let mut value = scenario(&speed(), &[]);
    value["jobs"] = json!([job("a-1"), job("a-2"), job("a-3")]);
    value["nodes"] = json!([
        {"name": "n0", "capacity": {"gpu": 3}},
        {"name": "n1", "capacity": {"gpu": 3}},
    ]);
    let (_, log) = run(value);
    let fits = log.iter().filter_map(|it| match it.event() {
        Some(Event::JobSpeedFitted(event)) => event.crossing,
        _ => None,
    });
    let lost: Vec<f64> = fits.collect();
    assert!(!lost.is_empty());
    for lost in lost {
        assert!((lost - 0.4).abs() < 0.05, "{lost}");
    }
}
