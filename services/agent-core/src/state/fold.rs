//! Applies events to the node's state; `in_place.rs` handles partitions resized in place.

mod in_place;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{
    CHECKPOINTS_RESUMABLE, CheckpointFailed, CheckpointRejected, CheckpointRequested,
    CheckpointSaved, ContainerExecEnded, ContainerExecStarted, ContainerExited, ContainerReady,
    ContainerStarted, JobAdmitted, JobRevised, NodeGpuReconciled, NodeJoined,
    PartitionStartRequested, PartitionStopRequested, PlacementDecided, Progress, ResizeAbandoned,
    TasksAssigned, TasksEnded,
};
use dormouse_messages::serialized_spec::SerializedSpec;
use dormouse_messages::{Event, Incarnation, JobId, NodeId, Rank, Recorded, Sequence, Timestamp};

use super::{
    AgentState, GpuDoubt, Job, Known, Members, NodeFacts, Partition, Phase, Place, Readiness,
    Standing, Start,
};

/// Limit on a node's unstarted placements, as in the services. A start can follow a placement already
/// replaced by a newer one.
const PLACEMENTS_KEPT: usize = 5;

impl NodeFacts {
    /// A start requested while the node counts as lost is void: all readers take its container for lost.
    fn counts_as_lost(&self) -> bool {
        self.lost.is_some_and(|lost| lost >= self.incarnation)
    }
}

impl Job {
    fn forget_ended_partitions(&mut self) {
        let (newest, ended, in_place) = (self.newest, self.ended, self.in_place);
        self.partitions.retain(|incarnation, partition| {
            let is_newest = *incarnation == newest && !ended;
            match partition.phase {
                Phase::Placed => *incarnation > newest && !ended,
                // Later members may come here.
                Phase::Run(_) if in_place && is_newest => true,
                Phase::Run(_) | Phase::Stop(..) => partition.is_open(),
            }
        });
    }

    /// Every node of a placement keeps its newest ones; without nodes, as in place, all nodes keep the same.
    fn forget_old_placements(&mut self) {
        let mut newer: BTreeMap<Option<&NodeId>, usize> = BTreeMap::new();
        let mut old = Vec::new();
        for (incarnation, partition) in self.partitions.iter().rev() {
            if partition.phase != Phase::Placed {
                continue;
            }
            let nodes = partition.nodes_here().filter(|_| !self.in_place);
            let mut holders: BTreeSet<_> = nodes.map(Some).collect();
            if holders.is_empty() {
                holders.insert(None);
            }
            let mut is_kept = false;
            for holder in holders {
                let newer = newer.entry(holder).or_default();
                is_kept |= *newer < PLACEMENTS_KEPT;
                *newer += 1;
            }
            if !is_kept {
                old.push(*incarnation);
            }
        }
        for incarnation in old {
            self.partitions.remove(&incarnation);
        }
    }
}

impl AgentState {
    fn is_here(&self, node: &NodeId) -> bool {
        self.node.as_ref().is_none_or(|own| own == node)
    }

    fn facts_mut(&mut self, node: &NodeId) -> Option<&mut NodeFacts> {
        let is_here = self.is_here(node);
        is_here.then(|| self.nodes.entry(node.clone()).or_default())
    }

    fn partition_mut(&mut self, job: &JobId, incarnation: Incarnation) -> Option<&mut Partition> {
        self.jobs.get_mut(job)?.partitions.get_mut(&incarnation)
    }

    fn joined(&mut self, event: &NodeJoined) {
        self.addresses
            .insert(event.node.clone(), event.address.clone());
        if let Some(facts) = self.facts_mut(&event.node) {
            facts.incarnation = facts.incarnation.max(event.incarnation);
        }
    }

