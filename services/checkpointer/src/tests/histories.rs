//! Random histories: two jobs, three nodes, events in any order. Failures are kept as seeds
//! (`proptest-regressions`).
//!
//! After every event, judged without the fold:
//! 1. No start of a job is requested while its containers remain.
//! 2. No node is over-committed.
//! 3. An ended job gets no requests.
//! 4. A job fails only after a container failed or time passed.
//! 5. The decider comes to rest.
//!
//! With all nodes present and all containers exiting, every job ends.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{
    CheckpointFailed, CheckpointSaved, JobCancelRequested, NodeRecovered, NodeRestored,
};
use proptest::prelude::*;

use super::*;

/// Bounds consecutive decisions.
const MOST_STEPS: usize = 20;

const ROOM: usize = 4;

#[derive(Debug, Clone)]
enum Happens {
    Decides,
    Starts(usize),
    Exits(usize, i32),
    Evicted(usize),
    Lost(u8),
    Joins(u8),
    Drained(u8),
    Placed(u8, u8),
    Cancelled(u8),
    Saves(u8, bool),
    Progresses(u8),
    Passes(u64),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        8 => Just(Happens::Decides),
        4 => (0..8_usize).prop_map(Happens::Starts),
        3 => (0..8_usize, prop_oneof![Just(0), Just(1)]).prop_map(|(it, code)| Happens::Exits(it, code)),
        1 => (0..8_usize).prop_map(Happens::Evicted),
        1 => (0..3_u8).prop_map(Happens::Lost),
        1 => (0..3_u8).prop_map(Happens::Joins),
        1 => (0..3_u8).prop_map(Happens::Drained),
        3 => (0..2_u8, 0..3_u8).prop_map(|(job, node)| Happens::Placed(job, node)),
        1 => (0..2_u8).prop_map(Happens::Cancelled),
        2 => (0..2_u8, any::<bool>()).prop_map(|(job, well)| Happens::Saves(job, well)),
        1 => (0..2_u8).prop_map(Happens::Progresses),
        3 => (0..200_u64).prop_map(Happens::Passes),
    ]
}

fn job_of(number: u8) -> JobId {
    format!("t/j{number}").parse().expect("a job")
}

fn node_of(number: u8) -> NodeId {
    node(&format!("n{number}"))
}

struct History {
    given: Given,
    epoch: u64,
    agents: BTreeMap<NodeId, u64>,
    lost: BTreeSet<NodeId>,
    /// Requested and not ended; true if running.
    live: BTreeMap<ContainerId, (NodeId, bool)>,
    blamed: BTreeSet<JobId>,
    log: Vec<String>,
}

impl History {
    fn new(mode: &str) -> Self {
        let given = Given {
            state: ClusterState::default(),
            now: Timestamp::from_micros(1_800_000_000_000_000),
        };
        let mut history = Self {
            given,
            epoch: 0,
            agents: BTreeMap::new(),
            lost: (0..3).map(node_of).collect(),
            live: BTreeMap::new(),
            blamed: BTreeSet::new(),
            log: Vec::new(),
        };
        (0..3).for_each(|number| history.join(number));
        for number in 0..2 {
            let spec = json!({
                "name": format!("j{number}"), "tenant": "t", "command": {"start": ["train"]},
                "demand": {"cpu_milli": 1000}, "weight": 1, "containers": {"min": 1, "max": 2},
                "checkpoint": {"mode": mode, "signal": "SIGTERM", "grace_s": 30},
                "retries": number,
            });
            history.fold(JobAdmitted {
                job: job_of(number),
                spec: serde_json::from_value(spec).expect("a job"),
                ingress_sequence: u64::from(number) + 1,
                by: None,
                basis: None,
            });
            history.fold(JobReleased {
                job: job_of(number),
                turn: None,
                passed_over: Vec::new(),
                basis: None,
            });
        }
        history
    }

    fn fold(&mut self, event: impl Into<Event>) {
        let event = event.into();
        self.log.push(format!("{event:?}"));
        self.given.fold(event);
    }

    fn join(&mut self, number: u8) {
        let name = node_of(number);
        if !self.lost.remove(&name) {
            return;
        }
        let last = self.agents.entry(name.clone()).or_default();
        *last += 1;
        let incarnation = *last;
        let was_there = incarnation > 1;
        self.fold(joined(name.clone(), incarnation));
        if was_there {
            let last_seen = self.given.now;
            self.fold(NodeRecovered {
                node: name,
                last_seen,
                basis: None,
            });
        }
    }

