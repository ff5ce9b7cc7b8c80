//! The fold of the log into routes.

use dormouse_messages::events::{GatewayUnrouted, PlacedContainer, ServiceScaled};
use dormouse_messages::job::Kind;
use dormouse_messages::{ContainerId, Event, Fold, GatewayId, JobId, Sequence};
use dormouse_state::routes::{Leaving, Routes};
use proptest::prelude::*;
use serde_json::json;

use crate::common::*;

fn model() -> JobId {
    job("ads/model")
}

/// Two ready replicas on two nodes: eight events.
fn two() -> Vec<Event> {
    let model = model();
    vec![
        joined("n0", "10.0.0.1"),
        joined("n1", "10.0.0.2"),
        admitted(&model, Kind::Inference, 2, json!({})),
        placed(&model, 1, &[(0, "n0", 4000), (1, "n1", 4008)]),
        ready(&container(&model, 1, 0), "n0"),
        ready(&container(&model, 1, 1), "n1"),
    ]
}

fn after(more: Vec<Event>) -> Routes {
    given([two(), more].concat())
}

fn used(routes: &Routes) -> Vec<String> {
    let model = model();
    let used = routes.usable(&model);
    used.map(|it| format!("{} {}:{}", it.container, it.address, it.port))
        .collect()
}

fn leaving(routes: &Routes, gateway: &str) -> Vec<Leaving> {
    let gateway: GatewayId = gateway.parse().expect("valid");
    routes.leaving(&model(), &gateway).collect()
}

#[test]
fn a_ready_replica_is_used_at_its_nodes_address_and_its_own_port() {
    let both = ["ads/model/1/0 10.0.0.1:4000", "ads/model/1/1 10.0.0.2:4008"];
    assert_eq!(used(&after(vec![])), both);
    let before = given(two().into_iter().take(5).collect());
    assert_eq!(used(&before), both[..1]);
    // A rejoined agent may have another address.
    let moved = after(vec![joined("n0", "10.0.0.9")]);
    assert_eq!(used(&moved)[0], "ads/model/1/0 10.0.0.9:4000");
}

#[test]
fn training_jobs_have_no_routes() {
    let training = job("ads/lr");
    let routes = given(vec![
        joined("n0", "10.0.0.1"),
        admitted(&training, Kind::Training, 1, json!(null)),
        placed(&training, 1, &[(0, "n0", 4000)]),
        ready(&container(&training, 1, 0), "n0"),
    ]);
    assert!(routes.services().is_empty());
    assert_eq!(routes.usable(&training).count(), 0);
}

#[test]
fn a_replica_is_not_used_once_it_leaves_fails_exits_or_is_lost() {
    let gone = container(&model(), 1, 1);
    for event in [
        resize(&model(), 1, 1, &[1], &[0], 30),
        unready(&gone, "n1"),
        exited(&gone, "n1"),
        lost("n1"),
    ] {
        let routes = after(vec![event.clone()]);
        assert_eq!(used(&routes), ["ads/model/1/0 10.0.0.1:4000"], "{event:?}");
    }
    for event in [stop_requested(&model(), 1), completed(&model())] {
        assert!(used(&after(vec![event.clone()])).is_empty(), "{event:?}");
    }
}

#[test]
fn the_loss_of_an_incarnation_before_takes_nothing_from_an_agent_that_is_back() {
    let routes = after(vec![joined_again("n1", "10.0.0.2", 2), lost("n1")]);
    assert_eq!(used(&routes).len(), 2);
}

#[test]
fn a_replica_that_answers_again_is_used_again() {
    let it = container(&model(), 1, 1);
    let routes = after(vec![unready(&it, "n1"), ready(&it, "n1")]);
    assert_eq!(used(&routes).len(), 2);
}

#[test]
fn words_of_another_incarnation_say_nothing_of_this_one() {
    let next = placed(&model(), 2, &[(0, "n1", 5000)]);
    let routes = after(vec![
        next,
        ready(&container(&model(), 1, 0), "n0"),
        ready(&container(&model(), 2, 0), "n1"),
        exited(&container(&model(), 1, 0), "n0"),
        resize(&model(), 1, 7, &[0], &[], 30),
    ]);
    assert_eq!(used(&routes), ["ads/model/2/0 10.0.0.2:5000"]);
}

#[test]
fn a_leaving_replica_is_answered_with_the_request_that_it_answers_once_a_gateway() {
    let asked = resize(&model(), 1, 1, &[1], &[0], 30);
    let one = container(&model(), 1, 1);
    let routes = after(vec![asked.clone()]);
    let expected = Leaving {
        container: one.clone(),
        answers: Some(Sequence(7)),
        grace_s: 30,
    };
    assert_eq!(leaving(&routes, "g0"), std::slice::from_ref(&expected));
    let told = |answers| {
        Event::from(GatewayUnrouted {
            gateway: "g0".parse().expect("valid"),
            container: one.clone(),
            answers: Sequence(answers),
            closed: 0,
        })
    };
    let routes = after(vec![asked.clone(), told(7)]);
    assert!(leaving(&routes, "g0").is_empty());
    assert_eq!(leaving(&routes, "g1"), std::slice::from_ref(&expected));
    let routes = after(vec![asked.clone(), told(6)]);
    assert_eq!(leaving(&routes, "g0"), [expected]);
    let routes = after(vec![asked, exited(&one, "n1")]);
    assert!(leaving(&routes, "g0").is_empty());
}

