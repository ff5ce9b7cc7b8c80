//! Repeated placements, and returning nodes.

use dormouse_messages::events::*;
use dormouse_messages::{Decider, Epoch, Event, Incarnation, Sequence};
use dormouse_placer::Placer;

use crate::given::{Given, at, job, node, spec};
use crate::places::placed;

fn nodes_of(given: &Given) -> Vec<String> {
    let places = placed(given).into_iter();
    places.map(|(_, on)| on).collect()
}

#[test]
fn a_placement_is_caused_by_the_allocation_and_the_releases_that_it_answers() {
    let mut given = Given::nodes();
    given.placed("t/old", "n1");
    given.released(spec(&job("t/new")));
    let released = given.state.jobs[&job("t/new")].released.expect("released");
    given.allocated(&[("t/new", &[("n0", 1)]), ("t/old", &[("n1", 1)])]);
    let allocation = Sequence(given.events);
    let decision = Placer.decide(&given.state, at(given.seconds));
    assert_eq!(decision.proposals[0].causes, [allocation, released]);
}

#[test]
fn the_room_of_a_job_that_gets_nothing_is_given_away() {
    let mut given = Given::nodes();
    given.placed("t/old", "n0");
    given.released(spec(&job("t/new")));
    given.allocated(&[("t/old", &[]), ("t/new", &[("n0", 2)])]);
    assert_eq!(nodes_of(&given), ["n0", "n0"]);
}

#[test]
fn so_is_the_room_of_one_that_was_known_to_end() {
    let mut given = Given::nodes();
    given.placed("t/old", "n0");
    given.push(JobCancelRequested {
        job: job("t/old"),
        ingress_sequence: 2,
        by: None,
        basis: None,
    });
    given.released(spec(&job("t/new")));
    given.allocated(&[("t/new", &[("n0", 2)])]);
    assert_eq!(nodes_of(&given), ["n0", "n0"]);
    // The containers of a job cancelled after the allocation stay.
    let mut given = Given::nodes();
    given.placed("t/old", "n0");
    given.released(spec(&job("t/new")));
    given.allocated(&[("t/new", &[("n0", 1)])]);
    given.push(JobCancelRequested {
        job: job("t/old"),
        ingress_sequence: 2,
        by: None,
        basis: None,
    });
    assert_eq!(nodes_of(&given), ["n0"]);
}

#[test]
fn a_node_that_is_back_is_said_to_be() {
    let mut given = Given::nodes();
    given.push(NodeLost {
        node: node("n0"),
        incarnation: 1,
        last_seen: at(1),
    });
    given.joins("n0", 2, &[]);
    let joined = Sequence(given.events);
    let decision = Placer.decide(&given.state, at(given.seconds));
    let said = decision.proposals.iter().find_map(|it| match &it.event {
        Event::NodeRecovered(event) => Some((event.node.clone(), it.causes.clone())),
        _ => None,
    });
    assert_eq!(said, Some((node("n0"), vec![joined])));
}

fn is_placed_again(reason: StopReason) -> bool {
    let mut given = Given::nodes();
    given.placed("t/x", "n0");
    given.push(PartitionStartRequested {
        job: job("t/x"),
        epoch: Epoch(0),
        incarnation: Incarnation(1),
        containers: 1,
        resumed_from: None,
        basis: None,
    });
    assert_eq!(given.decided().0, [], "it has a partition");
    given.push(PartitionStopped {
        job: job("t/x"),
        epoch: Epoch(0),
        incarnation: Incarnation(1),
        containers: 1,
        reason,
        attempts: 1,
        basis: None,
    });
    match given.decided().0.as_slice() {
        [] => false,
        [Event::PlacementDecided(again)] => {
            assert_eq!(again.create[0].incarnation, Incarnation(2));
            true
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_failed_is_placed_again_and_what_is_over_is_not() {
    for again in [StopReason::Failed, StopReason::NodeLost] {
        assert!(is_placed_again(again), "{again:?}");
    }
    for over in [
        StopReason::Completed,
        StopReason::GaveUp,
        StopReason::Cancelled,
        StopReason::TimeLimit,
    ] {
        assert!(!is_placed_again(over), "{over:?}");
    }
}
