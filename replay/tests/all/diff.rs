//! `log diff`: a case for each class of differences.

use std::sync::Arc;

use dormouse_messages::events::{AllocationDecided, ClusterConfigured, NodeContainers};
use dormouse_messages::policy::{Objective, Policy};
use dormouse_messages::{Envelope, Event, Recorded};
use dormouse_replay::engine::{Action, Engine, ModelJob};
use dormouse_replay::history::changes::Asked;
use dormouse_replay::history::diff::{Class, DiffAnswer, PolicyDiff, logs};
use dormouse_replay::simulate::{START, seconds_after_start};

type Log = Vec<Arc<Recorded>>;

fn log(theta2: f64, jobs: &[(&str, f64, u32, u32)]) -> Log {
    let mut engine = Engine::new(START, true);
    let policy = Policy {
        theta1: 1.0,
        theta2,
        min_run_s: Some(0),
        objective: Objective {
            loss: 3.0,
            amortise_s: None,
            ..Objective::default()
        },
        ..Policy::default()
    };
    engine.at(START, Action::Operator(ClusterConfigured { policy }.into()));
    for node in ["n0", "n1"] {
        let node = node.parse().expect("a node");
        let capacity = "cpu=8".parse().expect("amounts");
        engine.at(START, Action::Join { node, capacity });
    }
    for (name, at_s, min, max) in jobs {
        let id = format!("ads/{name}").parse().expect("a job");
        engine.model(id, ModelJob::linear(1e6));
        let payload = format!(
            r#"{{"name":"{name}","command":{{"start":["run"]}},"demand":{{"cpu":1}},"containers":{{"min":{min},"max":{max}}},"checkpoint":{{"mode":"exit"}}}}"#
        );
        let action = Action::Submit {
            tenant: "ads".to_owned(),
            verb: "submit".to_owned(),
            payload: payload.into_bytes(),
        };
        engine.at(seconds_after_start(*at_s), action);
    }
    engine
        .run_until(seconds_after_start(200.0))
        .expect("a healthy run");
    engine.log().to_vec()
}

fn with_policy(log: &Log, settings: &[&str]) -> DiffAnswer {
    let asked = Asked {
        settings: settings
            .iter()
            .map(|it| it.parse().expect("a setting"))
            .collect(),
        ..Asked::default()
    };
    let changes = asked.variants().expect("changes").remove(0);
    let mut diff = PolicyDiff::new(&changes);
    log.iter()
        .for_each(|recorded| diff.read(recorded).expect("a policy"));
    diff.finish()
}

fn changed(log: &Log, change: impl FnOnce(&mut AllocationDecided)) -> Log {
    let mut log = log.clone();
    let decided = log
        .iter_mut()
        .rev()
        .find(|it| matches!(it.event(), Some(Event::AllocationDecided(_))));
    let decided = Arc::make_mut(decided.expect("an allocation"));
    let mut event = decided.event().cloned().expect("an event");
    if let Event::AllocationDecided(event) = &mut event {
        change(event);
    }
    let (writer, at) = (decided.writer, decided.stored_at);
    decided.envelope = Envelope::new("changed".to_owned(), writer, at, None, event);
    log
}

fn class_of(answer: &DiffAnswer) -> Class {
    let first = answer.first.as_ref().expect("a difference");
    assert!(!first.jobs.is_empty() && !first.explained.is_empty());
    first.class
}

/// Both fill the cluster at once: 8 and 8.
const TWO: [(&str, f64, u32, u32); 2] = [("x", 0.0, 1, 10), ("y", 0.0, 1, 10)];
/// 7 and 7 run; 2 are free for a third job.
const THREE: [(&str, f64, u32, u32); 3] = [("x", 0.0, 1, 7), ("y", 0.0, 1, 7), ("z", 100.0, 1, 8)];
/// 8 and 8 run; nothing is free for a third job.
const FULL: [(&str, f64, u32, u32); 3] = [("x", 0.0, 1, 8), ("y", 0.0, 1, 8), ("z", 100.0, 2, 8)];

#[test]
fn the_same_policy_and_the_same_log_are_equal() {
    let log = log(0.5, &THREE);
    for answer in [with_policy(&log, &[]), logs(&log, &log)] {
        assert!(answer.compared >= 2 && answer.first.is_none());
        assert_eq!(answer.classes.get(&Class::Equal), Some(&answer.compared));
    }
}

/// Another split has the same value, unless the objective differs by more than the gap.
#[test]
fn others_of_the_same_value_are_told_from_better_and_worse_ones() {
    let log = log(0.5, &TWO);
    let uneven = |x: u32, y: u32, objective: f64, gap: f64| {
        changed(&log, |event| {
            for job in &mut event.jobs {
                let is_x = job.job.as_str() == "ads/x";
                job.containers = if is_x { x } else { y };
                // Both nodes of eight are full, and each job fills one of them.
                let (own, other) = if is_x { ("n0", "n1") } else { ("n1", "n0") };
                let at = [
                    (own, job.containers.min(8)),
                    (other, job.containers.saturating_sub(8)),
                ];
                let at = at.into_iter().filter(|(_, count)| *count > 0);
                let at = at.map(|(node, count)| (node.parse().expect("a name"), count));
                job.nodes = NodeContainers::of(None, &at.collect()).collect();
            }
            event.outcome.solver.objective += objective;
            event.outcome.solver.gap = gap;
        })
    };
    let left = uneven(6, 10, 0.0, 0.0);
    for (objective, gap, class) in [
        (0.0, 0.0, Class::EqualValue),
        (0.01, 0.0, Class::Better),
        (-0.01, 0.0, Class::Worse),
        (0.001, 0.01, Class::EqualValue),
        (-0.001, 0.01, Class::EqualValue),
    ] {
        let right = uneven(10, 6, objective, gap);
        assert_eq!(class_of(&logs(&left, &right)), class, "{objective} {gap}");
    }
}

/// The third job gets its share with a restart, which the first bound forbids; without one the value is
/// lower.
#[test]
fn a_bound_that_is_looser_is_infeasible_and_one_that_is_tighter_worse() {
    let answer = with_policy(&log(0.0, &THREE), &["policy.theta2=1"]);
    assert_eq!(class_of(&answer), Class::Infeasible, "{answer:?}");
    let answer = with_policy(&log(1.0, &THREE), &["policy.theta2=0"]);
    assert_eq!(class_of(&answer), Class::Worse, "{answer:?}");
}

#[test]
fn to_keep_and_to_change_are_of_other_types() {
    let answer = with_policy(&log(1.0, &FULL), &["policy.theta2=0"]);
    assert_eq!(class_of(&answer), Class::OtherType, "{answer:?}");
    let first = answer.first.expect("a difference");
    assert_eq!(first.left.type_name, "allocation.decided");
    assert_eq!(first.right.type_name, "allocation.unchanged");
}

#[test]
fn more_than_there_is_room_for_is_infeasible() {
    let left = log(0.5, &TWO);
    let right = changed(&left, |event| {
        event.jobs[0].containers += 100;
        event.jobs[0].nodes[0].containers += 100;
    });
    assert_eq!(class_of(&logs(&left, &right)), Class::Infeasible);
    assert_ne!(class_of(&logs(&right, &left)), Class::Infeasible);
}
