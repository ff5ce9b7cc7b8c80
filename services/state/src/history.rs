//! Event histories of a small cluster for tests, one event a second.
#![allow(missing_docs, reason = "for tests only; the names say it")]

use std::collections::BTreeMap;

use dormouse_messages::events::*;
use dormouse_messages::ids::ContainerId;
use dormouse_messages::job::{Command, Containers, Executor, JobSpec};
use dormouse_messages::service::ResizeMode;
use dormouse_messages::{
    Body, Envelope, Epoch, Event, Fold, Incarnation, JobId, NodeId, Rank, Recorded, Sequence,
    Timestamp, Writer,
};

/// A log in the making, for tests.
#[derive(Debug, Clone, Default)]
pub struct History {
    pub log: Vec<Recorded>,
    pub seconds: i64,
    /// The skew of the brokers' clock.
    pub broker_off_s: i64,
}

pub fn job(name: &str) -> JobId {
    name.parse().expect("a job id")
}

pub fn node(name: &str) -> NodeId {
    name.parse().expect("a node name")
}

pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros((1_795_255_200 + seconds) * 1_000_000)
}

pub fn spec(id: &JobId) -> JobSpec {
    JobSpec {
        name: id.name().to_owned(),
        tenant: id.tenant().to_owned(),
        executor: Executor::Torch,
        command: Command {
            start: vec!["train".to_owned()],
            resume: Vec::new(),
        },
        demand: "cpu=2,memory=8Gi".parse().expect("amounts"),
        weight: 1,
        containers: Containers::between(1, 8),
        retries: 2,
        ..JobSpec::default()
    }
}

pub fn outcome(waiting: &[(&str, &str)]) -> Outcome {
    let waiting = waiting.iter().map(|(id, reason)| Waiting {
        job: job(id),
        code: "no_room".to_owned(),
        reason: (*reason).to_owned(),
    });
    Outcome {
        waiting: waiting.collect(),
        ..Outcome::default()
    }
}

impl History {
    /// Appends an event a second after the last one.
    pub fn push(&mut self, event: impl Into<Event>) -> &mut Self {
        let event = event.into();
        self.push_by(event.writers()[0], event)
    }

    pub fn push_by(&mut self, writer: Writer, event: impl Into<Event>) -> &mut Self {
        self.seconds += 1;
        let sequence = self.log.len() as u64 + 1;
        let time = at(self.seconds);
        let id = format!("id-{sequence}");
        self.log.push(Recorded {
            sequence: Sequence(sequence),
            stored_at: at(self.seconds + self.broker_off_s),
            writer,
            envelope: Envelope::new(id, writer, time, None, event.into()),
        });
        self
    }

    /// Switches to a broker with this skew; the next event shares the second.
    pub fn step(&mut self, broker_off_s: i64) -> &mut Self {
        self.broker_off_s = broker_off_s;
        self.seconds -= 1;
        self
    }

    /// Folds all and checks the invariants after every event.
    pub fn fold<F: Fold>(&self) -> F {
        let mut state = F::default();
        let mut before = state.clone();
        for (index, recorded) in self.log.iter().enumerate() {
            state.evolve(recorded);
            state.check_invariants().expect("invariants hold");
            state.check_since(&before).expect("invariants hold");
            if index % 3 == 0 {
                before = state.clone();
            }
        }
        state
    }

    pub fn now(&self) -> Timestamp {
        at(self.seconds)
    }

    pub fn join(&mut self, name: &str, incarnation: u64) -> &mut Self {
        self.join_with(name, incarnation, "cpu=8,memory=32Gi")
    }

    pub fn join_with(&mut self, name: &str, incarnation: u64, capacity: &str) -> &mut Self {
        self.push(NodeJoined {
            node: node(name),
            capacity: capacity.parse().expect("amounts"),
            labels: BTreeMap::new(),
            gpus: Vec::new(),
            incarnation,
            running: Vec::new(),
            address: "10.0.0.1".to_owned(),
            runtime: "process".to_owned(),
            taints: Default::default(),
        })
    }

    pub fn submit(&mut self, id: &str) -> &mut Self {
        let id = job(id);
        let ingress_sequence = self.log.len() as u64 + 1000;
        self.push(SubmissionReceived {
            ingress_sequence,
            tenant: id.tenant().to_owned(),
            verb: "submit".to_owned(),
            content_type: "application/json".to_owned(),
            bytes: 2,
            sha256: String::new(),
            raw: "{}".to_owned(),
            raw_encoding: RawEncoding::Utf8,
            published_at: at(self.seconds),
            by: None,
        });
        let spec = spec(&id);
        self.push(JobAdmitted {
            job: id,
            spec,
            ingress_sequence,
            by: None,
            basis: None,
        })
    }

