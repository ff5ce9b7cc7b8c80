//! Tests of nodes whose free capacity differs from the sums.

use dormouse_messages::events::{Gpu, NodeJoined, PlacedContainer, PlacementDecided};
use dormouse_messages::{Epoch, Incarnation, Rank};

use super::*;

impl Given {
    fn runs_on(&mut self, id: &str, demand: &str, node: &str, gpus: &[&str]) {
        self.run(id, demand);
        self.place(id, node, gpus);
    }

    pub(super) fn place(&mut self, id: &str, node: &str, gpus: &[&str]) {
        let placed = PlacementDecided {
            epoch: Epoch(self.state.queues.cluster.sequence.0),
            create: vec![PlacedContainer {
                job: id.parse().expect("a job"),
                incarnation: Incarnation(1),
                rank: Rank(0),
                node: node.parse().expect("a node"),
                gpus: gpus.iter().map(|gpu| (*gpu).to_owned()).collect(),
                port: 0,
            }],
            remove: Vec::new(),
            basis: None,
        };
        self.fold(placed.into());
    }

    pub(super) fn node_with_gpus(&mut self, name: &str, capacity: &str, gpus: &[&str]) {
        let gpus = gpus.iter().map(|uuid| Gpu {
            uuid: (*uuid).to_owned(),
            model: "model".to_owned(),
            memory_bytes: 16 << 30,
        });
        let joined = NodeJoined {
            node: name.parse().expect("a node"),
            capacity: capacity.parse().expect("amounts"),
            labels: Default::default(),
            gpus: gpus.collect(),
            incarnation: 1,
            running: Vec::new(),
            address: String::new(),
            runtime: "model".to_owned(),
            taints: Default::default(),
        };
        self.fold(joined.into());
    }

    fn allocated_by(&mut self, allocation: Allocation) {
        let policy = Policy {
            allocation,
            ..self.state.queues.cluster.policy.clone()
        };
        self.fold(ClusterConfigured { policy }.into());
    }
}

/// The GPU's node has no free processors.
#[test]
fn a_job_that_fits_by_sums_and_on_no_node_keeps_nothing_of_nodes_that_it_cannot_use() {
    for queue in Queue::ALL {
        for allocation in [Allocation::Dorm, Allocation::Drf] {
            let mut given = Given::cluster("cpu=8", queue);
            given.allocated_by(allocation);
            given.node("n1", "cpu=4,gpu=1");
            given.runs_on("a/long", "cpu=4", "n1", &[]);
            given.queue("a/gpu", "cpu=2,gpu=1");
            given.queue("a/large", "cpu=7");
            for job in 0..20 {
                given.queue(&format!("a/small-{job}"), "cpu=1");
            }
            let released = ["a/large", "a/small-0"];
            assert_eq!(given.carry_out(), released, "{queue:?} {allocation:?}");
            given.then(&[]);
            given.complete("a/large");
            assert_eq!(given.decide().len(), 7, "{queue:?} {allocation:?}");
            given.complete("a/long");
            assert_eq!(given.carry_out()[0], "a/gpu", "{queue:?} {allocation:?}");
        }
    }
}

/// 0.4 of each of three devices is free, but no whole device.
#[test]
fn a_job_that_needs_a_whole_gpu_is_not_released_into_parts() {
    let mut given = Given::cluster("cpu=1", Queue::Fifo);
    given.node_with_gpus("n1", "cpu=4,gpu=3", &["u0", "u1", "u2"]);
    for device in ["u0", "u1", "u2"] {
        given.runs_on(
            &format!("a/on-{device}"),
            "cpu=500m,gpu=600m",
            "n1",
            &[device],
        );
    }
    given.queue("a/whole", "cpu=2,gpu=1");
    given.queue("a/third", "gpu=300m");
    given.queue("a/one", "cpu=1");
    given.queue("a/two", "cpu=1");
    given.queue("a/three", "cpu=1");
    // The head lacks a GPU; a part of 0.3 counts as a half, which no device has free.
    given.then(&["a/one", "a/two", "a/three"]);
    given.complete("a/on-u1");
    assert_eq!(given.carry_out()[0], "a/whole");
}

#[test]
fn a_released_job_that_waits_keeps_room_on_its_own_nodes() {
    let mut given = Given::cluster("cpu=8", Queue::Fifo);
    given.node("n1", "cpu=4,gpu=1");
    given.node("n2", "cpu=4,gpu=1");
    given.runs_on("a/long", "cpu=4", "n1", &[]);
    given.runs_on("a/gpu", "cpu=2,gpu=1", "n2", &[]);
    let lost = dormouse_messages::events::NodeLost {
        node: "n2".parse().expect("a node"),
        incarnation: 1,
        last_seen: given.now,
    };
    given.fold(lost.into());
    given.queue("a/large", "cpu=7");
    given.queue("b/small", "cpu=1");
    given.queue("b/next", "cpu=1");
    given.then(&["a/large", "b/small"]);
}

#[test]
fn a_drained_node_that_is_full_keeps_nobody_from_the_others() {
    let mut given = Given::cluster("cpu=4", Queue::Fifo);
    given.node("n1", "cpu=8");
    given.runs_on("a/long", "cpu=6", "n1", &[]);
    let drained = dormouse_messages::events::NodeDrained {
        node: "n1".parse().expect("a node"),
        reason: None,
        deadline_s: None,
    };
    given.fold(drained.into());
    given.queue("a/one", "cpu=3");
    given.then(&["a/one"]);
}

#[test]
fn the_start_of_a_job_that_waits_is_known_by_nodes() {
    let mut given = Given::cluster("cpu=8", Queue::Fifo);
    given.node("n1", "cpu=4,gpu=1");
    let limited = |given: &mut Given, id: &str, demand: &str, limit_s: u32| {
        let mut admitted = given.admitted(id, demand, 0);
        if let Event::JobAdmitted(event) = &mut admitted {
            event.spec.time_limit_s = Some(limit_s);
        }
        given.fold(admitted);
    };
    limited(&mut given, "a/soon", "cpu=8", 100);
    given.release("a/soon");
    limited(&mut given, "a/later", "cpu=3", 1_000);
    given.release("a/later");
    given.place("a/soon", "n0", &[]);
    given.place("a/later", "n1", &[]);
    given.queue("a/gpu", "cpu=2,gpu=1");
    // Only the nodes show that the head starts at the second end.
    limited(&mut given, "a/short", "cpu=1", 900);
    given.then(&["a/short"]);
}
