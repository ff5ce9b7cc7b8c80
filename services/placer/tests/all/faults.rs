//! Starts that fail because of nodes.

use std::collections::BTreeSet;

use dormouse_messages::events::*;
use dormouse_messages::{Event, Incarnation};

use crate::given::{Given, at, job, node};

#[test]
fn the_next_try_goes_to_another_node_where_there_is_room() {
    let mut given = Given::nodes();
    given.placed("ads/a", "n0");
    given.faults("ads/a", "n0", 1, NodeFault::Disk);
    let (events, _) = given.decided();
    let [Event::PlacementDecided(placed)] = &events[..] else {
        panic!("{events:#?}");
    };
    assert_eq!(placed.create[0].node, node("n1"));
    assert_eq!(placed.create[0].incarnation, Incarnation(2));
    // If the other node is full, the member stays.
    given.placed("ads/b", "n1");
    given.placed("ads/c", "n1");
    let (events, _) = given.decided();
    let [Event::PlacementDecided(placed)] = &events[..] else {
        panic!("{events:#?}");
    };
    assert_eq!(placed.create[0].node, node("n0"));
}

#[test]
fn a_node_that_fails_start_after_start_is_quarantined_and_comes_back() {
    let mut given = Given::nodes();
    for (id, failures) in [("ads/a", 1), ("ads/b", 2), ("ads/c", 3)] {
        assert!(given.quarantined().is_empty(), "{failures}");
        given.placed(id, "n0");
        given.faults(id, "n0", 1, NodeFault::Disk);
    }
    let (events, _) = given.decided();
    let Event::NodeQuarantined(quarantined) = &events[0] else {
        panic!("{events:#?}");
    };
    assert_eq!(quarantined.node, node("n0"));
    assert!(
        quarantined.reason.contains("no space left"),
        "{quarantined:?}"
    );
    assert_eq!(quarantined.until, at(given.seconds + 30));
    let until = quarantined.until;
    given.push((**quarantined).clone());
    assert!(!given.state.nodes.is_usable(&node("n0")));
    assert_eq!(given.decided().1, Some(until));
    // The next failures quarantine the node for twice as long.
    given.seconds += 30;
    let (events, _) = given.decided();
    assert!(matches!(&events[0], Event::NodeReadmitted(it) if it.node == node("n0")));
    given.push(NodeReadmitted {
        node: node("n0"),
        basis: None,
    });
    assert!(given.state.nodes.is_usable(&node("n0")));
    for id in ["ads/d", "ads/e", "ads/f"] {
        given.placed(id, "n0");
        given.faults(id, "n0", 1, NodeFault::Disk);
    }
    let (events, _) = given.decided();
    assert!(
        matches!(&events[0], Event::NodeQuarantined(it) if it.until == at(given.seconds + 60)),
        "{events:#?}"
    );
    // A successful start clears the node.
    given.push(ContainerStarted {
        container: "ads/z/1/0".parse().expect("valid"),
        node: node("n0"),
        pid: 1,
    });
    assert!(given.quarantined().is_empty());
}

#[test]
fn one_tenant_with_wrong_images_takes_no_node_from_others() {
    let mut given = Given::nodes();
    given.placed("ads/a", "n0");
    for incarnation in 1..=5 {
        given.faults("ads/a", "n0", incarnation, NodeFault::Image);
        assert!(given.quarantined().is_empty());
        given.create("ads/a", "n0", incarnation + 1);
    }
    let faults = &given.state.jobs[&job("ads/a")].start_faults;
    assert!(faults.are_the_jobs(), "{faults:?}");
    // Another job of this tenant is no evidence.
    given.placed("ads/b", "n0");
    given.faults("ads/b", "n0", 1, NodeFault::Image);
    assert!(given.quarantined().is_empty());
    // A second tenant's failure proves the node faulty.
    given.placed("search/c", "n0");
    given.faults("search/c", "n0", 1, NodeFault::Image);
    assert_eq!(given.quarantined(), BTreeSet::from([node("n0")]));
}
