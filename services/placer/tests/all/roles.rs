//! Ranks and nodes of jobs with parameter servers.

use std::collections::BTreeMap;

use crate::given::*;
use dormouse_messages::events::*;
use dormouse_messages::job::{Containers, JobSpec};
use dormouse_messages::needs::ContainerType;
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

/// Each entry counts workers and servers on a node.
fn allocated(epoch: u64, containers: u32, on: &[(&str, u32, u32)]) -> AllocationDecided {
    let demands = ["cpu=1", "cpu=2"];
    let shapes = (0..).zip(demands).map(|(shape, demand)| Shape {
        shape,
        demand: demand.parse().expect("amounts"),
        needs: ContainerType::default().needs,
    });
    let slots = on.iter().flat_map(|(name, workers, servers)| {
        [(0, *workers), (1, *servers)].map(|(shape, containers)| Slot {
            node: node(name),
            shape,
            containers,
        })
    });
    let outcome = serde_json::json!({
        "waiting": [], "utilization": {"resources": {}, "total": 0.0},
        "fairness_loss": 0.0, "fairness_loss_all": 0.0, "fairness_loss_bound": 0.0,
        "adjusted_jobs": 0, "adjustment_bound": 0, "forced_jobs": 0, "unbounded": false,
        "solver": {"name": "p2", "version": "1", "status": "optimal", "objective": 0.0,
                   "bound": 0.0, "gap": 0.0, "stopped_by": "optimal", "stage": "alone"},
    });
    AllocationDecided {
        epoch: Epoch(epoch),
        jobs: vec![JobAllocation {
            job: job("t/a"),
            containers,
            previous: 0,
            new: epoch == 1,
            share: 0.0,
            fair_share: 0.0,
            made_for: None,
        }],
        shapes: shapes.collect(),
        slots: slots.filter(|slot| slot.containers > 0).collect(),
        outcome: serde_json::from_value(outcome).expect("an outcome"),
        basis: None,
    }
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
fn the_roles_have_the_ranks_behind_the_chief() {
    let mut given = Given::nodes();
    given.released(with_servers(false));
    given.push(allocated(1, 5, &[("n0", 2, 1), ("n1", 1, 1)]));
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
    given.push(allocated(1, 4, &[("n0", 2, 1), ("n1", 0, 1)]));
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
    given.push(allocated(2, 5, &[("n0", 1, 1), ("n1", 2, 1)]));
    let change = placed(&given);
    let removed: Vec<u32> = change.remove.iter().map(|it| it.rank.0).collect();
    assert_eq!(removed, [3]);
    let came = ranks(&change);
    assert_eq!(came.keys().copied().collect::<Vec<_>>(), [4, 5]);
    assert!(came.values().all(|node| node == "n1"), "{came:?}");
}
