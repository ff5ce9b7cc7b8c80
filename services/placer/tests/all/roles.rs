//! Ranks and nodes of jobs with parameter servers.

use std::collections::BTreeMap;

use crate::given::*;
use dormouse_messages::events::*;
use dormouse_messages::job::{Containers, JobSpec};
use dormouse_messages::{Epoch, Event};

/// Workers of one processor, two servers of two.
fn with_servers(in_place: bool) -> JobSpec {
    let mut spec = spec(&job("t/a"));
    spec.demand = "cpu=1".parse().expect("amounts");
    spec.containers = Containers::between(1, 8);
    let roles = r#"{"ps": {"count": 2, "demand": {"cpu_milli": 2000}}}"#;
    spec.roles = serde_json::from_str(roles).expect("roles");
    if in_place {
        spec.resize = serde_json::from_str(r#"{"mode": "in_place"}"#).expect("a mode");
    }
    spec
}

fn placed(given: &Given) -> PlacementDecided {
    let (events, _) = given.decided();
    match events.into_iter().next() {
        Some(Event::PlacementDecided(event)) => *event,
        other => panic!("{other:?}"),
    }
}

fn ranks(placed: &PlacementDecided) -> BTreeMap<u32, String> {
    let created = placed.create.iter();
    let at = created.map(|it| (it.rank.0, it.node.to_string()));
    at.collect()
}

/// Rank 0 is the coordinator, ranks 1 and 2 are the servers.
#[test]
fn the_roles_have_the_ranks_behind_the_coordinator() {
    let mut given = Given::nodes();
    given.released(with_servers(false));
    given.allocated_with_servers(&[("t/a", &[("n0", 2), ("n1", 1)], &[("n0", 1), ("n1", 1)])]);
    let at = ranks(&placed(&given));
    let at: Vec<(u32, &str)> = at
        .iter()
        .map(|(rank, node)| (*rank, node.as_str()))
        .collect();
    assert_eq!(at, [(0, "n0"), (1, "n0"), (2, "n1"), (3, "n0"), (4, "n1")]);
}

/// The servers keep their ranks.
#[test]
fn in_place_only_workers_come_and_go() {
    let mut given = Given::nodes();
    given.released(with_servers(true));
    given.allocated_with_servers(&[("t/a", &[("n0", 2)], &[("n0", 1), ("n1", 1)])]);
    let first = placed(&given);
    given.push(first);
    given.push(PartitionStartRequested {
        job: job("t/a"),
        epoch: Epoch(1),
        incarnation: dormouse_messages::Incarnation(1),
        containers: 4,
        resumed_from: None,
        basis: None,
    });
    given.allocated_with_servers(&[("t/a", &[("n0", 1), ("n1", 2)], &[("n0", 1), ("n1", 1)])]);
    let change = placed(&given);
    let removed: Vec<u32> = change.remove.iter().map(|it| it.rank.0).collect();
    assert_eq!(removed, [3]);
    let came = ranks(&change);
    assert_eq!(came.keys().copied().collect::<Vec<_>>(), [4, 5]);
    assert!(came.values().all(|node| node == "n1"), "{came:?}");
}
