//! Answers do not depend on the brokers' clock, which steps by a day and back.

use std::sync::Arc;

use dormouse_messages::{Fold as _, JobId, Recorded, Timestamp};
use dormouse_projections::{ReadModel, queries};
use dormouse_replay::history::bisect::{Bisect, Predicate};
use dormouse_replay::history::changes::Asked;
use dormouse_replay::history::explain::{Explainer, Subject};
use dormouse_replay::history::ledger::Ledger;
use dormouse_replay::history::whatif::{ForkAt, History, Options, whatif};
use dormouse_replay::simulate::seconds_after_start;
use serde_json::{Value, json};

use crate::ledger::two_tenants;

const DAY_MS: u64 = 86_400_000;

/// Leaders change between events of one instant, so that the steps hide no time.
fn stepped(log: &[Arc<Recorded>]) -> Vec<Arc<Recorded>> {
    let same = (1..log.len()).filter(|at| log[*at].stored_at == log[*at - 1].stored_at);
    let same: Vec<usize> = same.collect();
    let ahead = same[same.len() / 3]..same[2 * same.len() / 3];
    let stamped = log.iter().enumerate().map(|(place, recorded)| {
        let mut recorded = (**recorded).clone();
        if ahead.contains(&place) {
            recorded.stored_at = recorded.stored_at.plus_ms(DAY_MS);
        }
        Arc::new(recorded)
    });
    stamped.collect()
}

#[track_caller]
fn the_same(of: impl Fn(&[Arc<Recorded>]) -> Value) {
    let log = two_tenants();
    let (even, uneven) = (of(&log), of(&stepped(&log)));
    assert_eq!(uneven, even);
}

fn seconds(seconds: f64) -> Timestamp {
    seconds_after_start(seconds)
}

#[test]
fn the_ledger_of_a_window() {
    the_same(|log| {
        let mut ledger = Ledger::new(Some(seconds(50.0)), Some(seconds(200.0)));
        log.iter().for_each(|recorded| ledger.read(recorded));
        json!(ledger.finish(seconds(300.0)))
    });
}

#[test]
fn every_query_ages_and_timelines_among_them() {
    the_same(|log| {
        let mut model = ReadModel::default();
        log.iter().for_each(|recorded| model.evolve(recorded));
        let ask = |name: &str, request: Value| {
            let now = model.time_at(seconds(300.0));
            queries::answer(&model, name, request, now).expect("an answer")
        };
        let plain = ["cluster", "jobs", "ledger", "nodes", "notebooks", "tenants"];
        let mut answers: Vec<Value> = plain.iter().map(|name| ask(name, Value::Null)).collect();
        answers.push(ask("job", json!({"job": "a/x"})));
        for metric in [
            "utilization",
            "containers",
            "waiting",
            "dominant-share",
            "jobs",
        ] {
            answers.push(ask("timeline", json!({"metric": metric})));
        }
        json!(answers)
    });
}

#[test]
fn the_place_of_a_time_and_what_if_from_there() {
    the_same(|log| {
        let mut history = History::default();
        log.iter().for_each(|recorded| history.read(recorded));
        let forked = history.fork(ForkAt::Time(seconds(120.0)));
        let asked = Asked {
            settings: vec!["tenant.b.weight=3".parse().expect("a setting")],
            ..Asked::default()
        };
        let variants = asked.variants().expect("changes");
        let options = Options {
            draws: 1,
            threads: 1,
        };
        let answered = whatif(&history, &forked, &variants, options).expect("an answer");
        let (begin, end) = forked.span;
        json!({"at": forked.now, "begin": begin, "end": end, "answer": answered.answer})
    });
}

#[test]
fn the_resizes_of_a_job_in_explain() {
    the_same(|log| {
        let job: JobId = "a/x".parse().expect("a job");
        let mut explainer = Explainer::new(Subject::Job(job), None, 0);
        log.iter().for_each(|recorded| explainer.read(recorded));
        json!(explainer.explain().expect("it is there"))
    });
}

#[test]
fn the_first_place_of_something() {
    the_same(|log| {
        let predicate: Predicate = "a/x.containers=4".parse().expect("a predicate");
        let mut bisect = Bisect::new(predicate);
        log.iter().any(|recorded| bisect.read(recorded));
        json!(bisect.finish().0.expect("it was so"))
    });
}
