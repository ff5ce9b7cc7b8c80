//! Tests of the due step of one gang.
//!
//! - `elastic`, `roles`: partitions resized in place, auxiliary roles
//! - `ends`: ends and retries
//! - `histories`, `table`: random histories, all phases and events
//! - `room`: free capacity

mod elastic;
mod ends;
mod histories;
mod roles;
mod room;
mod table;

use dormouse_messages::events::{
    CheckpointFailed, CheckpointSaved, ContainerExited, ContainerStarted, JobAdmitted,
    JobCancelRequested, JobReleased, NodeDrained, NodeJoined, NodeLabelled, NodeLost,
    PlacedContainer, PlacementDecided, Progress, StopReason,
};
use dormouse_messages::ids::ContainerId;
use dormouse_messages::{
    Decider, Decision, Envelope, Epoch, Event, Fold, Incarnation, JobId, NodeId, Rank, Recorded,
    Timestamp,
};
use dormouse_state::ClusterState;
use serde_json::{Value, json};

use crate::Checkpointer;

struct Given {
    state: ClusterState,
    now: Timestamp,
}

fn job() -> JobId {
    "t/a".parse().expect("a job")
}

fn node(name: &str) -> NodeId {
    name.parse().expect("a node")
}

fn joined(node: NodeId, incarnation: u64) -> NodeJoined {
    NodeJoined {
        node,
        capacity: "cpu=4,memory=8Gi".parse().expect("amounts"),
        labels: Default::default(),
        gpus: Vec::new(),
        incarnation,
        running: Vec::new(),
        address: String::new(),
        runtime: "model".to_owned(),
        taints: Default::default(),
    }
}

impl Given {
    /// A gang of two, running on `n0` as of now; `n1` is free.
    fn running(more: Value) -> Self {
        let mut given = Self::starting(more);
        given.starts(0);
        given.starts(1);
        given.step(&["dormouse.partition.started.v1"]);
        given
    }

    /// Before the containers' first reports.
    fn starting(more: Value) -> Self {
        let mut given = Self {
            state: ClusterState::default(),
            now: Timestamp::from_micros(1_800_000_000_000_000),
        };
        for name in ["n0", "n1"] {
            given.join(name, 1);
        }
        let mut spec = json!({
            "name": "a", "tenant": "t", "command": {"start": ["train"]},
            "demand": {"cpu_milli": 1000}, "weight": 1, "containers": {"min": 1, "max": 4},
            "checkpoint": {"mode": "exit", "signal": "SIGTERM", "grace_s": 30},
        });
        let fields = spec.as_object_mut().expect("a map");
        fields.extend(more.as_object().expect("a map").clone());
        given.fold(JobAdmitted {
            job: job(),
            spec: serde_json::from_value(spec).expect("a job"),
            ingress_sequence: 1,
            by: None,
            basis: None,
        });
        given.fold(JobReleased {
            job: job(),
            turn: None,
            passed_over: Vec::new(),
            basis: None,
        });
        given.place(1, "n0");
        given.step(&["dormouse.partition.start_requested.v1"]);
        given
    }

    fn starts(&mut self, rank: u32) {
        let incarnation = self.incarnation();
        self.fold(ContainerStarted {
            container: ContainerId {
                incarnation,
                ..container(rank)
            },
            node: node("n0"),
            pid: 0,
        });
    }

    fn incarnation(&self) -> Incarnation {
        let job = self.state.job(&job()).expect("a job");
        let incarnation = job.partition.as_ref().map(|it| it.incarnation);
        incarnation.unwrap_or(Incarnation(1))
    }

    #[track_caller]
    fn stopped(&self) -> (StopReason, u32) {
        match self.decide().proposals.first().map(|it| it.event.clone()) {
            Some(Event::PartitionStopped(stopped)) => (stopped.reason, stopped.attempts),
            other => panic!("{other:?}"),
        }
    }

    fn fold(&mut self, event: impl Into<Event>) {
        let event = event.into();
        let writer = event.writers()[0];
        let sequence = self.state.sequence.next();
        self.state.evolve(&Recorded {
            sequence,
            stored_at: self.now,
            writer,
            envelope: Envelope::new(sequence.to_string(), writer, self.now, None, event),
        });
        self.state.check_invariants().expect("sound");
    }