    /// Acts as the placer.
    fn place(&mut self, number: u8, on: u8) {
        let (id, name) = (job_of(number), node_of(on));
        let Some(job) = self.given.state.jobs.get(&id) else {
            return;
        };
        if job.cancel_requested.is_some() || !self.given.state.nodes.is_usable(&name) {
            return;
        }
        let others = self
            .given
            .state
            .jobs
            .iter()
            .filter(|(other, _)| **other != id);
        let places = others.flat_map(|(_, job)| job.assignment.iter());
        let taken = places.flat_map(|it| it.places.values());
        if taken.filter(|place| place.node == name).count() + 2 > ROOM {
            return;
        }
        let last = job.last_incarnation.0;
        let assigned = job.assignment.as_ref().map_or(0, |it| it.incarnation.0);
        self.epoch += 1;
        let create = [0, 1].map(|rank| PlacedContainer {
            job: id.clone(),
            incarnation: Incarnation(last.max(assigned) + 1),
            rank: Rank(rank),
            node: name.clone(),
            gpus: Vec::new(),
            port: 0,
        });
        self.fold(PlacementDecided {
            epoch: Epoch(self.epoch),
            create: create.into(),
            remove: Vec::new(),
            basis: None,
        });
    }

    fn pick(&self, number: usize) -> Option<(ContainerId, NodeId, bool)> {
        let at = number.checked_rem(self.live.len())?;
        let (id, (node, runs)) = self.live.iter().nth(at)?;
        Some((id.clone(), node.clone(), *runs))
    }

    fn starts(&mut self, number: usize) {
        if let Some((id, node, false)) = self.pick(number) {
            self.live.insert(id.clone(), (node.clone(), true));
            self.fold(ContainerStarted {
                container: id,
                node,
                pid: 0,
            });
        }
    }

    fn exits(&mut self, number: usize, code: Option<i32>) {
        let Some((id, node, runs)) = self.pick(number) else {
            return;
        };
        // Unstarted containers have no code.
        let code = code.filter(|_| runs);
        if code.is_some_and(|code| code != 0) {
            self.blamed.insert(id.job.clone());
        }
        self.live.remove(&id);
        self.fold(ContainerExited {
            container: id,
            node,
            exit_code: code,
            signal: None,
            out_of_memory: false,
            reason: None,
            evicted: code.is_none(),
        });
    }

    fn lose(&mut self, number: u8) {
        let name = node_of(number);
        if self.lost.insert(name.clone()) {
            self.live.retain(|_, (at, _)| *at != name);
            self.fold(NodeLost {
                incarnation: self.agents[&name],
                last_seen: self.given.now,
                node: name,
            });
        }
    }

    fn saves(&mut self, number: u8, well: bool) {
        let id = job_of(number);
        let coordinator = self
            .live
            .iter()
            .find(|(it, _)| it.job == id && it.rank == Rank(0));
        let Some((coordinator, (node, _))) = coordinator.map(|(id, at)| (id.clone(), at.clone()))
        else {
            return;
        };
        if well {
            self.fold(CheckpointSaved {
                job: id,
                incarnation: coordinator.incarnation,
                node,
                uri: format!("file:///{}", coordinator.incarnation),
                step: 1,
                bytes: 1,
                duration_ms: 1,
            })
        } else {
            self.fold(CheckpointFailed {
                job: id,
                incarnation: coordinator.incarnation,
                node,
                reason: "the disk is full".to_owned(),
            })
        }
    }

    fn progresses(&mut self, number: u8) {
        let id = job_of(number);
        let coordinator = self
            .live
            .iter()
            .find(|(it, (_, runs))| it.job == id && *runs);
        let Some((coordinator, (node, _))) = coordinator.map(|(id, at)| (id.clone(), at.clone()))
        else {
            return;
        };
        self.fold(Progress {
            job: id,
            incarnation: coordinator.incarnation,
            node,
            step: 1,
            steps_total: 10,
            containers: 2,
            metrics: Default::default(),
        });
    }

    fn passes(&mut self, seconds: u64) {
        self.given.pass(seconds);
        if seconds > 0 {
            // An unstarted gang may time out.
            self.blamed
                .extend(self.live.keys().map(|id| id.job.clone()));
        }
    }

