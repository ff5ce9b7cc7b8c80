//! Tests of the queues.

use dormouse_messages::events::{JobCancelled, JobFailed, NodeDrained, NodeRemoved, NodeRestored};
use dormouse_messages::{Body, Event, Fold};

use super::*;
use crate::history::{History, job, node};

fn fold(history: &History) -> Queues {
    let mut queues = Queues::default();
    for recorded in &history.log {
        queues.evolve(recorded);
        queues.check_invariants().expect("sound after every event");
    }
    queues
}

#[test]
fn a_job_is_counted_where_it_stands() {
    let mut history = History::default();
    history.join("n0", 1).submit("ads/a").submit("ads/b");
    let queues = fold(&history);
    let ads = &queues.tenants["ads"];
    assert_eq!((ads.order.len(), ads.waits.arrived, queues.live), (2, 2, 2));
    assert_eq!(ads.queued.amounts().to_string(), "cpu=4,memory=16Gi");
    history.release("ads/a");
    let queues = fold(&history);
    let ads = &queues.tenants["ads"];
    assert_eq!((ads.order.len(), ads.released), (1, 1));
    assert_eq!(ads.runs.amounts().to_string(), "cpu=2,memory=8Gi");
    // Containers above the minimum are held, but preemptible …
    history.allocate(1, &[("ads/a", 0, 3)], &[]);
    let queues = fold(&history);
    assert_eq!(
        queues.tenants["ads"].runs.amounts().to_string(),
        "cpu=6,memory=24Gi"
    );
    // … unless the job cannot be resized.
    assert_eq!(
        queues.tenants["ads"].non_preemptible.amounts().to_string(),
        "cpu=6,memory=24Gi"
    );
    history.complete("ads/a");
    let queues = fold(&history);
    assert!(queues.tenants["ads"].runs.is_empty());
    assert_eq!((queues.durations.count, queues.live), (1, 1));
}

/// The requests overflow a sum of 64 bits.
#[test]
fn however_much_is_queued_the_sums_are_those_of_the_jobs() {
    let mut history = History::default();
    let (jobs, containers) = (900, 10_000);
    for number in 0..jobs {
        history.submit(&format!("ads/j{number}"));
        let last = history.log.last_mut().expect("just pushed");
        if let Body::Event(Event::JobAdmitted(event)) = &mut last.envelope.body {
            event.spec.demand = "cpu=1,memory=2Ti".parse().expect("amounts");
            (event.spec.containers.min, event.spec.containers.max) = (containers, containers);
            event.spec.containers.start = None;
        }
    }
    for number in 0..jobs {
        history.push(JobCancelled {
            job: job(&format!("ads/j{number}")),
            reason: "no longer needed".to_owned(),
            attempts: 0,
            code: None,
            ingress_sequence: None,
            by: None,
            basis: None,
        });
    }
    let mut queues = Queues::default();
    for (number, recorded) in history.log.iter().enumerate() {
        queues.evolve(recorded);
        if number % 100 == 0 {
            queues.check_invariants().expect("the sums of the jobs");
        }
    }
    queues.check_invariants().expect("the sums of the jobs");
    assert!(queues.tenants["ads"].queued.is_empty());
}

#[test]
fn the_bytes_of_a_specification_are_counted_while_it_is_queued() {
    let mut history = History::default();
    history.join("n0", 1).submit("ads/a").submit("ads/b");
    let bytes = |history: &History| fold(history).tenants["ads"].queued_bytes;
    let one = fold(&history).jobs[&job("ads/a")].bytes;
    assert!((100..1_000).contains(&one), "{one}");
    assert_eq!(bytes(&history), 2 * one);
    history.release("ads/a");
    assert_eq!(bytes(&history), one);
    history.complete("ads/a").complete("ads/b");
    assert_eq!(bytes(&history), 0);
}