    pub fn admit_in_place(&mut self, id: &str) -> &mut Self {
        self.submit(id);
        let last = self.log.last_mut().expect("just pushed");
        if let Body::Event(Event::JobAdmitted(event)) = &mut last.envelope.body {
            event.spec.resize.mode = ResizeMode::InPlace;
        }
        self
    }

    pub fn release(&mut self, id: &str) -> &mut Self {
        self.push(JobReleased {
            job: job(id),
            turn: None,
            passed_over: Vec::new(),
            basis: None,
        })
    }

    /// Takes `(job, previous, containers)`.
    pub fn allocate(
        &mut self,
        epoch: u64,
        jobs: &[(&str, u32, u32)],
        waiting: &[(&str, &str)],
    ) -> &mut Self {
        let share = |containers: u32| f64::from(containers) / 8.0;
        let jobs = jobs.iter().map(|(id, previous, containers)| JobAllocation {
            job: job(id),
            containers: *containers,
            nodes: Vec::new(),
            previous: *previous,
            new: *previous == 0,
            share: share(*containers),
            fair_share: 0.5,
            made_for: None,
        });
        let jobs: Vec<_> = jobs.collect();
        let adjusted = jobs.iter().filter(|j| !j.new && j.previous != j.containers);
        let total: f64 = jobs.iter().map(|j| j.share).sum();
        let mut outcome = outcome(waiting);
        outcome.adjusted_jobs = u32::try_from(adjusted.count()).expect("few");
        outcome.utilization.total = total;
        outcome
            .utilization
            .resources
            .insert("cpu".to_owned(), total);
        outcome.fairness_loss = 0.1;
        outcome.fairness_loss_bound = 1.0;
        self.push(AllocationDecided {
            epoch: Epoch(epoch),
            jobs,
            outcome,
            basis: None,
        })
    }

    /// Takes waiting jobs with their containers by node.
    pub fn allocate_on(&mut self, epoch: u64, jobs: &[(&str, &[(&str, u32)])]) -> &mut Self {
        let all = |on: &[(&str, u32)]| on.iter().map(|(_, count)| count).sum();
        let counts: Vec<_> = jobs.iter().map(|(id, on)| (*id, 0, all(on))).collect();
        self.allocate(epoch, &counts, &[]);
        let last = self.log.last_mut().expect("just pushed");
        if let Body::Event(Event::AllocationDecided(event)) = &mut last.envelope.body {
            for (allocated, (_, on)) in event.jobs.iter_mut().zip(jobs) {
                let on = on.iter().map(|(name, count)| (node(name), *count));
                allocated.nodes = NodeContainers::of(None, &on.collect()).collect();
            }
        }
        self
    }

    /// Places a whole gang by `(node, containers)`.
    pub fn place(
        &mut self,
        epoch: u64,
        id: &str,
        incarnation: u32,
        on: &[(&str, u32)],
    ) -> &mut Self {
        let places = on
            .iter()
            .flat_map(|(name, count)| (0..*count).map(move |_| *name));
        let create = places.enumerate().map(|(rank, name)| PlacedContainer {
            job: job(id),
            incarnation: Incarnation(incarnation),
            rank: Rank(u32::try_from(rank).expect("few")),
            node: node(name),
            gpus: Vec::new(),
            port: 0,
        });
        let create = create.collect();
        self.push(PlacementDecided {
            epoch: Epoch(epoch),
            create,
            remove: Vec::new(),
            basis: None,
        })
    }

    /// Takes `(rank, node)` of joining and leaving containers.
    pub fn place_more(
        &mut self,
        epoch: u64,
        id: &str,
        incarnation: u32,
        create: &[(u32, &str)],
        remove: &[(u32, &str)],
    ) -> &mut Self {
        let created = create.iter().map(|(rank, name)| PlacedContainer {
            job: job(id),
            incarnation: Incarnation(incarnation),
            rank: Rank(*rank),
            node: node(name),
            gpus: Vec::new(),
            port: 0,
        });
        let removed = remove.iter().map(|(rank, name)| RemovedContainer {
            job: job(id),
            incarnation: Incarnation(incarnation),
            rank: Rank(*rank),
            node: node(name),
        });
        let (create, remove) = (created.collect(), removed.collect());
        self.push(PlacementDecided {
            epoch: Epoch(epoch),
            create,
            remove,
            basis: None,
        })
    }

    pub fn request_resize(
        &mut self,
        epoch: u64,
        id: &str,
        incarnation: u32,
        join: &[u32],
        leave: &[u32],
    ) -> &mut Self {
        let ranks = |of: &[u32]| of.iter().copied().map(Rank).collect();
        self.push(PartitionResizeRequested {
            job: job(id),
            epoch: Epoch(epoch),
            incarnation: Incarnation(incarnation),
            generation: 1,
            join: ranks(join),
            leave: ranks(leave),
            stay: Vec::new(),
            grace_s: 10,
            cause: ResizeCause::Adjusted,
            made_for: None,
            basis: None,
        })
    }

