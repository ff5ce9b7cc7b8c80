//! Tests of waits for nodes and GPUs, and of yielding services.

use dormouse_messages::events::{Gpu, RemovedContainer};

use super::*;

fn other(name: &str) -> JobId {
    format!("t/{name}").parse().expect("a job")
}

/// Rank, node, GPU.
pub(super) type At<'a> = (u32, &'a str, Option<&'a str>);

impl Given {
    /// With a processor a container by default.
    fn admit(&mut self, name: &str, more: Value) {
        let mut spec = json!({
            "name": name, "tenant": "t", "command": {"start": ["train"]},
            "demand": {"cpu_milli": 1000}, "weight": 1, "containers": {"min": 1, "max": 4},
            "checkpoint": {"mode": "exit", "signal": "SIGTERM", "grace_s": 30}, "min_run_s": 0,
        });
        let fields = spec.as_object_mut().expect("a map");
        fields.extend(more.as_object().expect("a map").clone());
        self.fold(JobAdmitted {
            job: other(name),
            spec: serde_json::from_value(spec).expect("a job"),
            ingress_sequence: 1,
            by: None,
            basis: None,
        });
        self.fold(JobReleased {
            job: other(name),
            turn: None,
            passed_over: Vec::new(),
            basis: None,
        });
    }

    fn place_other(&mut self, name: &str, incarnation: u32, create: &[At<'_>], remove: &[u32]) {
        let create = create.iter().map(|(rank, on, gpu)| PlacedContainer {
            job: other(name),
            incarnation: Incarnation(incarnation),
            rank: Rank(*rank),
            node: node(on),
            gpus: gpu.iter().map(|it| (*it).to_owned()).collect(),
            port: 0,
        });
        let remove = remove.iter().map(|rank| RemovedContainer {
            job: other(name),
            incarnation: Incarnation(incarnation),
            rank: Rank(*rank),
            node: node("n0"),
        });
        self.fold(PlacementDecided {
            epoch: Epoch(self.state.sequence.0),
            create: create.collect(),
            remove: remove.collect(),
            basis: None,
        });
    }

    /// Appends the job's due events and returns their types.
    pub(super) fn goes_on(&mut self, name: &str) -> Vec<&'static str> {
        let id = other(name);
        let proposals = self.decide().proposals.into_iter();
        let own = proposals.map(|it| it.event).filter(|event| {
            let value = serde_json::to_value(event).expect("a value");
            value.to_string().contains(&format!("\"{id}\""))
        });
        let own: Vec<Event> = own.collect();
        let types = own.iter().map(Event::type_name).collect();
        own.into_iter().for_each(|event| self.fold(event));
        types
    }

