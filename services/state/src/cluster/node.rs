//! Agents' events.

use dormouse_messages::events::{
    CheckpointFailed, CheckpointSaved, ContainerExited, ContainerStarted, NodeEvent, NodeJoined,
    Progress, TasksEnded,
};
use dormouse_messages::ids::ContainerId;
use dormouse_messages::policy::Value;
use dormouse_messages::{Incarnation, JobId, Resource};

use super::{ClusterState, partition_phase};
use crate::incarnation::{ContainerPhase, PartitionContainer, PartitionPhase, Readiness};
use crate::job::SavedCheckpoint;
use crate::speed::Workers;

impl ClusterState {
    pub(super) fn evolve_node(&mut self, event: NodeEvent<'_>) {
        match event {
            NodeEvent::NodeJoined(event) => self.joined(event),
            NodeEvent::NodeFenced(event) => {
                // Fenced containers have ended, so no lease is awaited.
                self.lose(&event.node, event.incarnation, self.now);
            }
            NodeEvent::NodeFaulted(event) => {
                self.nodes.faulted(event, self.sequence);
                if let Some(job) = self.jobs.get_mut(&event.job) {
                    job.start_faults.faulted(event);
                }
            }
            NodeEvent::ContainerStarted(event) => self.container_started(event),
            NodeEvent::ContainerReady(event) => self.container(&event.container, |container| {
                container.readiness = Readiness::Ready;
            }),
            NodeEvent::ContainerUnready(event) => {
                let at = self.sequence;
                self.container(&event.container, |container| {
                    container.readiness = Readiness::Unready { at };
                });
            }
            NodeEvent::ContainerExited(event) => self.exited(event),
            NodeEvent::CheckpointSaved(event) => self.saved(event),
            NodeEvent::CheckpointFailed(event) => self.save_failed(event),
            NodeEvent::CheckpointRejected(event) => {
                if let Some(job) = self.jobs.get_mut(&event.job) {
                    job.rejected(&event.uri);
                }
            }
            NodeEvent::Progress(event) => self.progressed(event),
            NodeEvent::TasksEnded(event) => self.tasks_ended(event),
            NodeEvent::MemberAcknowledged(_)
            | NodeEvent::NotebookObserved(_)
            | NodeEvent::ContainerExecStarted(_)
            | NodeEvent::ContainerExecEnded(_)
            | NodeEvent::ContainerGpuUsed(_)
            | NodeEvent::NodeGpuReconciled(_) => {}
        }
    }

    fn joined(&mut self, event: &NodeJoined) {
        let before = self.nodes.get(&event.node);
        let is_smaller =
            before.is_some_and(|node| node.capacity.first_short(&event.capacity, 1).is_some());
        let changed = self.nodes.joined(event, self.sequence);
        self.triggers_if(changed);
        self.rejoined(&event.node);
        self.slurm.joined(&event.node, self.now);
        self.relabelled();
        if is_smaller {
            self.shrunk(&event.node);
        }
    }

    fn container_started(&mut self, event: &ContainerStarted) {
        self.nodes.container_started(&event.node);
        self.slurm.used(&event.node, self.now);
        let id = &event.container;
        if let Some(partition) = self.partition(&id.job, id.incarnation) {
            partition.ran = true;
            if let Some(container) = partition.containers.get_mut(&id.rank)
                && container.phase == ContainerPhase::Requested
            {
                container.phase = ContainerPhase::Started;
                partition.begun += 1;
            }
        }
    }

    fn tasks_ended(&mut self, event: &TasksEnded) {
        self.ready(&event.job, event.incarnation);
        if let Some(job) = self.jobs.get_mut(&event.job) {
            let retries = job.retries;
            if let Some(tasks) = job.tasks_of(event.incarnation) {
                tasks.ended(event, retries, self.now);
            }
            job.bound_by_tasks();
        }
    }

