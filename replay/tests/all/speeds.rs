//! Allocation by speed: two jobs that scale and one that bends.

use std::sync::Arc;

use dormouse_messages::speed::CurveSource;
use dormouse_messages::{Event, Recorded, Sequence};
use dormouse_replay::Verifier;
use dormouse_replay::scenario::read_value;
use dormouse_replay::simulate::{Figures, Options, simulate};
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
            job("bent-1", 0.0, 4_000.0, bent, stated),
            job("line-1", 10.0, 6_000.0, linear(), &[]),
            job("line-2", 600.0, 6_000.0, linear(), &[]),
        ],
    })
}

fn run(scenario: Value) -> (Figures, Vec<Arc<Recorded>>) {
    let scenario = read_value(scenario).expect("a scenario");
    let mut log = Vec::new();
    let each = |recorded: &Arc<Recorded>| {
        log.push(Arc::clone(recorded));
        Ok(())
    };
    let outcome = simulate(&scenario, &Options::default(), each, |_| {}).expect("it ends");
    (outcome.figures, log)
}

fn speed() -> Value {
    json!({"value": "speed", "concave": 0.7, "attained": 0.5, "loss": 0.1, "amortise_s": 300})
}

fn ended_s(log: &[Arc<Recorded>]) -> f64 {
    let start = log[0].stored_at;
    log.last()
        .map_or(0.0, |last| last.stored_at.seconds_since(start))
}

#[test]
fn a_cluster_that_knows_speeds_ends_earlier_and_every_decision_comes_out_again() {
    let (_, linear) = run(scenario(&json!({}), &[]));
    let (_, learnt) = run(scenario(&speed(), &[]));
    let (before, after) = (ended_s(&linear), ended_s(&learnt));
    assert!(after < 0.95 * before, "{after} s instead of {before} s");
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
    let (_, log) = run(scenario(&speed(), &[1.0, 1.01, 1.01, 1.01]));
    let fits = log.iter().filter_map(|it| match it.event() {
        Some(Event::JobSpeedFitted(event)) if event.job.name() == "bent-1" => Some(&**event),
        _ => None,
    });
    let fits: Vec<_> = fits.collect();
    assert_eq!(fits[0].source, CurveSource::Document);
    assert!(fits[0].curve.useful(2) < 1.05, "{:?}", fits[0]);
    let last = fits.last().expect("a curve");
    assert_eq!(last.source, CurveSource::Measured);
    assert!(last.curve.useful(2) > 1.3, "{last:?}");
}
