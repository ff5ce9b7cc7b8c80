//! Alternatives on one node of 8 CPUs, with objectives worked out by hand: utilization − 0.3 · loss −
//! restart costs.

use dormouse_messages::{Epoch, Event};
use dormouse_replay::engine::Engine;
use dormouse_replay::history::explain::{Alternative, Explanation, Subject};
use dormouse_replay::simulate::seconds_after_start;

use super::{EXIT, cluster, explain, policy, submit};

fn last(engine: &Engine) -> Explanation {
    let mut epochs = engine.log().iter().filter_map(|it| match it.event() {
        Some(Event::AllocationDecided(event)) => Some(event.epoch),
        _ => None,
    });
    let last: Epoch = epochs.next_back().expect("a decision");
    explain(engine.log(), Subject::Epoch(last), None)
}

fn shown(it: &Alternative) -> String {
    let objective = it.objective.expect("an objective");
    format!("{}: {} {objective:.2}", it.what, it.code)
}

/// `ads/x` has 8 and `lab/z` needs 2: startable jobs start before any weighing.
#[test]
fn what_would_leave_a_job_waiting_loses_whatever_it_is_worth() {
    let mut engine = cluster(1, policy(1.0, 1.0));
    submit(&mut engine, 0.0, "ads/x", (1, 8), EXIT);
    submit(&mut engine, 100.0, "lab/z", (2, 4), EXIT);
    engine
        .run_until(seconds_after_start(101.0))
        .expect("a healthy run");
    let answer = last(&engine);
    assert_eq!(answer.jobs.len(), 2, "{answer:?}");
    // Alone it has its fair share: 1 − 0.3 · 0.
    let all: Vec<String> = answer.alternatives.iter().map(shown).collect();
    assert_eq!(
        all,
        [
            "no change at all: fewer_jobs 1.00",
            "ads/x keeps 8: fewer_jobs 1.00",
            "lab/z waits: fewer_jobs 1.00",
        ]
    );
    for it in &answer.alternatives {
        assert_eq!(it.waits, ["lab/z"]);
        assert!(it.words.contains("lab/z would wait"), "{it:?}");
    }
    let epoch = answer.about.strip_prefix("epoch/").expect("an epoch");
    let epoch = Subject::Epoch(Epoch(epoch.parse().expect("a number")));
    let seen = explain(engine.log(), epoch, Some("ads"));
    let text = serde_json::to_string(&seen.alternatives).expect("JSON");
    assert!(!text.contains("lab"), "{text}");
}

/// After `ads/y` ends, `ads/x` may have 8. At 4, utilization and loss are half: 0.5 − 0.3 · 0.5.
#[test]
fn what_is_worth_less_is_told_by_how_much() {
    let mut engine = cluster(1, policy(1.0, 1.0));
    submit(&mut engine, 0.0, "ads/x", (1, 8), EXIT);
    submit(&mut engine, 0.0, "ads/y", (1, 4), EXIT);
    engine
        .run_until(seconds_after_start(300.0))
        .expect("a healthy run");
    let cancel = dormouse_replay::engine::Action::Submit {
        tenant: "ads".to_owned(),
        verb: "cancel".to_owned(),
        payload: br#"{"job":"y"}"#.to_vec(),
    };
    engine.at(seconds_after_start(400.0), cancel);
    engine
        .run_until(seconds_after_start(500.0))
        .expect("a healthy run");
    let answer = last(&engine);
    assert_eq!(answer.jobs.len(), 1, "{answer:?}");
    let [none] = answer.alternatives.as_slice() else {
        panic!("one alone that changed is no change at all: {answer:?}");
    };
    assert_eq!(shown(none), "no change at all: objective 0.35");
    assert_eq!(
        (none.adjusted_jobs, none.fairness_loss),
        (Some(0), Some(0.5))
    );
    assert!(none.words.starts_with("it is worth 0."), "{none:?}");
    assert_eq!(answer.solves, 1);
}
