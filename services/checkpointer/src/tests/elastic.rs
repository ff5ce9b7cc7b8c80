//! Tests of partitions resized in place.

use dormouse_messages::events::{
    ContainerReady, ContainerUnready, GatewayJoined, GatewayLost, GatewayUnrouted,
    PartitionLeaveRequested, PartitionResizeRequested, PartitionResized, RemovedContainer,
    ResizeCause,
};
use dormouse_messages::{GatewayId, Sequence};

use super::*;

const RESIZE: &[&str] = &["dormouse.partition.resize_requested.v1"];
const LEAVE: &[&str] = &["dormouse.partition.leave_requested.v1"];
const RESIZED: &[&str] = &["dormouse.partition.resized.v1"];

fn service() -> Value {
    json!({
        "kind": "inference", "resize": {"mode": "in_place"}, "checkpoint": {"mode": "none"},
        "containers": {"min": 0, "max": 4},
        "service": {"ready": {"path": "/", "timeout_s": 20}, "drain_s": 5},
    })
}

fn training() -> Value {
    json!({"resize": {"mode": "in_place"}, "containers": {"min": 1, "max": 4}})
}

impl Given {
    fn change(&mut self, epoch: u64, create: &[(u32, &str)], remove: &[u32]) {
        let create = create.iter().map(|(rank, name)| PlacedContainer {
            job: job(),
            incarnation: Incarnation(1),
            rank: Rank(*rank),
            node: node(name),
            gpus: Vec::new(),
            port: 0,
        });
        let remove = remove.iter().map(|rank| RemovedContainer {
            job: job(),
            incarnation: Incarnation(1),
            rank: Rank(*rank),
            node: node("n0"),
        });
        self.fold(PlacementDecided {
            epoch: Epoch(epoch),
            create: create.collect(),
            remove: remove.collect(),
            basis: None,
        });
    }

    fn started(&mut self, rank: u32, on: &str) {
        self.fold(ContainerStarted {
            container: container(rank),
            node: node(on),
            pid: 0,
        });
    }

    fn ready(&mut self, rank: u32, on: &str) {
        self.fold(ContainerReady {
            container: container(rank),
            node: node(on),
            after_ms: 0,
            token_blake3: None,
        });
    }

    fn lost(&mut self, name: &str) {
        self.fold(NodeLost {
            node: node(name),
            incarnation: 1,
            last_seen: self.now,
        });
    }

    fn next(&self) -> Event {
        let mut decision = self.decide();
        assert_eq!(decision.proposals.len(), 1, "{decision:?}");
        decision.proposals.remove(0).event
    }

    #[track_caller]
    fn resize(&mut self) -> PartitionResizeRequested {
        let Event::PartitionResizeRequested(event) = self.next() else {
            panic!("{:?}", self.decide());
        };
        self.step(RESIZE);
        *event
    }

    #[track_caller]
    fn resized(&mut self) -> PartitionResized {
        let Event::PartitionResized(event) = self.next() else {
            panic!("{:?}", self.decide());
        };
        self.step(RESIZED);
        *event
    }

    #[track_caller]
    fn leave(&mut self) -> PartitionLeaveRequested {
        let Event::PartitionLeaveRequested(event) = self.next() else {
            panic!("{:?}", self.decide());
        };
        self.step(LEAVE);
        *event
    }

    #[track_caller]
    fn rests(&self) {
        assert_eq!(self.decide().proposals, Vec::new());
    }
}

fn ranks(ranks: &[u32]) -> Vec<Rank> {
    ranks.iter().copied().map(Rank).collect()
}

#[test]
fn newcomers_join_once_all_of_them_are_ready() {
    let mut given = Given::running(training());
    given.change(2, &[(2, "n1"), (3, "n1")], &[]);
    let asked = given.resize();
    assert_eq!((asked.join, asked.leave), (ranks(&[2, 3]), Vec::new()));
    given.started(2, "n1");
    given.ready(2, "n1");
    given.started(3, "n1");
    given.rests();
    given.ready(3, "n1");
    let now = given.resized();
    assert_eq!(now.members, ranks(&[0, 1, 2, 3]));
    assert_eq!((now.generation, now.cause), (1, ResizeCause::Adjusted));
    given.rests();
}