#[test]
fn waits_are_paid_at_the_release() {
    let mut history = History::default();
    history.join("n0", 1).submit("ads/a").submit("ads/b");
    let admitted = |queues: &Queues, id: &str| match queues.jobs[&job(id)].stand {
        Stand::Queued { since, .. } => since,
        _ => panic!("{id} is not queued"),
    };
    let queues = fold(&history);
    let (a, b) = (admitted(&queues, "ads/a"), admitted(&queues, "ads/b"));
    history.release("ads/a");
    let queues = fold(&history);
    let waits = &queues.tenants["ads"].waits;
    let now = queues.cluster.now.as_micros();
    assert_eq!(waits.paid_us, now - a.as_micros());
    let so_far = now - a.as_micros() + now - b.as_micros();
    assert_eq!(waits.so_far_us(queues.cluster.now), so_far);
    assert_eq!((waits.arrived, waits.queued), (2, 1));
}

#[test]
fn the_gap_is_the_mean_duration_over_the_slots() {
    let mut history = History::default();
    history.join("n0", 1).submit("ads/a").release("ads/a");
    let released = history.now();
    history.complete("ads/a");
    let ran_us = history.now().as_micros() - released.as_micros();
    history.submit("ads/b");
    let queues = fold(&history);
    let (over, under) = queues.gap_us().expect("one has completed");
    // A job with share s of the cluster: 1/s jobs run at a time, so the gap is duration · s.
    let share = queues.demand_share(&queues.tenants["ads"]);
    assert_eq!(
        over * u128::from(share.under),
        u128::from(ran_us.unsigned_abs()) * u128::from(share.over) * under
    );
}

#[test]
fn a_node_that_was_drained_and_removed_is_not_drained_when_it_comes_back() {
    let mut history = History::default();
    history.join("n0", 1);
    history.push(NodeDrained {
        node: node("n0"),
        reason: None,
        deadline_s: None,
    });
    assert!(fold(&history).total.is_empty());
    history.push(NodeRemoved { node: node("n0") });
    history.join("n0", 2);
    assert_eq!(fold(&history).total.to_string(), "cpu=8,memory=32Gi");
}

#[test]
fn a_node_whose_removal_came_while_it_was_in_use_is_used_again_when_it_is_restored() {
    let mut history = History::default();
    history.join("n0", 1).submit("ads/a").release("ads/a");
    history
        .allocate(1, &[("ads/a", 0, 1)], &[])
        .place(1, "ads/a", 1, &[("n0", 1)])
        .request_start(1, "ads/a", 1, 1);
    history.push(NodeDrained {
        node: node("n0"),
        reason: None,
        deadline_s: None,
    });
    history.push(NodeRemoved { node: node("n0") });
    assert!(fold(&history).total.is_empty());
    history.push(NodeRestored { node: node("n0") });
    assert_eq!(fold(&history).total.to_string(), "cpu=8,memory=32Gi");
}

/// The name of an ended job is free again after some time.
#[test]
fn a_later_job_of_a_failed_jobs_name_fails_no_dependents() {
    let mut history = History::default();
    history.submit("ads/a").release("ads/a").push(JobFailed {
        job: job("ads/a"),
        reason: "it exited with 1".to_owned(),
        attempts: 3,
        basis: None,
    });
    let depends = |history: &mut History, id: &str| {
        history.submit(id);
        let last = history.log.last_mut().expect("just pushed");
        if let Body::Event(Event::JobAdmitted(event)) = &mut last.envelope.body {
            event.spec.depends_on.push(job("ads/a"));
        }
    };
    depends(&mut history, "ads/b");
    let stand = |history: &History, id: &str| fold(history).jobs[&job(id)].stand.clone();
    let before = stand(&history, "ads/b");
    assert!(
        matches!(before, Stand::DependencyFailed { .. }),
        "{before:?}"
    );
    history.submit("ads/a");
    depends(&mut history, "ads/c");
    let held = stand(&history, "ads/c");
    assert!(
        matches!(&held, Stand::Held { unmet } if unmet.len() == 1),
        "{held:?}"
    );
    history.release("ads/a").complete("ads/a");
    depends(&mut history, "ads/d");
    for id in ["ads/c", "ads/d"] {
        let free = stand(&history, id);
        assert!(matches!(free, Stand::Queued { .. }), "{id}: {free:?}");
    }
}
