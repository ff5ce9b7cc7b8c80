//! How each event changes what the log wants of the node.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{
    CHECKPOINTS_RESUMABLE, CheckpointFailed, CheckpointRequested, CheckpointSaved, NodeJoined,
    NodeLost, PartitionStartRequested, PartitionStopRequested, PlacementDecided, Progress,
    TasksAssigned, TasksEnded,
};
use dormouse_messages::{ContainerId, Event, Incarnation, JobId, NodeId, Sequence};

use super::{AgentState, Known, Partition, Phase, Place, Start};

/// Placements that were never started are kept up to this many: a start may follow a placement
/// that a newer one has already replaced. As many as the services keep: the newest and four before.
const PLACEMENTS_KEPT: usize = 5;

impl AgentState {
    fn is_here(&self, node: &NodeId) -> bool {
        self.node.as_ref() == Some(node)
    }

    fn partition_mut(&mut self, job: &JobId, incarnation: Incarnation) -> Option<&mut Partition> {
        self.jobs.get_mut(job)?.partitions.get_mut(&incarnation)
    }

    fn joined(&mut self, event: &NodeJoined) {
        self.addresses
            .insert(event.node.clone(), event.address.clone());
        if self.is_here(&event.node) {
            self.life = self.life.max(event.incarnation);
        }
    }

    fn lost(&mut self, event: &NodeLost) {
        if !self.is_here(&event.node) || event.incarnation < self.life {
            return;
        }
        self.lost = self.lost.max(Some(event.incarnation));
        for id in &self.here {
            let job = self.jobs.get_mut(id).into_iter();
            for partition in job.flat_map(|job| job.partitions.values_mut()) {
                if partition.phase != Phase::Placed {
                    partition.void = true;
                }
            }
        }
    }

    fn placed(&mut self, event: &PlacementDecided) {
        let ours: BTreeSet<_> = event
            .create
            .iter()
            .filter(|place| self.is_here(&place.node))
            .map(|place| (&place.job, place.incarnation))
            .collect();
        let mut gangs: BTreeMap<_, Partition> = BTreeMap::new();
        for place in &event.create {
            if !ours.contains(&(&place.job, place.incarnation)) {
                continue;
            }
            let partition = gangs.entry((&place.job, place.incarnation)).or_default();
            if self.is_here(&place.node) {
                partition.here.insert(place.rank, Known::Nothing);
            }
            let member = Place {
                node: place.node.clone(),
                gpus: place.gpus.clone(),
                port: place.port,
            };
            partition.gang.insert(place.rank, member);
        }
        for ((job, incarnation), partition) in gangs {
            let entry = self.jobs.entry(job.clone()).or_default();
            entry.partitions.entry(incarnation).or_insert(partition);
            self.here.insert(job.clone());
            self.prune(job);
        }
    }

    fn start(&mut self, event: &PartitionStartRequested, sequence: Sequence) {
        let Some(job) = self.jobs.get_mut(&event.job) else {
            return;
        };
        job.newest = job.newest.max(event.incarnation);
        // Asked while this node counts as lost: whoever asked had not seen the loss yet, and
        // everyone who folds the log takes the container for lost.
        let lost = self.lost.is_some_and(|lost| lost >= self.life);
        if let Some(partition) = job.partitions.get_mut(&event.incarnation)
            && partition.phase == Phase::Placed
        {
            let resumed_from = event.resumed_from.clone().filter(|uri| !uri.is_empty());
            partition.phase = Phase::Run(Start {
                sequence,
                resumed_from,
            });
            partition.void = lost;
        }
        self.prune(&event.job);
    }

    fn stop(&mut self, event: &PartitionStopRequested, sequence: Sequence) {
        let Some(partition) = self.partition_mut(&event.job, event.incarnation) else {
            return;
        };
        if let Phase::Run(start) = &partition.phase {
            partition.phase = Phase::Stop(start.clone(), sequence);
            partition.stop_grace_s = event.grace_s;
        }
    }

    fn save(&mut self, event: &CheckpointRequested, sequence: Sequence) {
        if let Some(partition) = self.partition_mut(&event.job, event.incarnation) {
            partition.save = Some(sequence);
        }
    }

    fn saved(&mut self, event: &CheckpointSaved) {
        if let Some(job) = self.jobs.get_mut(&event.job) {
            job.resumable.retain(|uri| *uri != event.uri);
            job.resumable.insert(0, event.uri.clone());
            job.resumable.truncate(CHECKPOINTS_RESUMABLE);
        }
        if let Some(partition) = self.partition_mut(&event.job, event.incarnation) {
            partition.save = None;
            partition.saved = Some((event.step, event.bytes));
        }
    }

