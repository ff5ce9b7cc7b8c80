//! Division of one type's slots among jobs: order, staying, refusals and retries. Workers and servers demand
//! one processor each, so they share slots.

use dormouse_messages::events::*;
use dormouse_messages::job::{Containers, JobSpec, Kind};
use dormouse_messages::service::{Resize, Service};
use dormouse_messages::{Event, JobId};

use crate::given::{Given, job, node, spec};

/// Each node holds four containers.
fn nodes(count: usize) -> Given {
    let mut given = Given::default();
    for index in 0..count {
        given.joins(&format!("n{index}"), 1, &[]);
    }
    given
}

fn gang(id: &str) -> JobSpec {
    JobSpec {
        demand: "cpu=1".parse().expect("amounts"),
        containers: Containers::between(1, 8),
        ..spec(&job(id))
    }
}

fn in_place(id: &str) -> JobSpec {
    JobSpec {
        resize: Resize::in_place(),
        ..gang(id)
    }
}

fn service(id: &str) -> JobSpec {
    JobSpec {
        kind: Kind::Inference,
        service: Some(Service::default()),
        ..in_place(id)
    }
}

/// The server has rank 1.
fn with_server(spec: JobSpec) -> JobSpec {
    let roles = r#"{"ps": {"count": 1, "demand": {"cpu_milli": 1000}}}"#;
    JobSpec {
        roles: serde_json::from_str(roles).expect("roles"),
        ..spec
    }
}

fn divides(given: &mut Given, jobs: &[(&str, u32)], slots: &[(&str, u32)]) -> Event {
    allocates(given, jobs, slots);
    let (events, _) = given.decided();
    events.into_iter().next().expect("it decides")
}

fn allocates(given: &mut Given, jobs: &[(&str, u32)], slots: &[(&str, u32)]) {
    let epoch = given.state.allocation.epoch.0 + 1;
    given.allocated(epoch, "cpu=1", jobs, slots);
}

fn came<'a>(decided: &'a Event, id: &str) -> Vec<(u32, u32, &'a str)> {
    let Event::PlacementDecided(placed) = decided else {
        panic!("{decided:?}");
    };
    let id: JobId = job(id);
    let of_job = placed.create.iter().filter(|it| it.job == id);
    of_job
        .map(|it| (it.incarnation.0, it.rank.0, it.node.as_str()))
        .collect()
}

fn went(decided: &Event, id: &str) -> Vec<u32> {
    let Event::PlacementDecided(placed) = decided else {
        panic!("{decided:?}");
    };
    let id: JobId = job(id);
    let of_job = placed.remove.iter().filter(|it| it.job == id);
    of_job.map(|it| it.rank.0).collect()
}

/// The allocation fixes a role's slot, though others choose first.
#[test]
fn a_role_keeps_its_place() {
    for has_begun in [true, false] {
        let mut given = nodes(3);
        let spec = with_server(gang("t/z"));
        if has_begun {
            given.runs(spec, &["n1", "n0"])
        } else {
            drop(given.stands(spec, &["n1", "n0"]))
        }
        given.released(gang("t/a"));
        let decided = divides(
            &mut given,
            &[("t/z", 2), ("t/a", 1)],
            &[("n0", 1), ("n1", 1), ("n2", 1)],
        );
        assert_eq!(came(&decided, "t/a"), [(1, 0, "n1")], "{has_begun}");
        assert_eq!(came(&decided, "t/z"), [(2, 0, "n2"), (2, 1, "n0")]);
    }
}

#[test]
fn a_job_that_gets_nothing_gets_no_server_either() {
    let mut given = nodes(2);
    given.runs(with_server(gang("t/a")), &["n0", "n0"]);
    let decided = divides(&mut given, &[("t/a", 0)], &[]);
    assert_eq!(came(&decided, "t/a"), []);
    assert_eq!(went(&decided, "t/a"), [0, 1]);
}

#[test]
fn a_gang_that_is_placed_as_a_whole_keeps_its_chiefs_node() {
    let mut given = nodes(2);
    given.runs(gang("t/a"), &["n1", "n0"]);
    let decided = divides(&mut given, &[("t/a", 3)], &[("n0", 2), ("n1", 1)]);
    let nodes: Vec<&str> = came(&decided, "t/a").iter().map(|it| it.2).collect();
    assert_eq!(nodes, ["n1", "n0", "n0"]);
}