    fn lost(&mut self, node: &NodeId, incarnation: u64) {
        let facts = self.facts_mut(node);
        let facts = facts.filter(|facts| incarnation >= facts.incarnation);
        let is_void = facts.is_some();
        if let Some(facts) = facts {
            facts.lost = facts.lost.max(Some(incarnation));
        }
        for id in &self.here {
            let job = self.jobs.get_mut(id).into_iter();
            for partition in job.flat_map(|job| job.partitions.values_mut()) {
                partition.lose(node, is_void);
            }
        }
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
        for ((id, incarnation), placed) in gangs {
            // Its job may have ended meanwhile.
            let Some(job) = self.jobs.get_mut(id) else {
                continue;
            };
            if placed.here.is_empty() && !job.in_place {
                continue;
            }
            match job.partitions.entry(incarnation) {
                Entry::Vacant(vacant) => {
                    vacant.insert(placed);
                }
                Entry::Occupied(mut occupied) if job.in_place => occupied.get_mut().add(placed),
                Entry::Occupied(_) => {}
            }
            job.keep();
            self.here.insert(id.clone());
            self.prune(id);
        }
    }

    fn start(&mut self, event: &PartitionStartRequested, sequence: Sequence) {
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
            partition.ask(&all, sequence, 0, &self.nodes);
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
        let partition = partition.filter(|it| it.is_on(event.rank, &event.node));
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

    fn started(&mut self, event: &ContainerStarted, at: Timestamp) {
        if let Some(here) = self.here_mut(&event.container, &event.node) {
            if here.known != Known::Exited {
                here.known = Known::Started;
            }
            here.started_at = Some(at);
        }
    }

    fn ended(&mut self, job: &JobId) {
        if let Some(entry) = self.jobs.get_mut(job) {
            entry.ended = true;
        }
        self.prune(job);
    }

    pub(super) fn prune(&mut self, id: &JobId) {
        let Some(job) = self.jobs.get_mut(id) else {
            return;
        };
        job.forget_ended_partitions();
        job.forget_old_placements();
        if job.partitions.is_empty() {
            job.keep();
            self.here.remove(id);
            if job.ended {
                self.jobs.remove(id);
            }
        }
    }

    fn admitted(&mut self, event: &JobAdmitted, sequence: Sequence) {
        let (kept, in_place) = (
            SerializedSpec::packed(&event.spec),
            event.spec.is_in_place(),
        );
        match self.jobs.get_mut(&event.job) {
            Some(job) if !job.ended => {
                (job.kept, job.in_place) = (kept, in_place);
                job.keep();
            }
            // A node that was lost may still run an ended job of the name.
            Some(_) | None => {
                let job = Job {
                    admitted: sequence,
                    kept,
                    in_place,
                    newest: Incarnation::default(),
                    ended: false,
                    resumable: Vec::new(),
                    partitions: BTreeMap::new(),
                };
                self.jobs.insert(event.job.clone(), job);
                self.here.remove(&event.job);
            }
        }
        let next = u32::try_from(self.tenants.len()).unwrap_or(u32::MAX);
        let tenant = event.job.tenant().to_owned();
        self.tenants.entry(tenant).or_insert(next);
    }

    /// Only the GPU share matters to an agent.
    fn revised(&mut self, event: &JobRevised) {
        let job = self.jobs.get_mut(&event.job);
        if let (Some(limit), Some(job)) = (event.gpu_limit_milli, job) {
            job.kept.change(|spec| spec.gpu_limit_milli = Some(limit));
        }
    }

    fn reconciled(&mut self, event: &NodeGpuReconciled) {
        let Some(facts) = self.facts_mut(&event.node) else {
            return;
        };
        let doubt = GpuDoubt::of(event);
        if doubt.is_empty() {
            facts.gpu_doubts.remove(&event.uuid)
        } else {
            facts.gpu_doubts.insert(event.uuid.clone(), doubt)
        };
    }

    fn exec_started(&mut self, event: &ContainerExecStarted) {
        if let Some(facts) = self.facts_mut(&event.node) {
            facts.execs.insert(event.exec, event.container.clone());
        }
    }

    fn exec_ended(&mut self, event: &ContainerExecEnded) {
        if let Some(facts) = self.facts_mut(&event.node) {
            facts.execs.remove(&event.exec);
        }
    }

    fn rejected(&mut self, event: &CheckpointRejected) {
        if let Some(job) = self.jobs.get_mut(&event.job) {
            job.resumable.retain(|uri| *uri != event.uri);
        }
    }

    fn is_ready(&mut self, event: &ContainerReady) {
        let container = &event.container;
        self.ready(container, &event.node, Readiness::Ready);
        let partition = self.partition_mut(&container.job, container.incarnation);
        if let (Rank(0), Some(partition)) = (container.rank, partition) {
            partition.coordinator_ready = true;
        }
    }

    fn exited(&mut self, event: &ContainerExited) {
        self.over(&event.container);
        self.exited_here(event);
    }

    fn exited_here(&mut self, event: &ContainerExited) {
        let container = &event.container;
        if let Some(here) = self.here_mut(container, &event.node) {
            here.known = Known::Exited;
        }
        if let Some(partition) = self.partition_mut(&container.job, container.incarnation) {
            partition.forget_the_over();
        }
        self.prune(&container.job);
    }

    /// A node ends containers long after their incarnation, so its own ends count without a placement.
    pub(super) fn fold_late(&mut self, event: &Event) {
        match event {
            Event::ContainerExited(event) => self.exited_here(event),
            Event::ContainerExecEnded(event) => self.exec_ended(event),
            _ => {}
        }
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
            Event::JobAdmitted(event) => self.admitted(event, sequence),
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
            // Compared with the agent's own clock, not a broker's.
            Event::ContainerStarted(event) => self.started(event, recorded.envelope.time),
            Event::ContainerExited(event) => self.exited(event),
            Event::ContainerReady(event) => self.is_ready(event),
            Event::ContainerUnready(event) => {
                self.ready(&event.container, &event.node, Readiness::Unready);
            }
            Event::MemberAcknowledged(event) => self.acknowledged(event),
            Event::CheckpointSaved(event) => self.saved(event),
            Event::CheckpointFailed(event) => self.save_failed(event),
            Event::CheckpointRejected(event) => self.rejected(event),
            Event::Progress(event) => self.progress(event),
            Event::TasksEnded(event) => self.tasks_ended(event),
            Event::ContainerExecStarted(event) => self.exec_started(event),
            Event::ContainerExecEnded(event) => self.exec_ended(event),
            // Decisions among services.
            Event::NodeDrained(_)
            | Event::NodeRestored(_)
            | Event::NodeRecovered(_)
            | Event::NodeQuarantined(_)
            | Event::NodeReadmitted(_)
            | Event::NodeLabelled(_)
            | Event::NodeRemoved(_)
            | Event::SubmissionReceived(_)
            | Event::SubmissionsRateLimited(_)
            | Event::JobRefused(_)
            | Event::JobReleased(_)
            | Event::JobRequeued(_)
            | Event::JobCancelRequested(_)
            | Event::PlanAccepted(_)
            | Event::PlanMissed(_)
            | Event::AllocationDecided(_)
            | Event::AllocationUnchanged(_)
            | Event::JobSpeedFitted(_)
            | Event::StartsForecast(_)
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
            | Event::LogTrimmed(_)
            | Event::LogFilled(_)
            | Event::SlurmQueueConfigured(_)
            | Event::SlurmQueueRemoved(_)
            | Event::BudgetConfigured(_)
            | Event::ReservationConfigured(_)
            | Event::ReservationRemoved(_)
            | Event::BudgetLevelChanged(_)
            | Event::ReservationPhaseChanged(_)
            | Event::SlurmRequested(_)
            | Event::SlurmSubmitted(_)
            | Event::SlurmRefused(_)
            | Event::SlurmEstimated(_)
            | Event::SlurmGranted(_)
            | Event::SlurmReleased(_)
            | Event::SlurmEnded(_)
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