    fn save_failed(&mut self, event: &CheckpointFailed) {
        if let Some(partition) = self.partition_mut(&event.job, event.incarnation) {
            partition.save = None;
        }
    }

    fn progress(&mut self, event: &Progress) {
        if let Some(partition) = self.partition_mut(&event.job, event.incarnation) {
            partition.step = Some(event.step);
        }
    }

    fn give(&mut self, event: &TasksAssigned, sequence: Sequence) {
        let Some(partition) = self.partition_mut(&event.job, event.incarnation) else {
            return;
        };
        for assigned in &event.assigned {
            if partition.here.contains_key(&assigned.rank) {
                let orders = partition.orders.entry(assigned.rank).or_default();
                orders.insert(sequence, assigned.tasks.clone());
            }
        }
    }

    fn tasks_ended(&mut self, event: &TasksEnded) {
        let partition = self.partition_mut(&event.job, event.incarnation);
        let Some(orders) = partition.and_then(|it| it.orders.get_mut(&event.rank)) else {
            return;
        };
        // A task stands in one order of a container at a time: it is given again only after
        // its end was reported.
        for tasks in orders.values_mut() {
            let _ = tasks.take_common(&event.completed);
            for failed in &event.failed {
                tasks.remove(failed.task);
            }
        }
        orders.retain(|_, tasks| !tasks.is_empty());
    }

    fn know(&mut self, container: &ContainerId, known: Known) {
        if let Some(partition) = self.partition_mut(&container.job, container.incarnation)
            && let Some(entry) = partition.here.get_mut(&container.rank)
            && *entry != Known::Exited
        {
            *entry = known;
        }
        if known == Known::Exited {
            self.prune(&container.job);
        }
    }

    fn ended(&mut self, job: &JobId) {
        if let Some(entry) = self.jobs.get_mut(job) {
            entry.ended = true;
        }
        self.prune(job);
    }

    /// Forgets what can no longer ask for anything.
    fn prune(&mut self, id: &JobId) {
        let Some(job) = self.jobs.get_mut(id) else {
            return;
        };
        let (newest, ended) = (job.newest, job.ended);
        job.partitions.retain(|incarnation, partition| {
            if partition.phase == Phase::Placed {
                *incarnation > newest && !ended
            } else {
                partition.here.values().any(|known| *known != Known::Exited)
            }
        });
        let placed: Vec<_> = job
            .partitions
            .iter()
            .filter(|(_, partition)| partition.phase == Phase::Placed)
            .map(|(incarnation, _)| *incarnation)
            .collect();
        for incarnation in placed.iter().rev().skip(PLACEMENTS_KEPT) {
            job.partitions.remove(incarnation);
        }
        if job.partitions.is_empty() {
            self.here.remove(id);
            if ended {
                self.jobs.remove(id);
            }
        }
    }

    pub(super) fn fold(&mut self, event: &Event, sequence: Sequence) {
        match event {
            Event::JobAdmitted(event) => {
                let job = self.jobs.entry(event.job.clone()).or_default();
                job.spec = Some(event.spec.clone());
            }
            Event::NodeJoined(event) => self.joined(event),
            Event::NodeLost(event) => self.lost(event),
            Event::PlacementDecided(event) => self.placed(event),
            Event::PartitionStartRequested(event) => self.start(event, sequence),
            Event::PartitionStopRequested(event) => self.stop(event, sequence),
            Event::CheckpointRequested(event) => self.save(event, sequence),
            Event::CheckpointSaved(event) => self.saved(event),
            Event::CheckpointFailed(event) => self.save_failed(event),
            Event::CheckpointRejected(event) => {
                if let Some(job) = self.jobs.get_mut(&event.job) {
                    job.resumable.retain(|uri| *uri != event.uri);
                }
            }
            Event::Progress(event) => self.progress(event),
            Event::ContainerStarted(event) if self.is_here(&event.node) => {
                self.know(&event.container, Known::Started);
            }
            Event::ContainerExited(event) if self.is_here(&event.node) => {
                self.know(&event.container, Known::Exited);
            }
            Event::TasksAssigned(event) => self.give(event, sequence),
            Event::TasksEnded(event) if self.is_here(&event.node) => self.tasks_ended(event),
            Event::JobCompleted(event) => self.ended(&event.job),
            Event::JobFailed(event) => self.ended(&event.job),
            Event::JobCancelled(event) => self.ended(&event.job),
            _ => {}
        }
    }
}
