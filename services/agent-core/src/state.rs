//! What the log asks of one node: a fold.
//!
//! Only what concerns the node is kept: the partitions with a container on it, the
//! specifications of jobs that may come to it (packed until they do), the addresses of the other nodes. A partition is
//! forgotten once the log has the exit of each of its containers on this node; a job, once it
//! has ended and no partition is left. Partitions that are resized in place are kept while they
//! run, wherever that is: a container that joins one here is told its members.

mod causes;
mod fold;
mod members;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use members::{Announced, Here, Leave, Members, Readiness};

use dormouse_messages::events::NodeGpuReconciled;
use dormouse_messages::grants::GrantBook;
use dormouse_messages::job::JobSpec;
use dormouse_messages::kept::KeptSpec;
use dormouse_messages::policy::LeaseTerm;
use dormouse_messages::{
    Body, ContainerId, Event, Fold, Incarnation, JobId, NodeId, Rank, Recorded, Sequence,
    TaskRanges, Witness, Writer,
};

/// The orders of a container that have tasks without a known end.
pub type Orders = BTreeMap<Sequence, TaskRanges>;

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
    /// Those of them with a partition here: few, where thousands are queued.
    pub here: BTreeSet<JobId>,
    /// The nodes' leases, by the policy in force.
    pub lease: LeaseTerm,
    /// Every tenant that ever had a job, by the order of the first ones: the same on every node.
    #[serde(default)]
    pub tenants: BTreeMap<String, u32>,
    /// What tenants are granted.
    pub grants: GrantBook,
    /// Programs that run in containers here for somebody, by their numbers.
    pub execs: BTreeMap<u64, ContainerId>,
    /// Which node may say what of a job.
    pub witness: Witness,
    /// What was last said of this node's shared GPUs, by UUID, where the driver saw what the agent
    /// does not share among.
    #[serde(default)]
    pub gpu_doubts: BTreeMap<String, GpuDoubt>,
    /// A type that this build folds, met in a version that it does not know.
    pub too_new: Option<String>,
}

/// Who was on a shared GPU without a part of it, and who had more memory than its cap.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuDoubt {
    /// Processes.
    pub strangers: BTreeSet<u32>,
    /// Containers.
    pub beyond: BTreeSet<ContainerId>,
}

impl GpuDoubt {
    /// What an event says.
    #[must_use]
    pub fn of(event: &NodeGpuReconciled) -> Self {
        Self {
            strangers: event.strangers.iter().map(|it| it.pid).collect(),
            beyond: event.beyond.iter().map(|it| it.container.clone()).collect(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.strangers.is_empty() && self.beyond.is_empty()
    }
}

/// A job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// What it runs, packed while it has no partition here: of thousands that are queued, few ever
    /// come to this node. Absent where its admission was never seen.
    pub kept: Option<KeptSpec>,
    /// Whether its containers come and go within one life.
    pub in_place: bool,
    /// The newest incarnation whose start was requested.
    pub newest: Incarnation,
    /// Completed, failed or cancelled.
    pub ended: bool,
    /// The checkpoints that it may yet be resumed from, the newest first.
    pub resumable: Vec<String>,
    /// Its partitions with a container here; where it is resized in place, the running one too.
    pub partitions: BTreeMap<Incarnation, Partition>,
}

/// One incarnation of a job with a container on this node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Partition {
    /// The whole gang.
    pub gang: BTreeMap<Rank, Place>,
    /// The ranks here, with what the log has of each.
    pub here: BTreeMap<Rank, Here>,
    /// What the checkpointer asked.
    pub phase: Phase,
    /// Seconds to stop, where the log names others than the job's own.
    pub stop_grace_s: Option<u32>,
    /// Who takes part, where containers come and go within the life and it was started.
    pub members: Option<Members>,
    /// Its rank 0 has said that it can take part.
    pub coordinator_ready: bool,
    /// The request to save that is not answered yet.
    pub save: Option<Sequence>,
    /// The last checkpoint on the log: its step and size.
    pub saved: Option<(u64, u64)>,
    /// The last step that was reported as progress.
    pub step: Option<u64>,
    /// A task set's: what the containers here were given and have not reported.
    pub orders: BTreeMap<Rank, Orders>,
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
    /// Whether it was asked to start, or is over.
    pub standing: Standing,
}

/// Where a container of a partition stands, on whatever node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// It has a place.
    #[default]
    Placed,
    /// It had one, which was taken back before its start was requested.
    TakenBack,
    /// Its start was requested.
    Asked,
    /// It has exited, or its node was lost.
    Over,
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
    /// The newest order of tasks that is not done.
    pub order: Option<Sequence>,
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

static NO_ORDERS: Orders = Orders::new();

impl Partition {
    /// What was asked of it, and which of its containers have ended: without what they said of themselves.
    fn asked(&self) -> Self {
        let of = |here: &Here| Here {
            known: match here.known {
                Known::Exited => Known::Exited,
                Known::Nothing | Known::Started => Known::Nothing,
            },
            started_at: None,
            readiness: Readiness::Unknown,
            acknowledged: None,
            ..here.clone()
        };
        let here = self.here.iter().map(|(rank, here)| (*rank, of(here)));
        Self {
            here: here.collect(),
            saved: None,
            step: None,
            ..self.clone()
        }
    }

    /// What a container was given and has not reported.
    #[must_use]
    pub fn orders_of(&self, rank: Rank) -> &Orders {
        self.orders.get(&rank).unwrap_or(&NO_ORDERS)
    }

