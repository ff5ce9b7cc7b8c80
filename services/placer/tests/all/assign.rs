//! Places of an allocation's containers: ranks, refusals and retries.

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

fn places(given: &mut Given, jobs: &[(&str, &[(&str, u32)])]) -> Event {
    given.allocated(jobs);
    first(given)
}

fn first(given: &Given) -> Event {
    let (events, _) = given.decided();
    events.into_iter().next().expect("it decides")
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

#[test]
fn a_job_that_gets_nothing_gets_no_server_either() {
    let mut given = nodes(2);
    given.runs(with_server(gang("t/a")), &["n0", "n0"]);
    let decided = places(&mut given, &[("t/a", &[])]);
    assert_eq!(came(&decided, "t/a"), []);
    assert_eq!(went(&decided, "t/a"), [0, 1]);
}

#[test]
fn a_gang_that_is_placed_as_a_whole_keeps_its_coordinators_node() {
    let mut given = nodes(2);
    given.runs(gang("t/a"), &["n1", "n0"]);
    let decided = places(&mut given, &[("t/a", &[("n0", 2), ("n1", 1)])]);
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
    let Event::PlacementRefused(refused) = places(&mut given, &[("t/a", &[("n0", 2)])]) else {
        panic!("it does not fit");
    };
    let why = &refused.unplaceable[0].why;
    assert_eq!(*why, WhyUnplaceable::Short("cpu".to_owned()));
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

/// The incarnation continues while its own servers stay.
#[test]
fn a_job_is_resized_in_place_beside_one_whose_roles_are_new() {
    let mut given = nodes(4);
    given.runs(with_server(in_place("t/a")), &["n0", "n0"]);
    given.released(with_server(gang("t/b")));
    let decided = {
        let listed: [(_, &[_], &[_]); 2] = [
            ("t/a", &[("n0", 1), ("n1", 1)], &[("n0", 1)]),
            ("t/b", &[("n2", 1)], &[("n2", 1)]),
        ];
        given.allocated_with_servers(&listed);
        first(&given)
    };
    assert_eq!(came(&decided, "t/a"), [(1, 2, "n1")]);
    assert_eq!(went(&decided, "t/a"), [0; 0]);
    // If its server must move, the job is placed whole, under its next incarnation.
    let mut given = nodes(2);
    given.runs(with_server(in_place("t/a")), &["n0", "n1"]);
    let decided = {
        given.allocated_with_servers(&[("t/a", &[("n0", 1)], &[("n0", 1)])]);
        first(&given)
    };
    assert_eq!(came(&decided, "t/a"), [(2, 0, "n0"), (2, 1, "n0")]);
}

#[test]
fn a_node_that_is_drained_meanwhile_takes_nothing() {
    let mut given = nodes(2);
    given.released(gang("t/a"));
    given.allocated(&[("t/a", &[("n1", 1)])]);
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

#[test]
fn a_service_that_shrinks_keeps_its_first_replica() {
    let mut given = nodes(2);
    given.runs(service("t/a"), &["n1", "n0"]);
    let decided = places(&mut given, &[("t/a", &[("n1", 1)])]);
    assert_eq!(went(&decided, "t/a"), [1]);
}
