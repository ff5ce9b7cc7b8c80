//! A history, event by event, for the placer to decide on.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::*;
use dormouse_messages::ids::ContainerId;
use dormouse_messages::job::{Command, Containers, JobSpec};
use dormouse_messages::{
    Decider, Envelope, Epoch, Event, Fold, Incarnation, JobId, NodeId, Rank, Recorded, Sequence,
    Timestamp,
};
use dormouse_placer::Placer;
use dormouse_state::ClusterState;

/// Containers by node.
pub type Counts<'a> = &'a [(&'a str, u32)];

#[derive(Default)]
pub struct Given {
    pub state: ClusterState,
    pub events: u64,
    pub seconds: i64,
}

pub fn node(name: &str) -> NodeId {
    name.parse().expect("valid")
}

pub fn job(name: &str) -> JobId {
    name.parse().expect("valid")
}

pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

pub fn spec(id: &JobId) -> JobSpec {
    JobSpec {
        name: id.name().to_owned(),
        tenant: id.tenant().to_owned(),
        command: Command {
            start: vec!["train".to_owned()],
            resume: Vec::new(),
        },
        demand: "cpu=2".parse().expect("amounts"),
        weight: 1,
        containers: Containers::between(1, 1),
        ..JobSpec::default()
    }
}

impl Given {
    /// Each node holds two containers.
    pub fn nodes() -> Self {
        let mut given = Self::default();
        for name in ["n0", "n1"] {
            given.joins(name, 1, &[]);
        }
        given
    }

    /// The node holds two containers.
    pub fn joins(&mut self, name: &str, incarnation: u64, labels: &[(&str, &str)]) {
        let label = |(label, value): &(&str, &str)| ((*label).to_owned(), (*value).to_owned());
        self.push(NodeJoined {
            node: node(name),
            capacity: "cpu=4".parse().expect("amounts"),
            labels: labels.iter().map(label).collect(),
            gpus: Vec::new(),
            incarnation,
            running: Vec::new(),
            address: String::new(),
            runtime: "process".to_owned(),
            taints: Default::default(),
        });
    }

    pub fn released(&mut self, spec: JobSpec) {
        let id: JobId = format!("{}/{}", spec.tenant, spec.name)
            .parse()
            .expect("valid");
        self.push(JobAdmitted {
            job: id.clone(),
            spec,
            ingress_sequence: self.events,
            by: None,
            basis: None,
        });
        self.push(JobReleased {
            job: id,
            turn: None,
            passed_over: Vec::new(),
            basis: None,
        });
    }

    pub fn push(&mut self, event: impl Into<Event>) {
        self.push_stamped(event, 0);
    }

    /// The broker's clock is ahead.
    pub fn push_stamped(&mut self, event: impl Into<Event>, ahead_s: i64) {
        let event = event.into();
        self.events += 1;
        self.seconds += 1;
        let (time, writer) = (at(self.seconds), event.writers()[0]);
        self.state.evolve(&Recorded {
            sequence: Sequence(self.events),
            stored_at: at(self.seconds + ahead_s),
            writer,
            envelope: Envelope::new(self.events.to_string(), writer, time, None, event),
        });
        self.state.check_invariants().expect("invariants hold");
    }

    pub fn placed(&mut self, id: &str, on: &str) {
        self.released(spec(&job(id)));
        self.create(id, on, 1);
    }

    pub fn create(&mut self, id: &str, on: &str, incarnation: u32) {
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

    /// Ranks follow the order of the nodes.
    pub fn stands(&mut self, spec: JobSpec, on: &[&str]) -> JobId {
        let id: JobId = format!("{}/{}", spec.tenant, spec.name)
            .parse()
            .expect("valid");
        self.released(spec);
        let places = (0..).map(Rank).zip(on);
        let create = places.map(|(rank, on)| PlacedContainer {
            job: id.clone(),
            incarnation: Incarnation(1),
            rank,
            node: node(on),
            gpus: Vec::new(),
            port: 0,
        });
        self.push(PlacementDecided {
            epoch: Epoch(0),
            create: create.collect(),
            remove: Vec::new(),
            basis: None,
        });
        id
    }

    /// Ranks follow the order of the nodes.
    pub fn runs(&mut self, spec: JobSpec, on: &[&str]) {
        let id = self.stands(spec, on);
        let containers = u32::try_from(on.len()).expect("few");
        self.push(PartitionStartRequested {
            job: id.clone(),
            epoch: Epoch(0),
            incarnation: Incarnation(1),
            containers,
            resumed_from: None,
            basis: None,
        });
        for (rank, on) in (0..).map(Rank).zip(on) {
            self.push(ContainerStarted {
                container: ContainerId {
                    job: id.clone(),
                    incarnation: Incarnation(1),
                    rank,
                },
                node: node(on),
                pid: 0,
            });
        }
        self.push(PartitionStarted {
            job: id,
            epoch: Epoch(0),
            incarnation: Incarnation(1),
            containers,
            resumed_from: None,
            basis: None,
        });
    }

    /// Takes each job's workers by node.
    pub fn allocated(&mut self, jobs: &[(&str, Counts<'_>)]) {
        let jobs: Vec<_> = jobs.iter().map(|(id, on)| (*id, *on, &[][..])).collect();
        self.allocated_with_servers(&jobs);
    }

    /// Takes each job's workers and servers by node.
    pub fn allocated_with_servers(&mut self, jobs: &[(&str, Counts<'_>, Counts<'_>)]) {
        let counts = |on: &[(&str, u32)]| -> BTreeMap<NodeId, u32> {
            on.iter()
                .map(|(name, count)| (node(name), *count))
                .collect()
        };
        let jobs = jobs.iter().map(|(id, workers, servers)| JobAllocation {
            job: job(id),
            containers: workers.iter().chain(*servers).map(|(_, count)| count).sum(),
            nodes: NodeContainers::of(None, &counts(workers))
                .chain(NodeContainers::of(Some("ps"), &counts(servers)))
                .collect(),
            previous: 0,
            new: false,
            share: 0.0,
            fair_share: 0.0,
            made_for: None,
        });
        self.push(AllocationDecided {
            epoch: self.state.allocation.epoch.next(),
            jobs: jobs.collect(),
            outcome: Outcome::default(),
            basis: None,
        });
    }

    /// The start fails because of the node.
    pub fn faults(&mut self, id: &str, on: &str, incarnation: u32, fault: NodeFault) {
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

    pub fn decided(&self) -> (Vec<Event>, Option<Timestamp>) {
        let decision = Placer.decide(&self.state, at(self.seconds));
        let events = decision.proposals.into_iter().map(|it| it.event);
        (events.collect(), decision.next_wake)
    }

    pub fn quarantined(&self) -> BTreeSet<NodeId> {
        let (events, _) = self.decided();
        let nodes = events.iter().filter_map(|event| match event {
            Event::NodeQuarantined(event) => Some(event.node.clone()),
            _ => None,
        });
        nodes.collect()
    }
}