#[test]
fn a_leaver_has_its_grace_and_is_stopped_at_its_end() {
    let mut given = Given::running(training());
    given.change(2, &[], &[1]);
    assert_eq!(given.resize().leave, ranks(&[1]));
    given.waits(30);
    assert_eq!(given.leave().ranks, ranks(&[1]));
    given.rests();
    given.exit(1, 143);
    assert_eq!(given.resized().members, ranks(&[0]));
}

#[test]
fn a_newcomer_that_never_comes_is_given_up() {
    let mut given = Given::running(training());
    given.change(2, &[(2, "n1")], &[]);
    given.step(RESIZE);
    given.waits(120);
    assert_eq!(given.leave().ranks, ranks(&[2]));
    given.exit_on(2, 143, "n1");
    assert_eq!(given.resized().members, ranks(&[0, 1]));
}

#[test]
fn a_member_that_dies_leaves_the_others_and_the_coordinator_takes_them_along() {
    let mut given = Given::running(training());
    given.exit(1, 9);
    let now = given.resized();
    assert_eq!((now.members, now.cause), (ranks(&[0]), ResizeCause::Lost));
    given.rests();
    given.exit(0, 9);
    given.step(&["dormouse.partition.stopped.v1"]);
}

#[test]
fn below_its_least_the_gang_ends() {
    let mut bounds = training();
    bounds["containers"]["min"] = json!(2);
    let mut given = Given::running(bounds);
    given.exit(1, 9);
    given.step(STOP);
}

#[test]
fn newcomers_of_a_job_whose_coordinator_is_done_are_stopped() {
    let mut given = Given::running(training());
    given.change(2, &[(2, "n1")], &[]);
    given.step(RESIZE);
    given.exit(1, 0);
    given.exit(0, 0);
    given.step(STOP);
    given.exit_on(2, 143, "n1");
    given.step(&["dormouse.partition.stopped.v1"]);
    given.step(&["dormouse.job.completed.v1"]);
}

#[test]
fn a_replica_is_stopped_when_no_gateway_uses_it_any_more() {
    let mut given = Given::running(service());
    let gateways = ["g0", "g1"].map(|name| name.parse::<GatewayId>().expect("a name"));
    for gateway in &gateways {
        given.fold(GatewayJoined {
            gateway: gateway.clone(),
            address: String::new(),
        });
    }
    given.change(2, &[], &[1]);
    given.step(RESIZE);
    let answers = given.state.sequence;
    let unrouted = |gateway: &GatewayId, answers: Sequence| GatewayUnrouted {
        gateway: gateway.clone(),
        container: container(1),
        answers,
        closed: 0,
    };
    given.fold(unrouted(&gateways[0], answers));
    given.fold(unrouted(&gateways[1], Sequence(1)));
    given.rests();
    given.fold(unrouted(&gateways[1], answers));
    given.step(LEAVE);
}

#[test]
fn a_gateway_that_does_not_answer_is_waited_for_until_the_drain_is_over() {
    let mut given = Given::running(service());
    given.fold(GatewayJoined {
        gateway: "g0".parse().expect("a name"),
        address: String::new(),
    });
    given.change(2, &[], &[1]);
    given.step(RESIZE);
    given.waits(5);
    given.step(LEAVE);
}

#[test]
fn a_gateway_that_is_lost_is_waited_for_no_more() {
    let mut given = Given::running(service());
    let gateway: GatewayId = "g0".parse().expect("a name");
    given.fold(GatewayJoined {
        gateway: gateway.clone(),
        address: String::new(),
    });
    given.change(2, &[], &[1]);
    given.step(RESIZE);
    given.rests();
    given.fold(GatewayLost {
        gateway,
        last_seen: Timestamp::default(),
    });
    given.step(LEAVE);
}

#[test]
fn a_replica_that_is_not_ready_any_more_is_replaced_after_a_while() {
    let mut given = Given::running(service());
    given.fold(ContainerUnready {
        container: container(1),
        node: node("n0"),
        reason: "no answer".to_owned(),
    });
    let asked = given.resize();
    assert_eq!(
        (asked.leave, asked.cause),
        (ranks(&[1]), ResizeCause::Unready)
    );
    given.step(LEAVE);
    given.exit(1, 143);
    given.step(RESIZED);
    // The replacement starts a second after the death.
    given.change(2, &[(2, "n1")], &[]);
    given.waits(1);
    assert_eq!(given.resize().join, ranks(&[2]));
}