    /// Appends due events; reports whether any were due.
    fn decides(&mut self) -> bool {
        for step in 0..MOST_STEPS {
            let proposals = self.given.decide().proposals;
            if proposals.is_empty() {
                return step > 0;
            }
            for proposal in proposals {
                self.asked(&proposal.event);
                self.fold(proposal.event);
            }
        }
        panic!("it never comes to rest");
    }

    fn asked(&mut self, event: &Event) {
        let is_live =
            |live: &BTreeMap<ContainerId, _>, id: &JobId| live.keys().any(|it| it.job == *id);
        match event {
            Event::PartitionStartRequested(it) => {
                assert!(!is_live(&self.live, &it.job), "{} runs twice", it.job);
                let job = &self.given.state.jobs[&it.job];
                let assigned = job.assignment.as_ref().expect("it has places");
                assert_eq!(assigned.incarnation, it.incarnation);
                for (rank, place) in &assigned.places {
                    let id = ContainerId {
                        job: it.job.clone(),
                        incarnation: it.incarnation,
                        rank: *rank,
                    };
                    assert!(
                        !self.lost.contains(&place.node),
                        "{id} starts on a lost node"
                    );
                    self.live.insert(id, (place.node.clone(), false));
                }
                for number in 0..3 {
                    let here = self.live.values().filter(|(at, _)| *at == node_of(number));
                    assert!(here.count() <= ROOM, "n{number} holds more than it has");
                }
            }
            Event::JobCompleted(it) => {
                assert!(!is_live(&self.live, &it.job), "{} runs on", it.job);
            }
            Event::JobFailed(it) => {
                assert!(!is_live(&self.live, &it.job), "{} runs on", it.job);
                assert!(self.blamed.contains(&it.job), "{} has done nothing", it.job);
            }
            Event::JobCancelled(it) => {
                assert!(!is_live(&self.live, &it.job), "{} runs on", it.job);
            }
            _ => {}
        }
    }

    fn happens(&mut self, happens: &Happens) {
        match *happens {
            Happens::Decides => drop(self.decides()),
            Happens::Starts(number) => self.starts(number),
            Happens::Exits(number, code) => self.exits(number, Some(code)),
            Happens::Evicted(number) => self.exits(number, None),
            Happens::Lost(number) => self.lose(number),
            Happens::Joins(number) => self.join(number),
            Happens::Drained(number) => self.fold(NodeDrained {
                node: node_of(number),
                reason: None,
                deadline_s: None,
            }),
            Happens::Placed(job, on) => self.place(job, on),
            Happens::Cancelled(number) => {
                let id = job_of(number);
                if self.given.state.jobs.contains_key(&id) {
                    self.fold(JobCancelRequested {
                        job: id,
                        ingress_sequence: 9,
                        by: None,
                        basis: None,
                    });
                }
            }
            Happens::Saves(number, well) => self.saves(number, well),
            Happens::Progresses(number) => self.progresses(number),
            Happens::Passes(seconds) => self.passes(seconds),
        }
    }

    fn ends(&mut self) {
        for number in 0..3 {
            self.join(number);
            self.fold(NodeRestored {
                node: node_of(number),
            });
        }
        for _ in 0..50 {
            self.decides();
            if self.given.state.jobs.is_empty() {
                return;
            }
            (0..8).for_each(|number| self.starts(number));
            self.decides();
            for number in 0..2 {
                let job = self.given.state.jobs.get(&job_of(number));
                if job.is_some_and(|job| job.partition.is_none()) {
                    self.place(number, number);
                }
            }
            while !self.live.is_empty() {
                self.starts(0);
                self.exits(0, Some(0));
            }
            self.passes(200);
        }
        panic!("these never end: {:?}", self.given.state.jobs);
    }
}

/// Prints the log on a panic.
struct Told<'a>(&'a mut History);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0.log.join("\n"));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn whatever_happens_nothing_runs_twice_and_every_job_ends(
        mode in prop_oneof![Just("exit"), Just("continue"), Just("none")],
        happens in prop::collection::vec(happens(), 0..60),
    ) {
        let mut history = History::new(mode);
        let told = Told(&mut history);
        for it in &happens {
            told.0.happens(it);
        }
        told.0.ends();
    }
}