/// The allocation knew a larger node.
#[test]
fn a_placement_on_a_node_that_has_become_smaller_is_refused() {
    let mut given = nodes(1);
    given.released(gang("t/a"));
    let joined = NodeJoined {
        node: node("n0"),
        capacity: "cpu=1".parse().expect("amounts"),
        labels: Default::default(),
        gpus: Vec::new(),
        incarnation: 2,
        running: Vec::new(),
        address: String::new(),
        runtime: "process".to_owned(),
        taints: Default::default(),
    };
    given.push(joined);
    let Event::PlacementRefused(refused) = divides(&mut given, &[("t/a", 2)], &[("n0", 2)]) else {
        panic!("it does not fit");
    };
    assert_eq!(refused.short[0].resource, "cpu");
}

#[test]
fn a_gang_is_tried_again_without_the_node_that_failed() {
    let mut given = nodes(3);
    given.stands(gang("t/a"), &["n0", "n2"]);
    given.faults("t/a", "n0", 1, NodeFault::Disk);
    let (events, _) = given.decided();
    let [again] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(came(again, "t/a"), [(2, 0, "n1"), (2, 1, "n2")]);
    given.push(again.clone());
    assert_eq!(given.decided().0, []);
}

#[test]
fn a_step_of_the_brokers_clock_is_named() {
    const DAY_S: i64 = 86_400;
    let recovered = || NodeRecovered {
        node: node("n0"),
        last_seen: Default::default(),
        basis: None,
    };
    let mut given = nodes(1);
    given.push(recovered());
    assert_eq!(given.decided().0, []);
    given.push_stamped(recovered(), DAY_S);
    let (events, _) = given.decided();
    let [Event::ClockStepped(stepped)] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(stepped.sequence.0, given.events);
    let day_ms = DAY_S * 1_000;
    assert!(
        (day_ms - 5_000..day_ms + 5_000).contains(&stepped.by_ms),
        "{stepped:?}"
    );
    given.push_stamped((**stepped).clone(), DAY_S);
    assert_eq!(given.decided().0, []);
}

#[test]
fn a_role_goes_where_its_own_workers_are() {
    let mut given = nodes(2);
    given.runs(in_place("t/a"), &["n0"]);
    given.released(with_server(gang("t/b")));
    let decided = divides(
        &mut given,
        &[("t/a", 1), ("t/b", 3)],
        &[("n0", 2), ("n1", 3)],
    );
    let came = came(&decided, "t/b");
    assert!(came.iter().all(|it| it.2 == "n1"), "{came:?}");
}

/// Replicas are interchangeable; the ranks of a gang are not.
#[test]
fn training_chooses_before_a_service_that_is_larger() {
    let mut given = nodes(4);
    given.released(service("t/a"));
    given.released(gang("t/b"));
    let decided = divides(
        &mut given,
        &[("t/a", 3), ("t/b", 2)],
        &[("n0", 2), ("n1", 1), ("n2", 1), ("n3", 1)],
    );
    assert_eq!(came(&decided, "t/b"), [(1, 0, "n0"), (1, 1, "n0")]);
    // The larger of two gangs chooses first.
    let mut given = nodes(3);
    given.released(gang("t/a"));
    given.released(gang("t/b"));
    let decided = divides(
        &mut given,
        &[("t/a", 1), ("t/b", 2)],
        &[("n0", 2), ("n1", 1)],
    );
    assert_eq!(came(&decided, "t/b"), [(1, 0, "n0"), (1, 1, "n0")]);
}

#[test]
fn training_grows_where_it_is_before_a_service_does() {
    let mut given = nodes(2);
    given.runs(service("t/a"), &["n0"]);
    given.runs(in_place("t/z"), &["n0"]);
    let decided = divides(
        &mut given,
        &[("t/a", 2), ("t/z", 2)],
        &[("n0", 3), ("n1", 1)],
    );
    assert_eq!(came(&decided, "t/z"), [(1, 1, "n0")]);
    assert_eq!(came(&decided, "t/a"), [(1, 1, "n1")]);
}

#[test]
fn training_grows_where_it_is_before_a_newcomer_chooses() {
    let mut given = nodes(2);
    given.runs(in_place("t/z"), &["n0"]);
    given.released(gang("t/a"));
    let decided = divides(
        &mut given,
        &[("t/a", 2), ("t/z", 2)],
        &[("n0", 3), ("n1", 3)],
    );
    assert_eq!(came(&decided, "t/z"), [(1, 1, "n0")]);
    assert_eq!(came(&decided, "t/a"), [(1, 0, "n1"), (1, 1, "n1")]);
    // No more than its count, though both nodes have slots.
    let mut given = nodes(2);
    given.runs(in_place("t/z"), &["n0", "n1"]);
    let decided = divides(&mut given, &[("t/z", 3)], &[("n0", 2), ("n1", 2)]);
    assert_eq!(came(&decided, "t/z").len(), 1);
}