#[test]
fn a_service_survives_the_loss_of_all_its_replicas_and_ends_when_it_is_to_have_none() {
    let mut given = Given::running(service());
    given.lost("n0");
    assert_eq!(given.resized().members, Vec::new());
    given.rests();
    given.change(2, &[(2, "n1")], &[]);
    assert_eq!(given.resize().join, ranks(&[2]));
}

#[test]
fn replicas_start_as_far_as_there_is_room_and_members_of_a_gang_together() {
    let newcomers = [(2, "n0"), (3, "n0"), (4, "n0")];
    let mut given = Given::running(service());
    given.change(2, &newcomers, &[]);
    assert_eq!(given.resize().join, ranks(&[2, 3]));
    let mut given = Given::running(training());
    given.change(2, &newcomers, &[]);
    given.rests();
}

#[test]
fn further_replicas_do_not_wait_for_those_that_start() {
    let mut given = Given::running(service());
    given.change(2, &[(2, "n1")], &[]);
    assert_eq!(given.resize().join, ranks(&[2]));
    given.started(2, "n1");
    given.change(3, &[(3, "n1")], &[]);
    assert_eq!(given.resize().join, ranks(&[3]));
    given.rests();
    given.ready(2, "n1");
    given.started(3, "n1");
    given.rests();
    given.ready(3, "n1");
    let now = given.resized();
    assert_eq!((now.members, now.generation), (ranks(&[0, 1, 2, 3]), 2));
    given.rests();
}

#[test]
fn a_service_that_is_moved_starts_its_newcomers_first() {
    let mut given = Given::running(service());
    given.change(2, &[(2, "n1"), (3, "n1")], &[0, 1]);
    let asked = given.resize();
    assert_eq!((asked.join, asked.leave), (ranks(&[2, 3]), Vec::new()));
    given.started(2, "n1");
    given.ready(2, "n1");
    given.started(3, "n1");
    given.rests();
    given.ready(3, "n1");
    assert_eq!(given.resized().members, ranks(&[0, 1, 2, 3]));
    assert_eq!(given.resize().leave, ranks(&[0, 1]));
}

#[test]
fn a_service_that_gets_smaller_and_moves_gives_up_what_is_more_than_it_is_to_have() {
    let mut given = Given::running(service());
    given.change(2, &[(2, "n1")], &[0, 1]);
    let asked = given.resize();
    assert_eq!((asked.join, asked.leave), (ranks(&[2]), ranks(&[1])));
}

#[test]
fn replicas_for_whose_successors_there_is_no_room_leave_one_by_one() {
    let mut given = Given::running(service());
    given.change(2, &[(2, "n0"), (3, "n0"), (4, "n0"), (5, "n0")], &[0, 1]);
    assert_eq!(given.resize().join, ranks(&[2, 3]));
    for rank in [2, 3] {
        given.started(rank, "n0");
        given.ready(rank, "n0");
    }
    given.resized();
    let asked = given.resize();
    assert_eq!((asked.join, asked.leave), (Vec::new(), ranks(&[1])));
    given.step(LEAVE);
    given.exit(1, 143);
    given.resized();
    assert_eq!(given.resize().join, ranks(&[4]));
}

#[test]
fn a_drained_node_that_is_to_be_empty_is_left_before_newcomers_are_ready() {
    let mut given = Given::running(service());
    given.fold(NodeDrained {
        node: node("n0"),
        deadline_s: Some(60),
        reason: None,
    });
    given.change(2, &[(2, "n1"), (3, "n1")], &[0, 1]);
    assert_eq!(given.resize().join, ranks(&[2, 3]));
    given.started(2, "n1");
    given.ready(2, "n1");
    given.exit_on(3, 1, "n1");
    assert_eq!(given.resized().members, ranks(&[0, 1, 2]));
    // The second leaves at another ready joiner or the drain's deadline.
    assert_eq!(given.resize().leave, ranks(&[1]));
    given.step(LEAVE);
    given.exit(1, 143);
    given.resized();
    given.waits(60);
    assert_eq!(given.resize().leave, ranks(&[0]));
}