    /// How many take part.
    #[must_use]
    pub fn containers(&self) -> usize {
        let members = self.members.as_ref();
        members.map_or(self.gang.len(), |it| it.announced.members.len())
    }

    /// Whether a container here was asked to start and has not exited.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.here.values().any(Here::is_open)
    }
}

impl Job {
    /// What it runs, where it has a partition here.
    #[must_use]
    pub fn spec(&self) -> Option<&JobSpec> {
        self.kept.as_ref()?.opened()
    }

    /// Keeps what it runs in the form of what is done with it.
    fn keep(&mut self) {
        match &mut self.kept {
            Some(kept) if self.partitions.is_empty() => kept.pack(),
            Some(kept) => kept.open(),
            None => {}
        }
    }
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
        let here = self.here.iter();
        for (job_id, job) in here.filter_map(|id| self.jobs.get_key_value(id)) {
            for (incarnation, partition) in &job.partitions {
                for (rank, here) in &partition.here {
                    let Some(request) = here.request.filter(|_| here.is_open()) else {
                        continue;
                    };
                    let container = ContainerId {
                        job: job_id.clone(),
                        incarnation: *incarnation,
                        rank: *rank,
                    };
                    let entry = Wanted {
                        request,
                        known: here.known,
                        want: self.want(job, *incarnation, partition, here),
                        save: partition.save,
                        order: partition
                            .orders_of(*rank)
                            .last_key_value()
                            .map(|(at, _)| *at),
                    };
                    wanted.insert(container, entry);
                }
            }
        }
        wanted
    }

    fn want(
        &self,
        job: &Job,
        incarnation: Incarnation,
        partition: &Partition,
        here: &Here,
    ) -> Want {
        if here.void {
            let node = self.node.as_ref().map_or("?", NodeId::as_str);
            Want::Gone(format!("node {node} was declared lost while it ran here"))
        } else if incarnation < job.newest {
            Want::Gone(format!(
                "incarnation {incarnation} is over: incarnation {} was started",
                job.newest
            ))
        } else if job.ended {
            Want::Gone("the job has ended".to_owned())
        } else if matches!(partition.phase, Phase::Stop(..)) || here.leave.is_some() {
            Want::Stop
        } else {
            Want::Run
        }
    }

    /// Whether a container was asked something else, or has done more, by what another fold holds. Of a task
    /// set that cannot be told: orders that were done leave nothing.
    #[must_use]
    pub fn asks_otherwise(&self, former: &Self, container: &ContainerId) -> bool {
        let asked = |of: &Self| of.partition(container).map(|(_, it)| it.asked());
        let spec = self
            .jobs
            .get(&container.job)
            .and_then(|job| job.kept.as_ref()?.get());
        spec.is_some_and(|spec| spec.tasks.is_some()) || asked(self) != asked(former)
    }

    /// The partition of a container.
    #[must_use]
    pub fn partition(&self, container: &ContainerId) -> Option<(&Job, &Partition)> {
        let job = self.jobs.get(&container.job)?;
        Some((job, job.partitions.get(&container.incarnation)?))
    }
}

impl Fold for AgentState {
    const NAME: &'static str = "node-agent";
    const VERSION: u32 = 11;

    fn evolve(&mut self, recorded: &Recorded) {
        self.folded = recorded.sequence;
        match &recorded.envelope.body {
            Body::Event(event) if event.writers().contains(&recorded.writer) => {
                if self.doubts(recorded).is_none() {
                    self.witness.evolve(event);
                    self.fold(event, recorded);
                }
            }
            Body::Event(_) => {}
            Body::Unknown { type_name } => {
                if Event::is_other_version(type_name) && self.too_new.is_none() {
                    self.too_new = Some(type_name.clone());
                }
            }
        }
    }

    /// What stands on the log of this node's own is this agent's word.
    fn doubts(&self, recorded: &Recorded) -> Option<String> {
        let own = self.node.as_ref().map_or("", NodeId::as_str);
        let (_, node) = recorded.envelope.source.rsplit_once('/')?;
        match recorded.writer == Writer::Node && node == own {
            true => None,
            false => self.witness.doubts(recorded.event()?),
        }
    }

    fn check_invariants(&self) -> Result<(), String> {
        for (id, job) in &self.jobs {
            if self.here.contains(id) == job.partitions.is_empty() {
                return Err(format!("{id}: the index of partitions is wrong"));
            }
            if job.kept.is_some() && job.spec().is_none() != job.partitions.is_empty() {
                return Err(format!(
                    "{id}: its specification is packed, or is not, wrongly"
                ));
            }
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
                check_members(partition).map_err(|why| format!("{id}/{incarnation}: {why}"))?;
                let mut here = partition.here.values().filter(|here| here.is_open());
                if here.any(|here| self.want(job, *incarnation, partition, here) == Want::Run) {
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

fn check_members(partition: &Partition) -> Result<(), &'static str> {
    let Some(members) = &partition.members else {
        let leaves = partition.here.values().any(|here| here.leave.is_some());
        return if leaves {
            Err("a container leaves a partition without members")
        } else {
            Ok(())
        };
    };
    if !members
        .announced
        .members
        .is_disjoint(&members.announced.leaving)
    {
        return Err("a member both stays and leaves");
    }
    if members.announced.generation > members.requested {
        return Err("its members are of a change that nobody requested");
    }
    if partition.phase == Phase::Placed {
        return Err("it has members, but its start was not requested");
    }
    Ok(())
}
