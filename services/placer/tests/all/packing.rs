//! Gangs that share slots: packed on few, near nodes, or spread container by container.

use dormouse_messages::Event;
use dormouse_messages::events::ClusterConfigured;
use dormouse_messages::job::{Containers, JobSpec};
use dormouse_messages::policy::{Placement, Policy};

use crate::given::{Given, job, spec};

fn racks(labels: &[(&str, &str, &str)]) -> Given {
    let mut given = Given::nodes();
    for (name, rack, zone) in labels {
        given.joins(name, 2, &[("rack", rack), ("zone", zone)]);
    }
    given
}

fn nodes_of_gangs(mut given: Given, size: u32, on: &[&str]) -> [Vec<String>; 2] {
    for id in ["t/a", "t/b"] {
        given.released(JobSpec {
            containers: Containers::between(size, size),
            ..spec(&job(id))
        });
    }
    let slots: Vec<(&str, u32)> = on.iter().map(|on| (*on, 2)).collect();
    given.allocated(1, "cpu=2", &[("t/a", size), ("t/b", size)], &slots);
    let (events, _) = given.decided();
    let [Event::PlacementDecided(placed)] = events.as_slice() else {
        panic!("{events:?}");
    };
    ["t/a", "t/b"].map(|id| {
        let create = placed.create.iter().filter(|it| it.job == job(id));
        let mut nodes: Vec<String> = create.map(|it| it.node.to_string()).collect();
        nodes.sort();
        nodes.dedup();
        nodes
    })
}

#[test]
fn a_gang_is_packed_unless_the_policy_spreads() {
    for (placement, nodes) in [(Placement::Pack, 1), (Placement::Spread, 2)] {
        let mut given = Given::nodes();
        given.push(ClusterConfigured {
            policy: Policy {
                placement,
                ..Policy::default()
            },
        });
        for gang in nodes_of_gangs(given, 2, &["n0", "n1"]) {
            assert_eq!(gang.len(), nodes, "{placement:?}");
        }
    }
}

#[test]
fn a_gang_on_several_nodes_gets_near_ones() {
    let on = ["n0", "n1", "n2", "n3"];
    let zones = racks(&[
        ("n0", "r0", "a"),
        ("n1", "r1", "b"),
        ("n2", "r2", "a"),
        ("n3", "r3", "b"),
    ]);
    let gangs = nodes_of_gangs(zones, 4, &on);
    assert_eq!(gangs, [["n0", "n2"], ["n1", "n3"]]);
    // Racks of one zone come first; a rack's name counts within its zone.
    let racks = racks(&[
        ("n0", "r0", "a"),
        ("n1", "r1", "a"),
        ("n2", "r0", "b"),
        ("n3", "r0", "a"),
    ]);
    let gangs = nodes_of_gangs(racks, 4, &on);
    assert_eq!(gangs, [["n0", "n3"], ["n1", "n2"]]);
}