#[test]
fn a_later_generation_may_keep_what_an_earlier_one_wanted_to_go() {
    let routes = after(vec![
        resize(&model(), 1, 1, &[1], &[0], 30),
        resize(&model(), 1, 2, &[], &[0, 1], 30),
    ]);
    assert_eq!(used(&routes).len(), 2);
    assert!(leaving(&routes, "g0").is_empty());
}

#[test]
fn the_target_is_the_autoscalers_or_the_fewest() {
    let target = |routes: &Routes| routes.services()[&model()].target;
    assert_eq!(target(&after(vec![])), 2);
    let scaled = Event::from(ServiceScaled {
        job: model(),
        replicas: 5,
        previous: 2,
        scaling: Default::default(),
        observed: Default::default(),
        forecast: 0.0,
        capacity_per_replica: 0.0,
        reason: String::new(),
        saturated: false,
        basis: None,
    });
    assert_eq!(target(&after(vec![scaled])), 5);
}

#[test]
fn what_changes_nothing_is_no_change() {
    let routes = after(vec![]);
    let mut later = routes.clone();
    later.evolve(&recorded(7, completed(&job("other/job"))));
    later.evolve(&recorded(8, joined("n0", "10.0.0.1")));
    assert_eq!(later.changes(), routes.changes());
}

/// Any event about three replicas, two incarnations, two nodes.
fn anything() -> impl Strategy<Value = Event> {
    let one = (1..3_u32, 0..3_u32, 0..2_usize);
    let nodes = ["n0", "n1"];
    let at = move |(incarnation, rank, place): (u32, u32, usize)| {
        (container(&model(), incarnation, rank), nodes[place])
    };
    prop_oneof![
        (0..2_usize).prop_map(move |place| joined(nodes[place], "10.0.0.1")),
        Just(admitted(&model(), Kind::Inference, 1, json!({}))),
        one.clone()
            .prop_map(move |(incarnation, rank, place)| placed(
                &model(),
                incarnation,
                &[(rank, nodes[place], 4000)]
            )),
        one.clone().prop_map(move |it| {
            let (container, node) = at(it);
            ready(&container, node)
        }),
        one.clone().prop_map(move |it| {
            let (container, node) = at(it);
            unready(&container, node)
        }),
        one.prop_map(move |it| {
            let (container, node) = at(it);
            exited(&container, node)
        }),
        (1..3_u32, 0..3_u32).prop_map(|(incarnation, rank)| resize(
            &model(),
            incarnation,
            1,
            &[rank],
            &[],
            3
        )),
        (1..3_u32, 0..3_u32).prop_map(|(incarnation, rank)| resize(
            &model(),
            incarnation,
            1,
            &[],
            &[rank],
            3
        )),
        (1..3_u32).prop_map(|incarnation| stop_requested(&model(), incarnation)),
        (0..2_usize).prop_map(move |place| lost(nodes[place])),
        Just(completed(&model())),
    ]
}

/// Bad news about a replica counts from its own node.
fn may_be_used(events: &[Event], it: &ContainerId) -> bool {
    let (mut ready, mut place) = (false, None);
    for event in events {
        match event {
            Event::PlacementDecided(e) => {
                let own = |at: &&PlacedContainer| at.container() == *it;
                place = e.create.iter().find(own).map(|at| &at.node).or(place);
            }
            Event::ContainerReady(e) if e.container == *it => ready = true,
            Event::ContainerUnready(e) if e.container == *it => ready &= place != Some(&e.node),
            Event::ContainerExited(e) if e.container == *it => ready &= place != Some(&e.node),
            Event::JobCompleted(_) | Event::JobAdmitted(_) => ready = false,
            Event::PartitionResizeRequested(e) if e.incarnation == it.incarnation => {
                ready &= !e.leave.contains(&it.rank);
                ready |= e.stay.contains(&it.rank);
            }
            Event::PartitionStopRequested(e) if e.incarnation == it.incarnation => ready = false,
            _ => {}
        }
    }
    ready
}

proptest! {
    #[test]
    fn only_what_may_be_used_is_used(events in proptest::collection::vec(anything(), 0..60)) {
        let routes = given(events.clone());
        let model = model();
        for used in routes.usable(&model) {
            prop_assert!(may_be_used(&events, &used.container), "{:?} after {events:?}", used);
            let left = leaving(&routes, "g0");
            prop_assert!(left.iter().all(|it| it.container != used.container));
        }
        let incarnations: std::collections::BTreeSet<_> =
            routes.usable(&model).map(|it| it.container.incarnation).collect();
        prop_assert!(incarnations.len() <= 1);
    }
}