    pub(super) fn run_other(&mut self, name: &str, more: Value, places: &[At<'_>]) {
        self.admit(name, more);
        self.place_other(name, 1, places, &[]);
        assert_eq!(self.goes_on(name), START);
        for (rank, on, _) in places {
            self.fold(ContainerStarted {
                container: ContainerId {
                    job: other(name),
                    incarnation: Incarnation(1),
                    rank: Rank(*rank),
                },
                node: node(on),
                pid: 0,
            });
        }
        assert_eq!(self.goes_on(name), ["dormouse.partition.started.v1"]);
    }
}

const START: [&str; 1] = ["dormouse.partition.start_requested.v1"];
const NOTHING: [&str; 0] = [];

#[test]
fn a_gang_waits_until_all_of_it_fits() {
    let mut given = Given::running(json!({}));
    given.admit("b", json!({}));
    given.place_other(
        "b",
        1,
        &[(0, "n0", None), (1, "n0", None), (2, "n0", None)],
        &[],
    );
    assert_eq!(given.goes_on("b"), NOTHING);
    given.exit(0, 0);
    assert_eq!(given.goes_on("b"), START);
    // Requested containers hold capacity.
    given.admit("c", json!({}));
    given.place_other("c", 1, &[(0, "n0", None)], &[]);
    assert_eq!(given.goes_on("c"), NOTHING);
    given.exit(1, 0);
    assert_eq!(given.goes_on("c"), START);
}

/// Else all of them time out in the node's queue, and are asked again behind each other.
#[test]
fn a_node_with_many_unstarted_containers_starts_those_first() {
    let mut given = Given::running(json!({}));
    let names: Vec<String> = (0..=100).map(|index| format!("s{index}")).collect();
    for name in &names {
        given.admit(name, json!({"demand": {"cpu_milli": 1}}));
        given.place_other(name, 1, &[(0, "n0", None)], &[]);
    }
    let (last, first) = names.split_last().expect("some");
    for name in first {
        assert_eq!(given.goes_on(name), START);
    }
    assert_eq!(given.goes_on(last), NOTHING);
    given.fold(ContainerStarted {
        container: ContainerId {
            job: other("s7"),
            incarnation: Incarnation(1),
            rank: Rank(0),
        },
        node: node("n0"),
        pid: 0,
    });
    assert_eq!(given.goes_on(last), START);
}

#[test]
fn a_node_that_a_job_is_to_have_alone_is_waited_for() {
    let mut given = Given::running(json!({}));
    given.admit("b", json!({"constraints": {"exclusive": true}}));
    given.place_other("b", 1, &[(0, "n0", None)], &[]);
    assert_eq!(given.goes_on("b"), NOTHING);
    given.exit(0, 0);
    given.exit(1, 0);
    assert_eq!(given.goes_on("b"), START);
    given.admit("c", json!({}));
    given.place_other("c", 1, &[(0, "n0", None)], &[]);
    assert_eq!(given.goes_on("c"), NOTHING);
}

#[test]
fn a_gpu_is_given_to_the_whole_of_it() {
    let mut given = Given::running(json!({}));
    given.fold(NodeJoined {
        node: node("n2"),
        capacity: "cpu=8,gpu=2".parse().expect("amounts"),
        labels: Default::default(),
        gpus: ["g0", "g1"]
            .map(|uuid| Gpu {
                uuid: uuid.to_owned(),
                model: String::new(),
                memory_bytes: 0,
            })
            .into(),
        incarnation: 1,
        running: Vec::new(),
        address: String::new(),
        runtime: "model".to_owned(),
        taints: Default::default(),
    });
    for (name, share, starts) in [("b", 600, true), ("c", 500, false), ("d", 400, true)] {
        given.admit(name, json!({"demand": {"gpu_milli": share}}));
        given.place_other(name, 1, &[(0, "n2", Some("g0"))], &[]);
        assert_eq!(given.goes_on(name) == START, starts, "{name}");
    }
    given.admit("e", json!({"demand": {"gpu_milli": 1000}}));
    given.place_other("e", 1, &[(0, "n2", Some("g1"))], &[]);
    assert_eq!(given.goes_on("e"), START);
}

/// A service and another job fill `n0`.
fn full(of_b: Value) -> Given {
    let mut given = Given::running(json!({
        "kind": "inference", "resize": {"mode": "in_place"}, "checkpoint": {"mode": "none"},
        "containers": {"min": 0, "max": 4},
        "service": {"ready": {"path": "/", "timeout_s": 20}, "drain_s": 5},
    }));
    given.run_other("b", of_b, &[(0, "n0", None), (1, "n0", None)]);
    given
}

/// Reports whether the moving service lets a replica leave first.
fn gives_up(given: &mut Given, on: &str) -> bool {
    let create = [2, 3].map(|rank| PlacedContainer {
        job: job(),
        incarnation: Incarnation(1),
        rank: Rank(rank),
        node: node(on),
        gpus: Vec::new(),
        port: 0,
    });
    let remove = [0, 1].map(|rank| RemovedContainer {
        job: job(),
        incarnation: Incarnation(1),
        rank: Rank(rank),
        node: node("n0"),
    });
    given.fold(PlacementDecided {
        epoch: Epoch(given.state.sequence.0),
        create: create.into(),
        remove: remove.into(),
        basis: None,
    });
    match given.goes_on("a").as_slice() {
        [] => false,
        ["dormouse.partition.resize_requested.v1"] => true,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_replica_leaves_first_where_nobody_else_makes_room() {
    let mut given = full(json!({}));
    assert!(gives_up(&mut given, "n0"));
}

#[test]
fn a_service_waits_for_training_that_is_to_leave() {
    let mut given = full(json!({}));
    given.place_other("b", 2, &[(0, "n1", None), (1, "n1", None)], &[]);
    assert!(!gives_up(&mut given, "n0"));
    let mut given = full(json!({"resize": {"mode": "in_place"}}));
    given.place_other("b", 1, &[], &[1]);
    assert!(!gives_up(&mut given, "n0"));
}

#[test]
fn a_service_whose_newcomers_are_to_have_another_place_waits_for_it() {
    let mut given = full(json!({}));
    given.fold(NodeDrained {
        node: node("n1"),
        reason: None,
        deadline_s: None,
    });
    assert!(!gives_up(&mut given, "n1"));
}
