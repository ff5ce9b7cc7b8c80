//! Incarnations that fail before the fork, or before their whole gang ran.

use std::sync::Arc;

use dormouse_messages::{Event, Recorded, Sequence};
use dormouse_replay::engine::{Action, Engine, ModelJob};
use dormouse_replay::simulate::{START, seconds_after_start};

use crate::common::submit;

use super::course;

/// A node of 3 CPUs: a gang of three fails at each start, and another job of three waits.
fn log(retries: u32) -> Vec<Arc<Recorded>> {
    let mut engine = Engine::new(START, true);
    let node = "n0".parse().expect("a node");
    let capacity = "cpu=3".parse().expect("amounts");
    engine.at(START, Action::Join { node, capacity });
    for (at_s, name, fails_after_s) in [(1.0, "fails", Some(0.0)), (2.0, "waits", None)] {
        let model = ModelJob {
            start_s: 5.0,
            fails_after_s,
            ..ModelJob::linear(30.0)
        };
        let rest =
            format!(r#""demand":{{"cpu":1}},"containers":{{"min":3,"max":3}},"retries":{retries}"#);
        submit(&mut engine, at_s, &format!("ads/{name}"), &rest, model);
    }
    engine
        .run_until(seconds_after_start(300.0))
        .expect("a healthy run");
    engine.log().to_vec()
}

fn ends(log: &[Arc<Recorded>]) -> (Vec<&str>, Vec<&str>) {
    let (mut failed, mut completed) = (Vec::new(), Vec::new());
    for recorded in log {
        match recorded.event() {
            Some(Event::JobFailed(event)) => failed.push(event.job.name()),
            Some(Event::JobCompleted(event)) => completed.push(event.job.name()),
            _ => {}
        }
    }
    (failed, completed)
}

#[test]
fn incarnations_that_failed_before_the_fork_count() {
    let log = log(2);
    assert_eq!(ends(&log), (vec!["fails"], vec!["waits"]));
    let stopped = log.iter().filter_map(|it| match it.event() {
        Some(Event::PartitionStopped(event)) => Some((event.attempts, it.sequence)),
        _ => None,
    });
    for (attempts, at) in stopped.filter(|(attempts, _)| (1..3).contains(attempts)) {
        let (after, again) = course(&log, at);
        assert_eq!(ends(&again), ends(&after), "after {attempts} attempts");
    }
}

fn hasty(log: &[Arc<Recorded>], last_runs: bool) -> Vec<Arc<Recorded>> {
    let place = |is: fn(&Event) -> bool| log.iter().position(|it| it.event().is_some_and(is));
    let last =
        place(|it| matches!(it, Event::ContainerStarted(event) if event.container.rank.0 == 2))
            .expect("the last of them");
    let exited = place(|it| matches!(it, Event::ContainerExited(_))).expect("an exit");
    let started = place(|it| matches!(it, Event::PartitionStarted(_))).expect("a start");
    let mut order: Vec<usize> = (0..log.len()).filter(|it| *it != started).collect();
    order.retain(|it| *it != exited);
    order.insert(last, exited);
    if !last_runs {
        order.retain(|it| *it != last);
    }
    let numbered = (1..).zip(order).map(|(sequence, index)| {
        let mut recorded = Recorded::clone(&log[index]);
        recorded.sequence = Sequence(sequence);
        Arc::new(recorded)
    });
    numbered.collect()
}

#[test]
fn a_gang_that_fails_before_all_of_it_runs_fails_on_the_fork_too() {
    let log = log(0);
    for last_runs in [true, false] {
        let hasty = hasty(&log, last_runs);
        let (_, again) = course(&hasty, Sequence(0));
        let runs = if last_runs { "runs" } else { "never runs" };
        assert_eq!(
            ends(&again),
            (vec!["fails"], vec!["waits"]),
            "the last {runs}"
        );
    }
}
