//! Given starts that failed for reasons of nodes, when the placer decides, then …

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::*;
use dormouse_messages::job::{Checkpoint, Command, Containers, Executor, JobSpec, Kind, Success};
use dormouse_messages::service::Resize;
use dormouse_messages::{
    Decider, Envelope, Epoch, Event, Fold, Incarnation, JobId, NodeId, Rank, Recorded, Sequence,
    Timestamp,
};
use dormouse_placer::Placer;
use dormouse_state::ClusterState;

#[derive(Default)]
struct Given {
    state: ClusterState,
    events: u64,
    seconds: i64,
}

fn node(name: &str) -> NodeId {
    name.parse().expect("valid")
}

fn job(name: &str) -> JobId {
    name.parse().expect("valid")
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn spec(id: &JobId) -> JobSpec {
    JobSpec {
        name: id.name().to_owned(),
        tenant: id.tenant().to_owned(),
        kind: Kind::Training,
        executor: Executor::Plain,
        image: None,
        command: Command {
            start: vec!["train".to_owned()],
            resume: Vec::new(),
        },
        env: BTreeMap::new(),
        demand: "cpu=2".parse().expect("amounts"),
        weight: 1,
        containers: Containers::between(1, 1),
        static_containers: None,
        min_run_s: None,
        checkpoint: Checkpoint::default(),
        success: Success::All,
        mounts: Vec::new(),
        retries: 0,
        priority: 0,
        depends_on: Vec::new(),
        tasks: None,
        resize: Resize::default(),
        service: None,
    }
}

impl Given {
    /// A cluster of two nodes with room for two containers each.
    fn nodes() -> Self {
        let mut given = Self::default();
        for name in ["n0", "n1"] {
            given.push(NodeJoined {
                node: node(name),
                capacity: "cpu=4".parse().expect("amounts"),
                labels: BTreeMap::new(),
                gpus: Vec::new(),
                incarnation: 1,
                running: Vec::new(),
                address: String::new(),
                runtime: "process".to_owned(),
            });
        }
        given
    }

    fn push(&mut self, event: impl Into<Event>) {
        let event = event.into();
        self.events += 1;
        self.seconds += 1;
        let (time, writer) = (at(self.seconds), event.writers()[0]);
        self.state.evolve(&Recorded {
            sequence: Sequence(self.events),
            stored_at: time,
            writer,
            envelope: Envelope::new(self.events.to_string(), writer, time, None, event),
        });
        self.state.check_invariants().expect("invariants hold");
    }

    /// A job of one container, placed on a node.
    fn placed(&mut self, id: &str, on: &str) {
        self.push(JobAdmitted {
            job: job(id),
            spec: spec(&job(id)),
            ingress_sequence: self.events,
            basis: None,
        });
        self.push(JobReleased {
            job: job(id),
            turn: None,
            passed_over: Vec::new(),
            basis: None,
        });
        self.create(id, on, 1);
    }

    fn create(&mut self, id: &str, on: &str, incarnation: u32) {
        self.push(PlacementDecided {
            epoch: Epoch(0),
            create: vec![PlacedContainer {
                job: job(id),
                incarnation: Incarnation(incarnation),
                rank: Rank(0),
                node: node(on),
                gpus: Vec::new(),
                port: 0,
            }],
            remove: Vec::new(),
            basis: None,
        });
    }

    /// Its life fails to start, for a reason of the node's.
    fn faults(&mut self, id: &str, on: &str, incarnation: u32, fault: NodeFault) {
        let incarnation = Incarnation(incarnation);
        self.push(PartitionStartRequested {
            job: job(id),
            epoch: Epoch(0),
            incarnation,
            containers: 1,
            resumed_from: None,
            basis: None,
        });
        self.push(NodeFaulted {
            node: node(on),
            job: job(id),
            incarnation,
            rank: Rank(0),
            fault,
            reason: "no space left on device".to_owned(),
        });
        self.push(PartitionStopped {
            job: job(id),
            epoch: Epoch(0),
            incarnation,
            containers: 1,
            reason: StopReason::Failed,
            attempts: 0,
            basis: None,
        });
    }

    fn decided(&self) -> (Vec<Event>, Option<Timestamp>) {
        let decision = Placer.decide(&self.state, at(self.seconds));
        let events = decision.proposals.into_iter().map(|it| it.event);
        (events.collect(), decision.next_wake)
    }

    /// Which nodes the placer puts out of use.
    fn quarantined(&self) -> BTreeSet<NodeId> {
        let (events, _) = self.decided();
        let nodes = events.iter().filter_map(|event| match event {
            Event::NodeQuarantined(event) => Some(event.node.clone()),
            _ => None,
        });
        nodes.collect()
    }
}

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
    // Where the other one is full it stays.
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
    // Its time is over; the next failures quarantine it for twice as long.
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
    // A start that succeeds clears it.
    given.push(ContainerStarted {
        container: "ads/z/1/0".parse().expect("valid"),
        job: job("ads/z"),
        incarnation: Incarnation(1),
        rank: Rank(0),
        node: node("n0"),
        pid: 1,
    });
    assert!(given.quarantined().is_empty());
}

#[test]
fn one_job_with_a_wrong_image_takes_no_node_from_others() {
    let mut given = Given::nodes();
    given.placed("ads/a", "n0");
    for incarnation in 1..=5 {
        given.faults("ads/a", "n0", incarnation, NodeFault::Image);
        assert!(given.quarantined().is_empty());
        given.create("ads/a", "n0", incarnation + 1);
    }
    let faults = &given.state.jobs[&job("ads/a")].start_faults;
    assert!(faults.are_the_jobs(), "{faults:?}");
    // With another job's word for it, it is the node.
    given.placed("ads/b", "n0");
    given.faults("ads/b", "n0", 1, NodeFault::Image);
    assert_eq!(given.quarantined(), BTreeSet::from([node("n0")]));
}
