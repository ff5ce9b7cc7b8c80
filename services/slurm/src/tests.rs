//! Given a history, when the decider decides, then these requests and releases.

use dormouse_messages::events::{
    ContainerStarted, JobAdmitted, JobCancelled, NodeDrained, NodeJoined, NodeRemoved, SlurmEnded,
    SlurmGranted, SlurmQueueConfigured, SlurmQueueRemoved, SlurmRefused, SlurmReleased,
    SlurmRequested, SlurmSubmitted,
};
use dormouse_messages::job::JobSpec;
use dormouse_messages::slurm::SlurmQueue;
use dormouse_messages::{
    ContainerId, Decider, Envelope, Event, Fold, Incarnation, JobId, NodeId, QueueId, Rank,
    Recorded, Sequence, Timestamp, Writer,
};
use dormouse_state::ClusterState;
use serde_json::json;

use super::Slurm;

const IDLE_S: u32 = 300;

fn queue() -> QueueId {
    "gpu".parse().expect("a queue")
}

fn settings() -> SlurmQueue {
    SlurmQueue {
        partition: None,
        account: None,
        options: Vec::new(),
        node: "cpu=4,memory=8Gi".parse().expect("amounts"),
        labels: std::collections::BTreeMap::new(),
        nodes: 1,
        time_limit_s: 3_600,
        drain_s: 60,
        most: 4,
        backlog: 1,
        idle_s: IDLE_S,
        pause_after: 2,
        grow: false,
        paused: false,
    }
}

#[derive(Default)]
struct Log {
    state: ClusterState,
    sequence: Sequence,
    now_s: u64,
}

/// A request: number, slot, jobs.
type Request = (u64, u32, Vec<String>);

impl Log {
    fn with(settings: SlurmQueue) -> Self {
        let mut log = Self::default();
        log.happen(
            Writer::Operator,
            SlurmQueueConfigured {
                queue: queue(),
                settings,
            },
        );
        log
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_000_000_000_000_000).plus_ms(self.now_s * 1000)
    }

    fn happen(&mut self, writer: Writer, event: impl Into<Event>) {
        self.sequence = self.sequence.next();
        let (event, time) = (event.into(), self.now());
        let id = format!("e-{}", self.sequence);
        self.state.evolve(&Recorded {
            sequence: self.sequence,
            stored_at: time,
            writer,
            envelope: Envelope::new(id, writer, time, None, event),
        });
        self.state.check_invariants().expect("holds");
    }

    fn admit(&mut self, name: &str, cpu: u32, containers: (u32, u32)) {
        self.admit_with(name, cpu, containers, json!({}));
    }

    fn admit_with(
        &mut self,
        name: &str,
        cpu: u32,
        (min, max): (u32, u32),
        more: serde_json::Value,
    ) {
        let mut spec = json!({
            "name": name, "tenant": "ads", "command": {"start": ["train"]},
            "demand": {"cpu_milli": cpu * 1000}, "weight": 1,
            "containers": {"min": min, "max": max}, "checkpoint": {"mode": "exit"},
        });
        let fields = spec.as_object_mut().expect("a map");
        fields.extend(more.as_object().cloned().unwrap_or_default());
        let spec: JobSpec = serde_json::from_value(spec).expect("a job");
        let event = JobAdmitted {
            job: job(name),
            ingress_sequence: self.sequence.0,
            spec,
            by: None,
            basis: None,
        };
        self.happen(Writer::Admission, event);
    }

    fn cancel(&mut self, name: &str) {
        let event = JobCancelled {
            job: job(name),
            reason: String::new(),
            attempts: 0,
            code: None,
            ingress_sequence: None,
            by: None,
            basis: None,
        };
        self.happen(Writer::Admission, event);
    }

    fn decide(&mut self) -> (Vec<Request>, Vec<SlurmReleased>, Option<u64>) {
        let decision = Slurm.decide(&self.state, self.now());
        let (mut requests, mut releases) = (Vec::new(), Vec::new());
        for proposal in decision.proposals {
            match &proposal.event {
                Event::SlurmRequested(it) => {
                    let jobs = it.jobs.iter().map(ToString::to_string).collect();
                    requests.push((it.number, it.slot, jobs));
                }
                Event::SlurmReleased(it) => releases.push(SlurmReleased::clone(it)),
                other => panic!("{other:?}"),
            }
            self.happen(Writer::Slurm, proposal.event);
        }
        let wake = decision.next_wake.map(|at| at.ms_since(self.now()) / 1000);
        (requests, releases, wake)
    }

    #[track_caller]
    fn requests(&mut self) -> Vec<(u64, u32)> {
        let (requests, releases, _) = self.decide();
        assert_eq!(releases, []);
        requests
            .into_iter()
            .map(|(number, slot, _)| (number, slot))
            .collect()
    }

    #[track_caller]
    fn released(&mut self) -> Vec<(u64, String, bool)> {
        let (requests, releases, _) = self.decide();
        assert_eq!(requests, []);
        let releases = releases.into_iter();
        releases
            .map(|it| (it.number, it.reason, it.in_vain))
            .collect()
    }

    fn submitted(&mut self, number: u64) {
        let event = SlurmSubmitted {
            queue: queue(),
            number,
            slurm_job: 100 + number,
        };
        self.happen(Writer::Slurm, event);
    }

    fn granted(&mut self, number: u64) {
        self.submitted(number);
        let event = SlurmGranted {
            queue: queue(),
            number,
            hosts: "sn1".to_owned(),
            ends_at: None,
        };
        self.happen(Writer::Slurm, event);
    }

    fn join(&mut self, node: &str) {
        let event = NodeJoined {
            node: node.parse().expect("a node"),
            capacity: settings().node,
            labels: settings().node_labels(&queue()),
            gpus: Vec::new(),
            incarnation: self.sequence.0,
            running: Vec::new(),
            address: String::new(),
            runtime: "process".to_owned(),
            taints: std::collections::BTreeSet::new(),
        };
        self.happen(Writer::Node, event);
    }

    fn ended(&mut self, number: u64) {
        let event = SlurmEnded {
            queue: queue(),
            number,
            state: "TIMEOUT".to_owned(),
            reason: "TimeLimit".to_owned(),
        };
        self.happen(Writer::Slurm, event);
    }
}

