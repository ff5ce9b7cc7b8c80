//! What the log asks of one node: a fold.
//!
//! Only what concerns the node is kept: the partitions with a container on it, the
//! specifications of jobs that may come to it, the addresses of the other nodes. A partition is
//! forgotten once the log has the exit of each of its containers on this node; a job, once it
//! has ended and no partition is left.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use dormouse_messages::events::{
    CheckpointFailed, CheckpointRequested, CheckpointSaved, NodeJoined, NodeLost,
    PartitionStartRequested, PartitionStopRequested, PlacementDecided, Progress,
};
use dormouse_messages::job::JobSpec;
use dormouse_messages::{
    Body, ContainerId, Event, Fold, Incarnation, JobId, NodeId, Rank, Recorded, Sequence,
};

/// Placements that were never started are kept up to this many: a start may follow a placement
/// that a newer one has already replaced.
const PLACEMENTS_KEPT: usize = 4;

/// The node's view of the log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentState {
    /// The node; set before the first event is folded.
    pub node: Option<NodeId>,
    /// The last event folded.
    pub folded: Sequence,
    /// The agent's last life on the log; 0 where it never joined.
    pub life: u64,
    /// The last of its lives that was declared lost.
    pub lost: Option<u64>,
    /// Where each node is reached.
    pub addresses: BTreeMap<NodeId, String>,
    /// The jobs that are not over.
    pub jobs: BTreeMap<JobId, Job>,
    /// A type that this build folds, met in a version that it does not know.
    pub too_new: Option<String>,
}

/// A job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// What it runs; absent where its admission was never seen.
    pub spec: Option<JobSpec>,
    /// The newest incarnation whose start was requested.
    pub newest: Incarnation,
    /// Completed, failed or cancelled.
    pub ended: bool,
    /// Its partitions with a container here.
    pub partitions: BTreeMap<Incarnation, Partition>,
}

/// One incarnation of a job with a container on this node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Partition {
    /// The whole gang.
    pub gang: BTreeMap<Rank, Place>,
    /// The ranks here, with what the log has of each.
    pub here: BTreeMap<Rank, Known>,
    /// What the checkpointer asked.
    pub phase: Phase,
    /// The node was declared lost while it ran here.
    pub void: bool,
    /// The request to save that is not answered yet.
    pub save: Option<Sequence>,
    /// The last checkpoint on the log: its step and size.
    pub saved: Option<(u64, u64)>,
    /// The last step that was reported as progress.
    pub step: Option<u64>,
}

/// A member's place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The node.
    pub node: NodeId,
    /// GPUs by UUID.
    pub gpus: Vec<String>,
    /// The first of its own ports.
    pub port: u16,
}

/// What the log has of a container of this node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Known {
    /// Nothing.
    #[default]
    Nothing,
    /// That it started.
    Started,
    /// That it exited.
    Exited,
}

/// What is asked of a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// It has a place.
    #[default]
    Placed,
    /// It is to run.
    Run(Start),
    /// It is to stop.
    Stop(Start, Sequence),
}

/// A start request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Where it stands on the log.
    pub sequence: Sequence,
    /// The checkpoint to resume from.
    pub resumed_from: Option<String>,
}

/// What the log wants of a container that it does not know to have exited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The start request.
    pub request: Sequence,
    /// What the log has of it.
    pub known: Known,
    /// What it wants.
    pub want: Want,
    /// An unanswered request to save.
    pub save: Option<Sequence>,
}

/// What is wanted of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Want {
    /// To run.
    Run,
    /// To stop, in its own time.
    Stop,
    /// Not to exist: the platform ends it, for this reason.
    Gone(String),
}

impl Phase {
    /// The start request, once there is one.
    #[must_use]
    pub const fn start(&self) -> Option<&Start> {
        match self {
            Self::Placed => None,
            Self::Run(start) | Self::Stop(start, _) => Some(start),
        }
    }
}

impl AgentState {
    /// The empty state of `node`.
    #[must_use]
    pub fn new(node: NodeId) -> Self {
        Self {
            node: Some(node),
            ..Self::default()
        }
    }

    /// Everything that the log wants of this node: the containers whose start was requested and
    /// whose exit it does not have.
    #[must_use]
    pub fn wanted(&self) -> BTreeMap<ContainerId, Wanted> {
        let mut wanted = BTreeMap::new();
        for (job_id, job) in &self.jobs {
            for (incarnation, partition) in &job.partitions {
                let Some(start) = partition.phase.start() else {
                    continue;
                };
                let want = self.want(job, *incarnation, partition);
                for (rank, known) in &partition.here {
                    if *known == Known::Exited {
                        continue;
                    }
                    let container = ContainerId {
                        job: job_id.clone(),
                        incarnation: *incarnation,
                        rank: *rank,
                    };
                    let entry = Wanted {
                        request: start.sequence,
                        known: *known,
                        want: want.clone(),
                        save: partition.save,
                    };
                    wanted.insert(container, entry);
                }
            }
        }
        wanted
    }