    fn progressed(&mut self, event: &Progress) {
        self.ready(&event.job, event.incarnation);
        let Some(job) = self.jobs.get(&event.job) else {
            return;
        };
        let workers = Workers {
            containers: job.auxiliary.workers(event.containers),
            apart: job.is_apart(),
        };
        let of = (workers, &job.demand);
        let is_known = self.speeds.progressed(event, of, self.sequence, self.now);
        // Nothing else might happen for hours.
        let is_valued = self.policy.objective.value == Value::Speed;
        let to_fit = || {
            self.speeds
                .to_fit(&event.job, &job.demand, &job.speed_milli)
        };
        if is_known && is_valued && to_fit().is_some() {
            self.triggers();
        }
    }

    fn ready(&mut self, id: &JobId, incarnation: Incarnation) {
        let at = self.now;
        let Some(partition) = self.partition(id, incarnation) else {
            return;
        };
        if partition.ready_at.is_some() {
            return;
        }
        partition.ready_at = Some(at);
        let since = partition.running_since;
        if let (Some(since), Some(job)) = (since, self.jobs.get_mut(id)) {
            job.warm_up_ms = Some(at.ms_since(since));
        }
    }

    fn container(&mut self, id: &ContainerId, change: impl FnOnce(&mut PartitionContainer)) {
        let partition = self.partition(&id.job, id.incarnation);
        if let Some(container) = partition.and_then(|it| it.containers.get_mut(&id.rank)) {
            change(container);
        }
    }

    fn save_failed(&mut self, event: &CheckpointFailed) {
        if let Some(job) = self.jobs.get_mut(&event.job)
            && let Some(PartitionPhase::Saving { failed, .. }) =
                partition_phase(job, event.incarnation)
        {
            *failed = Some((self.sequence, event.reason.clone()));
        }
    }

    fn saved(&mut self, event: &CheckpointSaved) {
        let Some(job) = self.jobs.get_mut(&event.job) else {
            return;
        };
        job.precedence.saved(self.now);
        job.saved(SavedCheckpoint {
            uri: event.uri.clone(),
            step: event.step,
            incarnation: event.incarnation,
        });
        if let Some(PartitionPhase::Saving { saved, .. }) = partition_phase(job, event.incarnation)
        {
            *saved = Some(self.sequence);
        }
    }

    fn exited(&mut self, event: &ContainerExited) {
        self.slurm.used(&event.node, self.now);
        let job = self.jobs.get(&event.container.job);
        let demand = job.map(|job| job.demand_at(event.container.rank));
        let memory = demand.map_or(0, |demand| demand.get(&Resource::Memory));
        let phase = ContainerPhase::Exited {
            // An evicted container saves and exits as after a save request.
            success: event.exit_code == Some(0) && !event.evicted,
            evicted: event.evicted,
            why: describe_exit(event, memory),
            at: self.sequence,
        };
        if event.exit_code.is_some() || event.signal.is_some() {
            let id = &event.container;
            if let Some(partition) = self.partition(&id.job, id.incarnation) {
                partition.ran = true;
                let container = partition.containers.get(&id.rank);
                let is_new = container.is_some_and(|it| it.phase == ContainerPhase::Requested);
                partition.begun += u32::from(is_new);
            }
        }
        self.container(&event.container, |container| {
            if container.holds_room() {
                container.phase = phase;
            }
        });
        self.freed();
    }
}

/// Describes an exit for people. `memory`: demanded bytes, or 0.
fn describe_exit(event: &ContainerExited, memory: u64) -> String {
    let rank = event.container.rank;
    if event.out_of_memory {
        let limit = match memory {
            0 => "it has no demand.memory".to_owned(),
            memory => format!("demand.memory is {}", Resource::Memory.display(memory)),
        };
        return format!("rank {rank} on {} ran out of memory ({limit})", event.node);
    }
    let how = match (&event.reason, event.exit_code, event.signal) {
        (Some(reason), _, _) => reason.clone(),
        (None, Some(code), _) => format!("exited with {code}"),
        (None, None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None, None) => "ended in an unknown way".to_owned(),
    };
    match &event.reason {
        Some(_) => format!("rank {rank} on {}: {how}", event.node),
        None => format!("rank {rank} on {} {how}", event.node),
    }
}