fn job(name: &str) -> JobId {
    format!("ads/{name}").parse().expect("a job")
}

#[test]
fn jobs_that_wait_share_the_fewest_allocations_and_ask_once() {
    let mut log = Log::with(settings());
    assert_eq!(log.decide(), (Vec::new(), Vec::new(), None));
    log.admit("a", 2, (1, 1));
    log.admit("b", 2, (1, 1));
    let (requests, _, _) = log.decide();
    assert_eq!(requests, [(1, 0, vec!["ads/a".to_owned()])]);
    // Both fit there.
    assert_eq!(log.requests(), []);
    // The backlog is one allocation.
    log.admit("c", 1, (1, 1));
    assert_eq!(log.requests(), []);
    log.granted(1);
    assert_eq!(log.requests(), [(2, 1)]);
}

#[test]
fn a_gang_asks_for_its_allocations_together_and_never_for_more_than_there_may_be() {
    let mut log = Log::with(settings());
    log.admit("wide", 4, (3, 3));
    assert_eq!(log.requests(), [(1, 0), (2, 1), (3, 2)]);
    let mut log = Log::with(settings());
    log.admit("too-wide", 4, (5, 5));
    log.admit("too-large", 5, (1, 1));
    assert_eq!(log.requests(), []);
    let wide = SlurmQueue {
        nodes: 2,
        ..settings()
    };
    let mut log = Log::with(wide);
    log.admit("wide", 4, (3, 3));
    assert_eq!(log.requests(), [(1, 0), (2, 1)]);
}

#[test]
fn what_cannot_use_the_nodes_asks_for_none() {
    let mut log = Log::with(settings());
    log.admit_with(
        "elsewhere",
        1,
        (1, 1),
        json!({"constraints": {"zone": "a"}}),
    );
    log.admit("a", 5, (1, 1));
    log.admit_with("after", 1, (1, 1), json!({"depends_on": ["ads/a"]}));
    log.admit("gone", 1, (1, 1));
    log.cancel("gone");
    assert_eq!(log.requests(), []);
    let labelled = SlurmQueue {
        labels: [("zone".to_owned(), "a".to_owned())].into(),
        ..settings()
    };
    let event = SlurmQueueConfigured {
        queue: queue(),
        settings: labelled,
    };
    log.happen(Writer::Operator, event);
    assert_eq!(log.requests(), [(1, 0)]);
}

#[test]
fn growing_queues_ask_for_the_most_that_jobs_can_use() {
    let growing = SlurmQueue {
        grow: true,
        backlog: 2,
        ..settings()
    };
    let mut log = Log::with(growing);
    log.admit("elastic", 4, (1, 8));
    assert_eq!(log.requests(), [(1, 0)]);
}