    fn place(&mut self, incarnation: u32, name: &str) {
        let create = [0, 1].map(|rank| PlacedContainer {
            job: job(),
            incarnation: Incarnation(incarnation),
            rank: Rank(rank),
            node: node(name),
            gpus: Vec::new(),
            port: 0,
        });
        self.fold(PlacementDecided {
            epoch: Epoch(u64::from(incarnation)),
            create: create.into(),
            remove: Vec::new(),
            basis: None,
        });
    }

    fn progress(&mut self) {
        self.fold(Progress {
            job: job(),
            incarnation: Incarnation(1),
            node: node("n0"),
            step: 1,
            steps_total: 10,
            containers: 2,
            metrics: Default::default(),
        });
    }

    fn exit(&mut self, rank: u32, code: i32) {
        self.exit_on(rank, code, "n0");
    }

    fn exit_on(&mut self, rank: u32, code: i32, on: &str) {
        let exited = self.exited(rank, on);
        self.fold(ContainerExited {
            exit_code: Some(code),
            signal: None,
            ..exited
        });
    }

    fn runs_out_of_memory(&mut self, rank: u32) {
        let exited = self.exited(rank, "n0");
        self.fold(ContainerExited {
            out_of_memory: true,
            ..exited
        });
    }

    fn exited(&self, rank: u32, on: &str) -> ContainerExited {
        let incarnation = self.incarnation();
        ContainerExited {
            container: ContainerId {
                incarnation,
                ..container(rank)
            },
            node: node(on),
            exit_code: None,
            signal: Some(9),
            out_of_memory: false,
            reason: None,
            evicted: false,
        }
    }

    fn join(&mut self, name: &str, incarnation: u64) {
        self.fold(joined(node(name), incarnation));
    }

    fn saved(&mut self) {
        self.fold(CheckpointSaved {
            job: job(),
            incarnation: Incarnation(1),
            node: node("n0"),
            uri: "file:///c".to_owned(),
            step: 1,
            bytes: 1,
            duration_ms: 1,
        });
    }

    fn not_saved(&mut self) {
        self.fold(CheckpointFailed {
            job: job(),
            incarnation: Incarnation(1),
            node: node("n0"),
            reason: "the disk is full".to_owned(),
        });
    }

    fn cancel(&mut self) {
        self.fold(JobCancelRequested {
            job: job(),
            ingress_sequence: 2,
            by: None,
            basis: None,
        });
    }

    fn evict(&mut self, rank: u32) {
        self.evict_with(rank, None);
    }

    fn evict_with(&mut self, rank: u32, exit_code: Option<i32>) {
        self.fold(ContainerExited {
            container: container(rank),
            node: node("n0"),
            exit_code,
            signal: None,
            out_of_memory: false,
            reason: Some("taken away".to_owned()),
            evicted: true,
        });
    }

    fn decide(&self) -> Decision {
        Checkpointer::default().decide(&self.state, self.now)
    }

    /// Checks and appends the due events.
    #[track_caller]
    fn step(&mut self, types: &[&str]) {
        let decision = self.decide();
        let events: Vec<Event> = decision.proposals.into_iter().map(|p| p.event).collect();
        let due: Vec<&str> = events.iter().map(Event::type_name).collect();
        assert_eq!(due, types);
        events.into_iter().for_each(|event| self.fold(event));
    }

    /// The next step is due after `seconds`, which pass.
    #[track_caller]
    fn waits(&mut self, seconds: u64) {
        let decision = self.decide();
        let until = self.now.plus_ms(seconds * 1000);
        assert_eq!(
            (decision.proposals, decision.next_wake),
            (Vec::new(), Some(until))
        );
        self.now = until;
    }

    fn pass(&mut self, seconds: u64) {
        self.now = self.now.plus_ms(seconds * 1000);
    }
}

fn container(rank: u32) -> ContainerId {
    ContainerId {
        job: job(),
        incarnation: Incarnation(1),
        rank: Rank(rank),
    }
}

const SAVE: &[&str] = &["dormouse.checkpoint.requested.v1"];
const STOP: &[&str] = &["dormouse.partition.stop_requested.v1"];

#[test]
fn a_job_that_has_just_started_is_resized_when_it_is_ready_and_has_run_for_a_while() {
    let mut given = Given::running(json!({}));
    given.place(2, "n1");
    given.pass(1);
    given.progress();
    given.waits(4);
    given.step(SAVE);
}