    fn want(&self, job: &Job, incarnation: Incarnation, partition: &Partition) -> Want {
        if partition.void {
            let node = self.node.as_ref().map_or("?", NodeId::as_str);
            Want::Gone(format!("node {node} was declared lost while it ran here"))
        } else if incarnation < job.newest {
            Want::Gone(format!(
                "incarnation {incarnation} is over: incarnation {} was started",
                job.newest
            ))
        } else if job.ended {
            Want::Gone("the job has ended".to_owned())
        } else if matches!(partition.phase, Phase::Stop(..)) {
            Want::Stop
        } else {
            Want::Run
        }
    }

    /// The partition of a container.
    #[must_use]
    pub fn partition(&self, container: &ContainerId) -> Option<(&Job, &Partition)> {
        let job = self.jobs.get(&container.job)?;
        Some((job, job.partitions.get(&container.incarnation)?))
    }

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
        for partition in self
            .jobs
            .values_mut()
            .flat_map(|job| job.partitions.values_mut())
        {
            if partition.phase != Phase::Placed {
                partition.void = true;
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
            self.prune(job);
        }
    }

    fn start(&mut self, event: &PartitionStartRequested, sequence: Sequence) {
        let Some(job) = self.jobs.get_mut(&event.job) else {
            return;
        };
        job.newest = job.newest.max(event.incarnation);
        if let Some(partition) = job.partitions.get_mut(&event.incarnation)
            && partition.phase == Phase::Placed
        {
            let resumed_from = event.resumed_from.clone().filter(|uri| !uri.is_empty());
            partition.phase = Phase::Run(Start {
                sequence,
                resumed_from,
            });
        }
        self.prune(&event.job);
    }

    fn stop(&mut self, event: &PartitionStopRequested, sequence: Sequence) {
        let Some(partition) = self.partition_mut(&event.job, event.incarnation) else {
            return;
        };
        if let Phase::Run(start) = &partition.phase {
            partition.phase = Phase::Stop(start.clone(), sequence);
        }
    }

    fn save(&mut self, event: &CheckpointRequested, sequence: Sequence) {
        if let Some(partition) = self.partition_mut(&event.job, event.incarnation) {
            partition.save = Some(sequence);
        }
    }

    fn saved(&mut self, event: &CheckpointSaved) {
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
        if ended && job.partitions.is_empty() {
            self.jobs.remove(id);
        }
    }

    fn fold(&mut self, event: &Event, sequence: Sequence) {
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
            Event::Progress(event) => self.progress(event),
            Event::ContainerStarted(event) if self.is_here(&event.node) => {
                self.know(&event.container, Known::Started);
            }
            Event::ContainerExited(event) if self.is_here(&event.node) => {
                self.know(&event.container, Known::Exited);
            }
            Event::JobCompleted(event) => self.ended(&event.job),
            Event::JobFailed(event) => self.ended(&event.job),
            Event::JobCancelled(event) => self.ended(&event.job),
            _ => {}
        }
    }
}

impl Fold for AgentState {
    const NAME: &'static str = "node-agent";
    const VERSION: u32 = 1;

    fn evolve(&mut self, recorded: &Recorded) {
        self.folded = recorded.sequence;
        match &recorded.envelope.body {
            Body::Event(event) if event.writers().contains(&recorded.writer) => {
                self.fold(event, recorded.sequence);
            }
            Body::Event(_) => {}
            Body::Unknown { type_name } => {
                if Event::is_other_version(type_name) && self.too_new.is_none() {
                    self.too_new = Some(type_name.clone());
                }
            }
        }
    }

    fn check_invariants(&self) -> Result<(), String> {
        for (id, job) in &self.jobs {
            let mut running = 0;
            for (incarnation, partition) in &job.partitions {
                if partition
                    .here
                    .keys()
                    .any(|rank| !partition.gang.contains_key(rank))
                {
                    return Err(format!(
                        "{id}/{incarnation}: a rank here is not in its gang"
                    ));
                }
                if self.want(job, *incarnation, partition) == Want::Run
                    && partition.phase != Phase::Placed
                {
                    running += 1;
                }
            }
            if running > 1 {
                return Err(format!("{id}: {running} incarnations are to run at once"));
            }
        }
        Ok(())
    }
}