#[test]
fn an_idle_allocation_is_given_back_and_its_nodes_are_drained() {
    let mut log = Log::with(settings());
    log.admit("a", 1, (1, 1));
    log.requests();
    log.granted(1);
    log.join("gpu-0-0");
    log.cancel("a");
    log.now_s += 10;
    let (_, releases, wake) = log.decide();
    assert_eq!((releases, wake), (Vec::new(), Some(u64::from(IDLE_S) - 10)));
    log.now_s += 290;
    let idle = "no container for 300 s".to_owned();
    assert_eq!(log.released(), [(1, idle, false)]);
    let node: NodeId = "gpu-0-0".parse().expect("a node");
    assert!(!log.state.nodes.is_usable(&node));
    assert_eq!(log.released(), []);
    // The slot is free once the node is forgotten.
    log.ended(1);
    log.admit("b", 1, (1, 1));
    assert_eq!(log.requests(), [(2, 1)]);
    assert!(log.state.may_forget(&node));
    log.happen(Writer::Slurm, NodeRemoved { node });
    log.admit("c", 4, (1, 1));
    log.granted(2);
    assert_eq!(log.requests(), [(3, 0)]);
    log.join("gpu-0-0");
    assert!(
        log.state
            .nodes
            .is_usable(&"gpu-0-0".parse().expect("a node"))
    );
}

#[test]
fn a_pending_allocation_that_no_job_waits_for_is_given_back() {
    let mut log = Log::with(settings());
    log.admit("a", 1, (1, 1));
    log.requests();
    log.submitted(1);
    log.now_s += u64::from(IDLE_S);
    assert_eq!(log.released(), []);
    log.cancel("a");
    assert_eq!(
        log.released(),
        [(1, "no job waits for it".to_owned(), false)]
    );
}

#[test]
fn drained_and_empty_nodes_go_back_at_once() {
    let mut log = Log::with(settings());
    log.admit("a", 1, (1, 1));
    log.requests();
    log.granted(1);
    log.join("gpu-0-0");
    log.cancel("a");
    let event = NodeDrained {
        node: "gpu-0-0".parse().expect("a node"),
        reason: None,
        deadline_s: Some(30),
    };
    log.happen(Writer::Node, event);
    let drained = "its nodes are drained and empty".to_owned();
    assert_eq!(log.released(), [(1, drained, false)]);
}

#[test]
fn a_queue_pauses_after_failures_in_a_row_until_an_operator_looks() {
    let mut log = Log::with(settings());
    log.admit("a", 1, (1, 1));
    for number in 1..=2 {
        assert_eq!(log.requests(), [(number, 0)]);
        let event = SlurmRefused {
            queue: queue(),
            number,
            reason: "no such partition".to_owned(),
        };
        log.happen(Writer::Slurm, event);
    }
    assert_eq!(log.requests(), []);
    let paused = log.state.slurm.get(&queue()).and_then(|it| it.paused());
    let why = "2 failures in a row: Slurm refuses: no such partition";
    assert_eq!(paused.as_deref(), Some(why));
    let event = SlurmQueueConfigured {
        queue: queue(),
        settings: settings(),
    };
    log.happen(Writer::Operator, event);
    assert_eq!(log.requests(), [(3, 0)]);
    // Agents that do not start are failures, too.
    log.granted(3);
    log.ended(3);
    assert_eq!(log.requests(), [(4, 0)]);
    log.granted(4);
    log.now_s += u64::from(IDLE_S);
    let never = "no node joined within 300 s".to_owned();
    assert_eq!(log.released(), [(4, never, true)]);
    log.ended(4);
    assert_eq!(log.requests(), []);
}

#[test]
fn a_container_that_starts_ends_the_row_of_failures() {
    let mut log = Log::with(settings());
    log.admit("a", 1, (1, 1));
    log.requests();
    let event = SlurmRefused {
        queue: queue(),
        number: 1,
        reason: "busy".to_owned(),
    };
    log.happen(Writer::Slurm, event);
    log.requests();
    log.granted(2);
    log.join("gpu-0-0");
    let event = ContainerStarted {
        container: ContainerId {
            job: job("a"),
            incarnation: Incarnation(1),
            rank: Rank(0),
        },
        node: "gpu-0-0".parse().expect("a node"),
        pid: 1,
    };
    // The report counts once a placement put the container there.
    log.state
        .slurm
        .iter()
        .for_each(|(_, it)| assert_eq!(it.failures, 1));
    log.happen(Writer::Node, event);
}

#[test]
fn a_removed_queue_gives_everything_back_and_is_forgotten() {
    let mut log = Log::with(settings());
    log.admit("a", 1, (1, 1));
    log.requests();
    log.submitted(1);
    log.happen(Writer::Operator, SlurmQueueRemoved { queue: queue() });
    assert_eq!(
        log.released(),
        [(1, "the queue is removed".to_owned(), false)]
    );
    log.ended(1);
    assert!(log.state.slurm.is_empty());
    assert_eq!(log.requests(), []);
}

#[test]
fn requests_of_a_forgotten_queue_change_nothing() {
    let mut log = Log::default();
    let event = SlurmRequested {
        queue: queue(),
        number: 1,
        slot: 0,
        nodes: 1,
        jobs: Vec::new(),
        basis: None,
    };
    log.happen(Writer::Slurm, event);
    log.ended(1);
    assert!(log.state.slurm.is_empty());
}
