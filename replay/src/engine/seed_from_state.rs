//! Retells a state as events that could have led to it, so that agents can begin in the middle of a log.
//! Work counts from there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dormouse_messages::events::{
    CheckpointRequested, ContainerExited, ContainerStarted, Gpu, JobAdmitted, NodeJoined,
    PartitionStartRequested, PartitionStopRequested, PlacedContainer, PlacementDecided,
};
use dormouse_messages::job::JobSpec;
use dormouse_messages::roles::RoleSpec;
use dormouse_messages::service::{Resize, ResizeMode, Service};
use dormouse_messages::{
    Envelope, Event, Incarnation, JobId, Rank, Recorded, Sequence, Timestamp, Writer,
};
use dormouse_state::{
    ClusterState, ContainerPhase, Job, Partition, PartitionContainer, PartitionPhase, Place,
};

use super::agents::ModelAgents;
use super::faults::Faults;
use super::incarnation::container_id;
use super::model::ModelJob;
use super::simulated::Simulated;

impl ModelAgents {
    /// Begins at a folded state.
    pub fn starting_from(&mut self, cluster: &ClusterState, now: Timestamp) {
        let mut told = Told {
            agents: self,
            last: Sequence(0),
            now,
        };
        for (node, known) in cluster.nodes.iter() {
            if !cluster.nodes.is_lost(node) {
                told.tell(
                    Writer::Node,
                    NodeJoined {
                        node: node.clone(),
                        gpus: Gpu::stand_ins(&known.capacity),
                        capacity: known.capacity.clone(),
                        labels: BTreeMap::new(),
                        incarnation: known.incarnation,
                        running: Vec::new(),
                        address: known.address.clone(),
                        runtime: "model".to_owned(),
                        taints: BTreeSet::new(),
                    },
                );
            }
        }
        for (id, job) in cluster.live() {
            told.job(id, job);
        }
    }
}

struct Told<'a> {
    agents: &'a mut ModelAgents,
    last: Sequence,
    now: Timestamp,
}