/// The incarnation continues while its own servers stay.
#[test]
fn a_job_is_resized_in_place_beside_one_whose_roles_are_new() {
    let mut given = nodes(4);
    given.runs(with_server(in_place("t/a")), &["n0", "n0"]);
    given.released(with_server(gang("t/b")));
    let decided = divides(
        &mut given,
        &[("t/a", 3), ("t/b", 2)],
        &[("n0", 2), ("n1", 1), ("n2", 2)],
    );
    assert_eq!(came(&decided, "t/a"), [(1, 2, "n1")]);
    assert_eq!(went(&decided, "t/a"), [0; 0]);
    // If its server must move, the job is placed whole, under its next incarnation.
    let mut given = nodes(2);
    given.runs(with_server(in_place("t/a")), &["n0", "n1"]);
    let decided = divides(&mut given, &[("t/a", 2)], &[("n0", 2), ("n1", 0)]);
    assert_eq!(came(&decided, "t/a"), [(2, 0, "n0"), (2, 1, "n0")]);
}

/// Another job has the last slot on the worker's new node, so the server stays.
#[test]
fn a_server_does_not_follow_a_worker_where_no_slot_is_left() {
    let mut given = nodes(3);
    given.runs(with_server(in_place("t/a")), &["n0", "n0"]);
    given.released(gang("t/b"));
    let decided = divides(
        &mut given,
        &[("t/a", 3), ("t/b", 1)],
        &[("n0", 2), ("n1", 1), ("n2", 1)],
    );
    let [(1, 2, _)] = came(&decided, "t/a")[..] else {
        panic!("{decided:?}");
    };
    assert_eq!(went(&decided, "t/a"), [0; 0]);
    assert_eq!(came(&decided, "t/b").len(), 1);
}

/// An allocation lists only changed nodes.
#[test]
fn on_nodes_that_are_not_listed_all_stays_as_it_is() {
    let mut given = nodes(2);
    given.runs(in_place("t/a"), &["n0", "n0"]);
    let decided = divides(&mut given, &[("t/a", 3)], &[("n1", 1)]);
    assert_eq!(came(&decided, "t/a"), [(1, 2, "n1")]);
    assert_eq!(went(&decided, "t/a"), [0; 0]);
}

#[test]
fn what_stays_keeps_its_slots() {
    let mut given = nodes(2);
    given.runs(gang("t/b"), &["n0"]);
    given.released(gang("t/a"));
    let decided = divides(&mut given, &[("t/a", 2)], &[("n0", 2), ("n1", 1)]);
    let nodes: Vec<&str> = came(&decided, "t/a").iter().map(|it| it.2).collect();
    assert_eq!(nodes, ["n0", "n1"]);
}

#[test]
fn slots_of_a_node_that_is_drained_meanwhile_are_none() {
    let mut given = nodes(2);
    given.released(gang("t/a"));
    allocates(&mut given, &[("t/a", 1)], &[("n1", 1)]);
    given.push(NodeDrained {
        node: node("n1"),
        reason: None,
        deadline_s: None,
    });
    let (events, _) = given.decided();
    assert!(
        matches!(events[..], [Event::PlacementRefused(_)]),
        "{events:?}"
    );
}

/// A coordinator's place is held before the other ranks of earlier jobs.
#[test]
fn a_chief_keeps_its_place_before_others_do() {
    let mut given = nodes(3);
    given.runs(in_place("t/a"), &["n1", "n0"]);
    given.runs(in_place("t/b"), &["n0"]);
    let decided = divides(
        &mut given,
        &[("t/a", 2), ("t/b", 1)],
        &[("n0", 1), ("n1", 1), ("n2", 1)],
    );
    assert_eq!(came(&decided, "t/a"), [(1, 2, "n2")]);
    assert_eq!(went(&decided, "t/a"), [1]);
    assert_eq!(came(&decided, "t/b"), []);
    assert_eq!(went(&decided, "t/b"), [0; 0]);
}

#[test]
fn a_newcomer_takes_no_slot_of_what_runs_in_place() {
    let mut given = nodes(3);
    given.runs(in_place("t/b"), &["n0", "n1"]);
    given.released(gang("t/a"));
    let decided = divides(
        &mut given,
        &[("t/a", 2), ("t/b", 2)],
        &[("n0", 1), ("n1", 2), ("n2", 1)],
    );
    assert_eq!(came(&decided, "t/b"), []);
    assert_eq!(went(&decided, "t/b"), [0; 0]);
}

#[test]
fn a_service_that_shrinks_keeps_its_first_replica() {
    let mut given = nodes(2);
    given.runs(service("t/a"), &["n1", "n0"]);
    let decided = divides(&mut given, &[("t/a", 1)], &[("n0", 1), ("n1", 1)]);
    assert_eq!(went(&decided, "t/a"), [1]);
}
