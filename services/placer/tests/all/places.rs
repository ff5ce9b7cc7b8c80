//! Devices and constraints: a label change triggers a new decision.

use dormouse_messages::events::*;
use dormouse_messages::needs::Constraints;
use dormouse_messages::{Epoch, Event};
use serde_json::json;

use crate::given::{Given, job, node, spec};

fn zones() -> Given {
    let mut given = Given::nodes();
    for (name, zone) in [("n0", "a"), ("n1", "a"), ("n2", "b"), ("n3", "b")] {
        given.joins(name, 2, &[("zone", zone)]);
    }
    given
}

fn asks(constraints: serde_json::Value) -> Constraints {
    serde_json::from_value(constraints).expect("constraints")
}

fn released(given: &mut Given, id: &str, constraints: &Constraints) {
    let mut spec = spec(&job(id));
    spec.constraints = constraints.clone();
    given.released(spec);
}

pub fn placed(given: &Given) -> Vec<(String, String)> {
    let (events, _) = given.decided();
    let Some(Event::PlacementDecided(event)) = events.first() else {
        panic!("{events:?}");
    };
    let places = event.create.iter();
    let mut places: Vec<_> = places
        .map(|it| (it.job.to_string(), it.node.to_string()))
        .collect();
    places.sort();
    places
}

#[test]
fn a_label_that_changed_since_is_refused() {
    let mut given = zones();
    released(&mut given, "t/bound", &asks(json!({"zone": "b"})));
    given.allocated(&[("t/bound", &[("n2", 1)])]);
    given.push(NodeLabelled {
        node: node("n2"),
        labels: [("zone".to_owned(), Some("a".to_owned()))].into(),
        taints: Default::default(),
    });
    let (events, _) = given.decided();
    assert!(
        matches!(events[..], [Event::PlacementRefused(_)]),
        "{events:?}"
    );
}

#[test]
fn what_is_placed_and_not_started_is_decided_again() {
    let mut given = zones();
    released(&mut given, "t/bound", &asks(json!({"zone": "b"})));
    given.create("t/bound", "n2", 1);
    let trigger = given.state.last_trigger;
    let moved = |zone: &str| NodeLabelled {
        node: node("n2"),
        labels: [("zone".to_owned(), Some(zone.to_owned()))].into(),
        taints: Default::default(),
    };
    given.push(moved("a"));
    assert!(given.state.last_trigger > trigger);
    let assignment = given.state.jobs[&job("t/bound")].assignment.as_ref();
    assert!(assignment.expect("placed").displaced);
    // A running job stays.
    let mut given = zones();
    released(&mut given, "t/bound", &asks(json!({"zone": "b"})));
    given.create("t/bound", "n2", 1);
    given.push(PartitionStartRequested {
        job: job("t/bound"),
        epoch: Epoch(0),
        incarnation: dormouse_messages::Incarnation(1),
        containers: 1,
        resumed_from: None,
        basis: None,
    });
    given.push(moved("a"));
    let assignment = given.state.jobs[&job("t/bound")].assignment.as_ref();
    assert!(!assignment.expect("placed").displaced);
}

#[test]
fn fractions_share_a_device_and_whole_ones_have_theirs() {
    let mut given = Given::default();
    given.push(NodeJoined {
        node: node("n0"),
        capacity: "cpu=32,gpu=3".parse().expect("amounts"),
        labels: Default::default(),
        gpus: ["a", "b", "c"]
            .map(|uuid| Gpu {
                uuid: uuid.to_owned(),
                model: "H200".to_owned(),
                memory_bytes: 16 << 30,
            })
            .to_vec(),
        incarnation: 1,
        running: Vec::new(),
        address: String::new(),
        runtime: "process".to_owned(),
        taints: Default::default(),
    });
    for (id, demand) in [("t/q", "gpu=0.25"), ("t/h", "gpu=0.6"), ("t/w", "gpu=1")] {
        let mut spec = spec(&job(id));
        spec.demand = demand.parse().expect("amounts");
        given.push(JobAdmitted {
            job: job(id),
            spec,
            ingress_sequence: given.events,
            by: None,
            basis: None,
        });
        given.push(JobReleased {
            job: job(id),
            turn: None,
            passed_over: Vec::new(),
            basis: None,
        });
    }
    let all = |halves| [("t/q", 4), ("t/h", halves), ("t/w", 1)];
    let on_the_node = |given: &mut Given, counts: [(&str, u32); 3]| {
        let on = counts.map(|(id, count)| (id, [("n0", count)]));
        given.allocated(&on.each_ref().map(|(id, on)| (*id, &on[..])));
    };
    on_the_node(&mut given, all(1));
    let (events, _) = given.decided();
    let Some(Event::PlacementDecided(event)) = events.first() else {
        panic!("{events:?}");
    };
    let gpus_of = |id: &str| -> Vec<&str> {
        let own = event.create.iter().filter(|it| it.job == job(id));
        own.flat_map(|it| it.gpus.iter().map(String::as_str))
            .collect()
    };
    let (quarters, most, whole) = (gpus_of("t/q"), gpus_of("t/h"), gpus_of("t/w"));
    assert_eq!((quarters.len(), most.len(), whole.len()), (4, 1, 1));
    assert!(
        quarters.iter().all(|uuid| *uuid == quarters[0]),
        "{quarters:?}"
    );
    assert!(most[0] != whole[0] && quarters[0] != most[0] && quarters[0] != whole[0]);
    // A fourth device would be needed.
    on_the_node(&mut given, all(2));
    let (events, _) = given.decided();
    assert!(
        matches!(events[..], [Event::PlacementRefused(_)]),
        "{events:?}"
    );
}

#[test]
fn a_node_that_is_lost_or_drained_and_empty_is_forgotten() {
    let mut given = zones();
    given.push(NodeRemoved { node: node("n3") });
    assert!(given.state.nodes.get(&node("n3")).is_some(), "it is in use");
    given.push(NodeDrained {
        node: node("n3"),
        reason: None,
        deadline_s: None,
    });
    given.push(NodeRemoved { node: node("n3") });
    assert!(given.state.nodes.get(&node("n3")).is_none());
}

/// The job is ending: the allocation gave its capacity away, and a start waits for it.
#[test]
fn the_room_of_a_job_that_is_cancelled_is_taken() {
    let mut given = Given::nodes();
    given.placed("t/ending", "n0");
    given.placed("t/stays", "n0");
    given.push(JobCancelRequested {
        job: job("t/ending"),
        ingress_sequence: 9,
        by: None,
        basis: None,
    });
    released(&mut given, "t/new", &Constraints::default());
    given.allocated(&[("t/new", &[("n0", 1)])]);
    assert_eq!(placed(&given), [("t/new".to_owned(), "n0".to_owned())]);
}