#[test]
fn a_job_that_reports_no_progress_counts_as_ready_after_fifteen_seconds() {
    let mut given = Given::running(json!({}));
    given.place(2, "n1");
    given.waits(15);
    given.step(SAVE);
}

#[test]
fn progress_that_comes_late_makes_the_time_that_a_restart_costs_longer() {
    let mut given = Given::running(json!({}));
    given.pass(6);
    given.progress();
    given.place(2, "n1");
    // Four times the six seconds to the first step.
    given.waits(18);
    given.step(SAVE);
}

#[test]
fn a_job_says_how_long_it_is_left_alone() {
    let mut given = Given::running(json!({"min_run_s": 60}));
    given.progress();
    given.place(2, "n1");
    given.waits(60);
    given.step(SAVE);
    let mut given = Given::running(json!({"min_run_s": 0}));
    given.place(2, "n1");
    given.step(SAVE);
}

#[test]
fn a_drained_node_is_left_at_once() {
    let mut given = Given::running(json!({}));
    given.fold(NodeDrained {
        node: node("n0"),
        reason: None,
        deadline_s: None,
    });
    given.place(2, "n1");
    given.step(SAVE);
}

#[test]
fn what_cannot_move_is_stopped_at_the_deadline_of_a_drain() {
    let mut given = Given::running(json!({"checkpoint": {"mode": "none"}}));
    given.fold(NodeDrained {
        node: node("n0"),
        reason: Some("a new disk".to_owned()),
        deadline_s: Some(60),
    });
    given.waits(60);
    given.step(STOP);
}

#[test]
fn a_gang_starts_where_its_constraints_hold_and_runs_on_where_they_held() {
    let label = |zone: &str| NodeLabelled {
        node: node("n1"),
        labels: [("zone".to_owned(), Some(zone.to_owned()))].into(),
        taints: Default::default(),
    };
    let mut given = Given::running(json!({"constraints": {"zone": {"not": "b"}}}));
    given.fold(label("b"));
    given.place(2, "n1");
    let assignment = given.state.jobs[&job()].assignment.as_ref();
    assert!(assignment.expect("placed").displaced, "it is decided again");
    let mut given = Given::running(json!({"constraints": {"zone": {"not": "b"}}}));
    given.fold(NodeLabelled {
        node: node("n0"),
        ..label("b")
    });
    assert!(given.decide().proposals.is_empty(), "it runs on");
}

#[test]
fn a_gang_of_which_one_died_before_its_first_step_is_not_waited_for() {
    let mut given = Given::running(json!({"min_run_s": 0}));
    given.place(2, "n1");
    given.step(SAVE);
    given.exit(1, 143);
    let decision = given.decide();
    let Event::PartitionStopRequested(stop) = &decision.proposals[0].event else {
        panic!("{decision:?}");
    };
    assert_eq!(stop.grace_s, Some(0), "nor for its end");
    given.step(STOP);
}

#[test]
fn a_gang_whose_rank_0_has_ended_is_not_waited_for() {
    let mut given = Given::running(json!({"min_run_s": 0}));
    given.progress();
    given.place(2, "n1");
    given.step(SAVE);
    given.exit(0, 0);
    given.step(STOP);
}

#[test]
fn rank_0_of_a_gang_that_made_progress_has_its_time_to_save() {
    let mut given = Given::running(json!({"min_run_s": 0}));
    given.progress();
    given.place(2, "n1");
    given.step(SAVE);
    given.exit(1, 143);
    given.waits(30);
    given.step(STOP);
}

#[test]
fn a_gang_that_does_not_start_in_time_has_failed() {
    let mut given = Given::starting(json!({}));
    given.starts(0);
    given.waits(120);
    given.step(STOP);
    given.exit(0, 143);
    given.evict(1);
    assert_eq!(given.stopped(), (StopReason::GaveUp, 1));
}

/// The agent may have missed the request.
#[test]
fn a_gang_whose_agent_was_away_is_started_again() {
    let mut given = Given::starting(json!({}));
    given.waits(120);
    given.step(STOP);
    given.join("n0", 2);
    given.evict(0);
    given.evict(1);
    assert_eq!(given.stopped(), (StopReason::Failed, 0));
}

#[test]
fn a_gang_whose_nodes_make_an_environment_has_the_time_for_it() {
    let python = json!({"requirements": ["numpy==1.26.4"]});
    let mut given = Given::starting(json!({"python": python}));
    given.starts(0);
    given.waits(120 + 900);
    given.step(STOP);
}