impl Told<'_> {
    fn tell(&mut self, writer: Writer, event: impl Into<Event>) {
        self.last = self.last.next();
        let id = format!("{writer}-{}", self.last);
        let recorded = Arc::new(Recorded {
            sequence: self.last,
            stored_at: self.now,
            writer,
            envelope: Envelope::new(id, writer, self.now, None, event.into()),
        });
        self.agents.observe(&recorded, self.now);
        self.agents.fold(&recorded, self.now, &mut Faults::none());
    }

    fn place<'a>(
        &mut self,
        id: &JobId,
        incarnation: Incarnation,
        places: impl Iterator<Item = (&'a Rank, &'a Place)>,
    ) {
        let create = places.map(|(rank, place)| PlacedContainer {
            job: id.clone(),
            incarnation,
            rank: *rank,
            node: place.node.clone(),
            gpus: place.gpus.clone(),
            port: place.port,
        });
        let placed = PlacementDecided {
            epoch: Default::default(),
            create: create.collect(),
            remove: Vec::new(),
            basis: None,
        };
        if !placed.create.is_empty() {
            self.tell(Writer::Placer, placed);
        }
    }

    fn job(&mut self, id: &JobId, job: &Job) {
        let model = self.agents.models.remove(id);
        let admitted = JobAdmitted {
            job: id.clone(),
            spec: specification(id, job),
            ingress_sequence: 0,
            by: None,
            basis: None,
        };
        self.tell(Writer::Admission, admitted);
        let model = model.unwrap_or_else(|| ModelJob::linear(f64::INFINITY));
        let tasks = job.tasks.as_ref().map(|tasks| tasks.remaining());
        let simulated = Simulated {
            auxiliary: job.auxiliary.count(),
            ..Simulated::of(model, job.mode, job.in_place, job.is_served(), tasks)
        };
        self.agents.jobs.insert(id.clone(), simulated);
        let begun = job.partition.as_ref();
        if let Some(partition) = begun {
            self.partition(id, partition);
        }
        let known = |incarnation: Incarnation, rank: &Rank| {
            begun
                .is_some_and(|it| it.incarnation == incarnation && it.containers.contains_key(rank))
        };
        for (incarnation, places) in &job.superseded {
            let places = places.iter().filter(|(rank, _)| !known(*incarnation, rank));
            self.place(id, *incarnation, places);
        }
        if let Some(assigned) = &job.assignment {
            let incarnation = assigned.incarnation;
            let places = assigned.places.iter();
            self.place(
                id,
                incarnation,
                places.filter(|(rank, _)| !known(incarnation, rank)),
            );
        }
    }

    fn partition(&mut self, id: &JobId, partition: &Partition) {
        let containers = partition.containers.iter();
        let places = containers.map(|(rank, it)| (rank, &it.place));
        self.place(id, partition.incarnation, places);
        let count = u32::try_from(partition.containers.len()).unwrap_or(u32::MAX);
        let start = PartitionStartRequested {
            job: id.clone(),
            epoch: partition.epoch,
            incarnation: partition.incarnation,
            containers: count,
            resumed_from: partition.resumed_from.clone(),
            basis: None,
        };
        self.tell(Writer::Checkpointer, start);
        for (rank, container) in &partition.containers {
            self.container(id, partition.incarnation, *rank, container);
        }
        match &partition.phase {
            PartitionPhase::Starting | PartitionPhase::Running => {}
            PartitionPhase::Saving { .. } => {
                let asked = CheckpointRequested {
                    job: id.clone(),
                    epoch: partition.epoch,
                    incarnation: partition.incarnation,
                    basis: None,
                };
                self.tell(Writer::Checkpointer, asked);
            }
            PartitionPhase::Stopping { reason, .. } => {
                let stop = PartitionStopRequested {
                    job: id.clone(),
                    epoch: partition.epoch,
                    incarnation: partition.incarnation,
                    containers: count,
                    reason: *reason,
                    grace_s: None,
                    basis: None,
                };
                self.tell(Writer::Checkpointer, stop);
            }
        }
    }

    fn container(
        &mut self,
        id: &JobId,
        incarnation: Incarnation,
        rank: Rank,
        container: &PartitionContainer,
    ) {
        let name = container_id(&(id.clone(), incarnation), rank);
        match &container.phase {
            ContainerPhase::Requested | ContainerPhase::Lost { .. } => {}
            ContainerPhase::Started => {
                let started = ContainerStarted {
                    container: name,
                    node: container.place.node.clone(),
                    pid: 0,
                };
                self.tell(Writer::Node, started);
            }
            ContainerPhase::Exited {
                success, evicted, ..
            } => {
                let exited = ContainerExited {
                    container: name,
                    node: container.place.node.clone(),
                    exit_code: Some(i32::from(!success)),
                    signal: None,
                    out_of_memory: false,
                    reason: None,
                    evicted: *evicted,
                };
                self.tell(Writer::Node, exited);
            }
        }
    }
}

fn specification(id: &JobId, job: &Job) -> JobSpec {
    let roles = job.auxiliary.parts().iter().map(|part| {
        let role = RoleSpec {
            count: part.count,
            demand: part.demand.clone(),
            command: None,
            env: BTreeMap::new(),
            constraints: Some(part.needs.constraints.clone()),
        };
        (part.role.clone(), role)
    });
    JobSpec {
        name: id.name().to_owned(),
        tenant: id.tenant().to_owned(),
        demand: job.demand.clone(),
        weight: job.weight,
        containers: job.containers,
        success: job.success,
        retries: job.retries,
        resize: Resize {
            mode: if job.in_place {
                ResizeMode::InPlace
            } else {
                ResizeMode::default()
            },
            ..Resize::default()
        },
        service: job.is_served().then(Service::default),
        roles: roles.collect(),
        ..JobSpec::default()
    }
}
