//! Applies events to the node's state; `in_place.rs` handles partitions resized in place.

mod in_place;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use dormouse_messages::events::{
    CHECKPOINTS_RESUMABLE, CheckpointFailed, CheckpointRejected, CheckpointRequested,
    CheckpointSaved, ContainerExited, JobAdmitted, JobRevised, NodeGpuReconciled, NodeJoined,
    PartitionStartRequested, PartitionStopRequested, PlacementDecided, Progress, ResizeAbandoned,
    TasksAssigned, TasksEnded,
};
use dormouse_messages::serialized_spec::SerializedSpec;
use dormouse_messages::{ContainerId, Event, Incarnation, JobId, NodeId, Rank, Recorded, Sequence};

use super::{
    AgentState, GpuDoubt, Known, Members, Partition, Phase, Place, Readiness, Standing, Start,
};

/// Limit on unstarted placements, as in the services. A start can follow a placement already replaced by a
/// newer one.
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

    fn lost(&mut self, node: &NodeId, incarnation: u64) {
        self.lost_elsewhere(node);
        if !self.is_here(node) || incarnation < self.life {
            return;
        }
        self.lost = self.lost.max(Some(incarnation));
        for id in &self.here {
            let job = self.jobs.get_mut(id).into_iter();
            for partition in job.flat_map(|job| job.partitions.values_mut()) {
                let here = partition.here.values_mut();
                for here in here.filter(|here| here.request.is_some()) {
                    here.void = true;
                }
            }
        }
    }

    /// A start requested while the node counts as lost is void: all readers take its container for lost.
    fn counts_as_lost(&self) -> bool {
        self.lost.is_some_and(|lost| lost >= self.life)
    }

    fn placed(&mut self, event: &PlacementDecided) {
        self.taken_back(event);
        let mut gangs: BTreeMap<_, Partition> = BTreeMap::new();
        for place in &event.create {
            let partition = gangs.entry((&place.job, place.incarnation)).or_default();
            if self.is_here(&place.node) {
                partition.here.entry(place.rank).or_default();
            }
            let member = Place {
                node: place.node.clone(),
                gpus: place.gpus.clone(),
                port: place.port,
                standing: Standing::Placed,
            };
            partition.gang.insert(place.rank, member);
        }
        for ((job, incarnation), placed) in gangs {
            let in_place = self.jobs.get(job).is_some_and(|job| job.in_place);
            if placed.here.is_empty() && !in_place {
                continue;
            }
            let entry = self.jobs.entry(job.clone()).or_default();
            match entry.partitions.entry(incarnation) {
                Entry::Vacant(vacant) => {
                    vacant.insert(placed);
                }
                Entry::Occupied(mut occupied) if in_place => occupied.get_mut().add(placed),
                Entry::Occupied(_) => {}
            }
            entry.keep();
            self.here.insert(job.clone());
            self.prune(job);
        }
    }

    fn start(&mut self, event: &PartitionStartRequested, sequence: Sequence) {
        let lost = self.counts_as_lost();
        let Some(job) = self.jobs.get_mut(&event.job) else {
            return;
        };
        job.newest = job.newest.max(event.incarnation);
        let in_place = job.in_place;
        if let Some(partition) = job.partitions.get_mut(&event.incarnation)
            && partition.phase == Phase::Placed
        {
            let resumed_from = event.resumed_from.clone().filter(|uri| !uri.is_empty());
            partition.phase = Phase::Run(Start {
                sequence,
                resumed_from,
            });
            let all = partition.gang.keys().copied().collect();
            partition.ask(&all, sequence, 0, lost);
            partition.members = in_place.then(|| Members::starting(all));
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
        self.prune(&event.job);
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

    /// A restarted agent must not request the checkpoint again.
    fn kept(&mut self, event: &ResizeAbandoned) {
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
        // A task is in one order at a time.
        for tasks in orders.values_mut() {
            let _ = tasks.take_common(&event.completed);
            for failed in &event.failed {
                tasks.remove(failed.task);
            }
        }
        orders.retain(|_, tasks| !tasks.is_empty());
    }

    fn know(&mut self, container: &ContainerId, known: Known) {
        if let Some(here) = self.here_mut(container)
            && here.known != Known::Exited
        {
            here.known = known;
        }
    }

    fn ended(&mut self, job: &JobId) {
        if let Some(entry) = self.jobs.get_mut(job) {
            entry.ended = true;
        }
        self.prune(job);
    }

    fn prune(&mut self, id: &JobId) {
        let Some(job) = self.jobs.get_mut(id) else {
            return;
        };
        let (newest, ended, in_place) = (job.newest, job.ended, job.in_place);
        job.partitions.retain(|incarnation, partition| {
            let is_newest = *incarnation == newest && !ended;
            match partition.phase {
                Phase::Placed => *incarnation > newest && !ended,
                // Later members may come here.
                Phase::Run(_) if in_place && is_newest => true,
                Phase::Run(_) | Phase::Stop(..) => partition.is_open(),
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
            job.keep();
            self.here.remove(id);
            if ended {
                self.jobs.remove(id);
            }
        }
    }

    fn admitted(&mut self, event: &JobAdmitted) {
        let job = self.jobs.entry(event.job.clone()).or_default();
        job.in_place = event.spec.is_in_place();
        job.kept = Some(SerializedSpec::packed(&event.spec));
        job.keep();
        let next = u32::try_from(self.tenants.len()).unwrap_or(u32::MAX);
        let tenant = event.job.tenant().to_owned();
        self.tenants.entry(tenant).or_insert(next);
    }

    /// Only the GPU share matters to an agent.
    fn revised(&mut self, event: &JobRevised) {
        let job = self.jobs.get_mut(&event.job);
        if let (Some(limit), Some(kept)) =
            (event.gpu_limit_milli, job.and_then(|job| job.kept.as_mut()))
        {
            kept.change(|spec| spec.gpu_limit_milli = Some(limit));
        }
    }

    fn reconciled(&mut self, event: &NodeGpuReconciled) {
        if !self.is_here(&event.node) {
            return;
        }
        let doubt = GpuDoubt::of(event);
        if doubt.is_empty() {
            self.gpu_doubts.remove(&event.uuid)
        } else {
            self.gpu_doubts.insert(event.uuid.clone(), doubt)
        };
    }

    fn rejected(&mut self, event: &CheckpointRejected) {
        if let Some(job) = self.jobs.get_mut(&event.job) {
            job.resumable.retain(|uri| *uri != event.uri);
        }
    }

    fn exited(&mut self, event: &ContainerExited) {
        if self.is_here(&event.node) {
            self.know(&event.container, Known::Exited);
        }
        self.over(&event.container);
        self.prune(&event.container.job);
    }

    /// No wildcard: every new event type must be considered.
    #[expect(clippy::too_many_lines, reason = "one arm an event")]
    pub(super) fn fold(&mut self, event: &Event, recorded: &Recorded) {
        let (sequence, at) = (recorded.sequence, recorded.stored_at);
        match event {
            Event::ClusterConfigured(configured) => {
                self.lease = configured.policy.lease();
                self.grants.configured(configured.policy.grants);
            }
            Event::TenantGranted(event) => self.grants.granted(event),
            Event::TenantRemoved(event) => self.grants.removed(&event.tenant),
            Event::JobAdmitted(event) => self.admitted(event),
            Event::JobRevised(event) => self.revised(event),
            Event::NodeGpuReconciled(event) => self.reconciled(event),
            Event::PlacementDecided(event) => self.placed(event),
            Event::NodeLost(event) => self.lost(&event.node, event.incarnation),
            Event::PartitionStartRequested(event) => self.start(event, sequence),
            Event::PartitionStopRequested(event) => self.stop(event, sequence),
            Event::PartitionResizeRequested(event) => self.resize(event, sequence, at),
            Event::PartitionLeaveRequested(event) => self.leave(event, sequence),
            Event::PartitionResized(event) => self.resized(event),
            Event::CheckpointRequested(event) => self.save(event, sequence),
            Event::ResizeAbandoned(event) => self.kept(event),
            Event::TasksAssigned(event) => self.give(event, sequence),
            Event::JobCompleted(event) => self.ended(&event.job),
            Event::JobFailed(event) => self.ended(&event.job),
            Event::JobCancelled(event) => self.ended(&event.job),
            Event::NodeJoined(event) => self.joined(event),
            Event::NodeFenced(event) => self.lost(&event.node, event.incarnation),
            Event::ContainerStarted(event) => {
                if self.is_here(&event.node) {
                    self.know(&event.container, Known::Started);
                    // Compared with the agent's own clock, not a broker's.
                    self.started(&event.container, recorded.envelope.time);
                }
            }
            Event::ContainerExited(event) => self.exited(event),
            Event::ContainerReady(event) => {
                self.ready(&event.container, Readiness::Ready);
                let coordinated = self.partition_mut(&event.container.job, event.container.incarnation);
                if let (Rank(0), Some(partition)) = (event.container.rank, coordinated) {
                    partition.coordinator_ready = true;
                }
            }
            Event::ContainerUnready(event) => self.ready(&event.container, Readiness::Unready),
            Event::MemberAcknowledged(event) => self.acknowledged(event),
            Event::CheckpointSaved(event) => self.saved(event),
            Event::CheckpointFailed(event) => self.save_failed(event),
            Event::CheckpointRejected(event) => self.rejected(event),
            Event::Progress(event) => self.progress(event),
            Event::TasksEnded(event) => {
                if self.is_here(&event.node) {
                    self.tasks_ended(event);
                }
            }
            Event::ContainerExecStarted(event) => {
                if self.is_here(&event.node) {
                    self.execs.insert(event.exec, event.container.clone());
                }
            }
            Event::ContainerExecEnded(event) => {
                if self.is_here(&event.node) {
                    self.execs.remove(&event.exec);
                }
            }
            // Decisions among services.
            Event::NodeDrained(_)
            | Event::NodeRestored(_)
            | Event::NodeRecovered(_)
            | Event::NodeQuarantined(_)
            | Event::NodeReadmitted(_)
            | Event::NodeLabelled(_)
            | Event::NodeRemoved(_)
            | Event::SubmissionReceived(_)
            | Event::SubmissionsShed(_)
            | Event::JobRefused(_)
            | Event::JobReleased(_)
            | Event::JobRequeued(_)
            | Event::JobCancelRequested(_)
            | Event::PlanAccepted(_)
            | Event::PlanMissed(_)
            | Event::AllocationDecided(_)
            | Event::AllocationUnchanged(_)
            | Event::PlacementRefused(_)
            | Event::PartitionStarted(_)
            | Event::PartitionStopped(_)
            | Event::TenantConfigured(_)
            | Event::WebhookConfigured(_)
            | Event::KeyCreated(_)
            | Event::KeyRotated(_)
            | Event::KeyRevoked(_)
            | Event::UpgradeApproved(_)
            | Event::BuildJoined(_)
            | Event::BuildLeft(_)
            | Event::ClusterUpgraded(_)
            | Event::ServiceScaled(_)
            | Event::ServiceMeasured(_)
            | Event::GatewayJoined(_)
            | Event::GatewayLeft(_)
            | Event::GatewayUnrouted(_)
            | Event::GatewayLost(_)
            | Event::LogArchived(_)
            | Event::ClockStepped(_)
            // Passed on at once by a live agent.
            | Event::PartitionWarned(_)
            | Event::NotebookWarned(_)
            // Agents' reports, of no further use.
            | Event::NodeFaulted(_)
            | Event::NotebookObserved(_)
            | Event::ContainerGpuUsed(_) => {}
        }
    }
}