#[test]
fn a_gang_whose_start_was_seen_late_is_started_again() {
    let mut given = Given::starting(json!({}));
    given.waits(120);
    let stop = given.decide().proposals.remove(0).event;
    // The decision of a lagging copy.
    given.starts(0);
    given.starts(1);
    given.fold(stop);
    given.exit(0, 143);
    given.exit(1, 143);
    assert_eq!(given.stopped(), (StopReason::Failed, 0));
}

/// Reports may be delayed by absent brokers.
#[test]
fn a_gang_that_begins_too_late_is_started_again_a_few_times() {
    let mut given = Given::starting(json!({}));
    for incarnation in 1..=6 {
        given.starts(0);
        given.waits(120);
        given.step(STOP);
        // Before the other reports a start.
        given.exit(0, 143);
        given.starts(1);
        given.exit(1, 143);
        if incarnation == 6 {
            break;
        }
        assert_eq!(given.stopped(), (StopReason::Failed, 0));
        given.step(&["dormouse.partition.stopped.v1"]);
        given.place(incarnation + 1, "n0");
        given.step(&["dormouse.partition.start_requested.v1"]);
    }
    assert_eq!(given.stopped(), (StopReason::GaveUp, 1));
    given.step(&["dormouse.partition.stopped.v1"]);
    let event = given.decide().proposals.remove(0).event;
    let Event::JobFailed(failed) = event else {
        panic!("{event:?}");
    };
    let why = "the gang did not start in time, after 1 attempt; see `dormouse job logs t/a`";
    assert_eq!(failed.reason, why);
}

#[test]
fn a_gang_that_could_not_start_on_a_node_that_is_lost_is_started_again() {
    let mut given = Given::starting(json!({}));
    given.waits(120);
    given.step(STOP);
    given.fold(NodeLost {
        node: node("n0"),
        incarnation: 1,
        last_seen: given.now,
    });
    assert_eq!(given.stopped(), (StopReason::Failed, 0));
}

#[test]
fn a_gang_that_died_before_its_node_was_lost_has_failed() {
    let mut given = Given::starting(json!({}));
    given.starts(0);
    given.exit(0, 1);
    given.step(STOP);
    given.fold(NodeLost {
        node: node("n0"),
        incarnation: 1,
        last_seen: given.now,
    });
    assert_eq!(given.stopped(), (StopReason::GaveUp, 1));
}

#[test]
fn a_partition_is_warned_once_and_stopped_when_its_time_is_over() {
    let limits = json!({"time_limit_s": 100, "warning": {"signal": "SIGUSR2", "before_s": 30}});
    let mut given = Given::running(limits);
    given.waits(70);
    given.step(&["dormouse.partition.warned.v1"]);
    given.waits(30);
    given.step(STOP);
    given.exit(0, 143);
    given.exit(1, 143);
    given.step(&["dormouse.partition.stopped.v1"]);
    given.step(&["dormouse.job.failed.v1"]);
}

/// The agent then reports an exit within the limit.
#[test]
fn a_partition_whose_time_was_over_in_a_silence_is_not_stopped_before_its_agent_is_heard() {
    let mut given = Given::running(json!({"time_limit_s": 100}));
    given.pass(500);
    given.join("n1", 1);
    given.step(&[]);
    given.pass(2);
    given.exit(0, 0);
    given.exit(1, 0);
    given.step(&["dormouse.job.completed.v1"]);
    let mut given = Given::running(json!({"time_limit_s": 100}));
    given.pass(500);
    given.join("n1", 1);
    given.waits(3);
    given.step(STOP);
}

#[test]
fn a_partition_that_saves_when_its_time_is_over_is_stopped() {
    let mut given = Given::running(json!({"time_limit_s": 10, "min_run_s": 0}));
    given.pass(9);
    given.place(2, "n1");
    given.step(SAVE);
    given.waits(1);
    given.step(STOP);
}

#[test]
fn a_job_that_says_when_it_is_ready_is_not_resized_before() {
    let mut given = Given::running(json!({"ready": "progress", "min_run_s": 0}));
    given.place(2, "n1");
    given.waits(86_400);
    let mut given = Given::running(json!({"ready": "progress", "min_run_s": 0}));
    given.place(2, "n1");
    given.pass(600);
    given.progress();
    given.step(SAVE);
}