    pub fn resized(
        &mut self,
        epoch: u64,
        id: &str,
        incarnation: u32,
        members: &[u32],
    ) -> &mut Self {
        self.push(PartitionResized {
            job: job(id),
            epoch: Epoch(epoch),
            incarnation: Incarnation(incarnation),
            generation: 1,
            containers: u32::try_from(members.len()).expect("few"),
            members: members.iter().copied().map(Rank).collect(),
            cause: ResizeCause::Adjusted,
            basis: None,
        })
    }

    pub fn request_start(
        &mut self,
        epoch: u64,
        id: &str,
        incarnation: u32,
        containers: u32,
    ) -> &mut Self {
        self.push(PartitionStartRequested {
            job: job(id),
            epoch: Epoch(epoch),
            incarnation: Incarnation(incarnation),
            containers,
            resumed_from: (incarnation > 1).then(|| format!("ckpt/{}", incarnation - 1)),
            basis: None,
        })
    }

    pub fn container_started(
        &mut self,
        id: &str,
        incarnation: u32,
        rank: u32,
        on: &str,
    ) -> &mut Self {
        self.push(ContainerStarted {
            container: container(id, incarnation, rank),
            node: node(on),
            pid: 1,
        })
    }

    pub fn container_exited(
        &mut self,
        id: &str,
        incarnation: u32,
        rank: u32,
        on: &str,
        exit_code: Option<i32>,
    ) -> &mut Self {
        self.push(ContainerExited {
            container: container(id, incarnation, rank),
            node: node(on),
            exit_code,
            signal: exit_code.is_none().then_some(9),
            out_of_memory: false,
            reason: None,
            evicted: false,
        })
    }

    pub fn started(
        &mut self,
        epoch: u64,
        id: &str,
        incarnation: u32,
        containers: u32,
    ) -> &mut Self {
        self.push(PartitionStarted {
            job: job(id),
            epoch: Epoch(epoch),
            incarnation: Incarnation(incarnation),
            containers,
            resumed_from: None,
            basis: None,
        })
    }

    pub fn request_checkpoint(&mut self, epoch: u64, id: &str, incarnation: u32) -> &mut Self {
        self.push(CheckpointRequested {
            job: job(id),
            epoch: Epoch(epoch),
            incarnation: Incarnation(incarnation),
            basis: None,
        })
    }

    pub fn saved(&mut self, id: &str, incarnation: u32, step: u64) -> &mut Self {
        self.push(CheckpointSaved {
            job: job(id),
            incarnation: Incarnation(incarnation),
            node: node("n0"),
            uri: format!("ckpt/{incarnation}"),
            step,
            bytes: 1 << 20,
            duration_ms: 900,
        })
    }

    pub fn stopped(
        &mut self,
        epoch: u64,
        id: &str,
        incarnation: u32,
        reason: StopReason,
    ) -> &mut Self {
        self.push(PartitionStopped {
            job: job(id),
            epoch: Epoch(epoch),
            incarnation: Incarnation(incarnation),
            containers: 1,
            reason,
            attempts: u32::from(reason == StopReason::Failed),
            basis: None,
        })
    }

    pub fn complete(&mut self, id: &str) -> &mut Self {
        self.push(JobCompleted {
            job: job(id),
            reason: "every container exited with 0".to_owned(),
            attempts: 0,
            #[cfg(feature = "test-format")]
            format: None,
            basis: None,
        })
    }

    pub fn progress(&mut self, id: &str, incarnation: u32, step: u64, accuracy: f64) -> &mut Self {
        self.push(Progress {
            job: job(id),
            incarnation: Incarnation(incarnation),
            node: node("n0"),
            step,
            steps_total: 500,
            containers: 1,
            metrics: BTreeMap::from([
                ("accuracy".to_owned(), accuracy),
                ("loss".to_owned(), 1.0 - accuracy),
            ]),
        })
    }

    /// Takes a job from submission to a running partition on `n0`, in epoch 1.
    pub fn run(&mut self, id: &str, containers: u32) -> &mut Self {
        self.submit(id)
            .release(id)
            .allocate(1, &[(id, 0, containers)], &[])
            .place(1, id, 1, &[("n0", containers)])
            .request_start(1, id, 1, containers);
        for rank in 0..containers {
            self.container_started(id, 1, rank, "n0");
        }
        self.started(1, id, 1, containers)
    }
}

fn container(id: &str, incarnation: u32, rank: u32) -> ContainerId {
    ContainerId {
        job: job(id),
        incarnation: Incarnation(incarnation),
        rank: Rank(rank),
    }
}
