//! A fold of the log's requests to one node.
//!
//! The fold keeps partitions with a container on the node, specs of jobs that may come here (packed until
//! then), and
//! the addresses of the other nodes. A partition goes once the log holds the exits of all its containers
//! here; a job,
//! once it ended and has no partition. Running partitions of jobs resized in place stay, wherever they run,
//! because
//! a container that joins one here needs its members.
//!
//! `fold.rs` applies the events, `members.rs` holds the members of a partition, `causes.rs` answers questions
//! about
//! starts and stops.

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

/// Orders of a container with tasks whose end is not known.
pub type Orders = BTreeMap<Sequence, TaskRanges>;

/// A node's view of the log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentState {
    /// Set before the first event is folded.
    pub node: Option<NodeId>,
    /// The last event folded.
    pub folded: Sequence,
    /// The agent's last incarnation on the log; 0 before its first join.
    pub life: u64,
    /// The agent's last incarnation that was declared lost.
    pub lost: Option<u64>,
    pub addresses: BTreeMap<NodeId, String>,
    /// Jobs that have not ended.
    pub jobs: BTreeMap<JobId, Job>,
    /// Index of the few `jobs` with a partition here.
    pub here: BTreeSet<JobId>,
    /// The lease term of the policy in force.
    pub lease: LeaseTerm,
    /// Every tenant that ever had a job, numbered by its first job: equal on every node.
    #[serde(default)]
    pub tenants: BTreeMap<String, u32>,
    pub grants: GrantBook,
    /// Programs that run in containers here for users.
    pub execs: BTreeMap<u64, ContainerId>,
    pub witness: Witness,
    /// The last `node.gpu_reconciled` for each shared GPU with deviations, by UUID.
    #[serde(default)]
    pub gpu_doubts: BTreeMap<String, GpuDoubt>,
    /// A known event type in an unknown version.
    pub too_new: Option<String>,
}

/// Deviations on a shared GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuDoubt {
    /// Processes without a share of the GPU.
    pub strangers: BTreeSet<u32>,
    /// Containers with more memory than their cap.
    pub beyond: BTreeSet<ContainerId>,
}

impl GpuDoubt {
    /// Returns the deviations in an event.
    #[must_use]
    pub fn of(event: &NodeGpuReconciled) -> Self {
        Self {
            strangers: event.strangers.iter().map(|it| it.pid).collect(),
            beyond: event.beyond.iter().map(|it| it.container.clone()).collect(),
        }
    }

    /// True if there are no deviations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.strangers.is_empty() && self.beyond.is_empty()
    }
}

/// The part of a job that concerns one node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The spec, packed while the job has no partition here. Absent if the fold never saw the admission.
    pub kept: Option<KeptSpec>,
    /// True if containers come and go within one incarnation.
    pub in_place: bool,
    /// The newest incarnation with a start request.
    pub newest: Incarnation,
    /// Completed, failed or cancelled.
    pub ended: bool,
    /// Checkpoints that can be resumed from, newest first.
    pub resumable: Vec<String>,
    /// Partitions with a container here; for a job resized in place, also the running one.
    pub partitions: BTreeMap<Incarnation, Partition>,
}

/// One incarnation of a job with a container on this node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Partition {
    pub gang: BTreeMap<Rank, Place>,
    /// The ranks on this node.
    pub here: BTreeMap<Rank, Here>,
    pub phase: Phase,
    /// Seconds to stop, if the log overrides the job's own.
    pub stop_grace_s: Option<u32>,
    /// The members, once a partition resized in place has started.
    pub members: Option<Members>,
    /// Rank 0 reported ready.
    pub coordinator_ready: bool,
    /// The open save request.
    pub save: Option<Sequence>,
    /// Step and size of the last checkpoint on the log.
    pub saved: Option<(u64, u64)>,
    /// The last reported step.
    pub step: Option<u64>,
    /// Unreported task orders of the containers here.
    pub orders: BTreeMap<Rank, Orders>,
}

/// A container's placement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub node: NodeId,
    /// UUIDs.
    pub gpus: Vec<String>,
    /// The first of the container's ports.
    pub port: u16,
    pub standing: Standing,
}

/// The progress of a container of a partition, on any node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    #[default]
    Placed,
    /// The placement was withdrawn before a start request.
    TakenBack,
    /// A start was requested.
    Asked,
    /// The container exited, or its node was lost.
    Over,
}

/// The log's last fact about a container of this node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Known {
    #[default]
    Nothing,
    Started,
    Exited,
}

/// The request to a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    #[default]
    Placed,
    Run(Start),
    Stop(Start, Sequence),
}

/// A start request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    pub sequence: Sequence,
    /// The checkpoint to resume from.
    pub resumed_from: Option<String>,
}

/// The log's request for a container without a known exit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The start request.
    pub request: Sequence,
    pub known: Known,
    pub want: Want,
    /// The open save request.
    pub save: Option<Sequence>,
    /// The newest task order that is not done.
    pub order: Option<Sequence>,
}

/// The desired state of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Want {
    Run,
    /// Stopped within the grace period.
    Stop,
    /// Evicted by the platform, for this reason.
    Gone(String),
}

static NO_ORDERS: Orders = Orders::new();

impl Partition {
    /// Returns the partition without its containers' own reports, except their exits.
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

    /// Returns the unreported orders of a container.
    #[must_use]
    pub fn orders_of(&self, rank: Rank) -> &Orders {
        self.orders.get(&rank).unwrap_or(&NO_ORDERS)
    }

    /// Returns the number of members.
    #[must_use]
    pub fn containers(&self) -> usize {
        let members = self.members.as_ref();
        members.map_or(self.gang.len(), |it| it.announced.members.len())
    }

    /// True if a container here has a start request and no exit.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.here.values().any(Here::is_open)
    }
}

impl Job {
    /// Returns the spec, if the job has a partition here.
    #[must_use]
    pub fn spec(&self) -> Option<&JobSpec> {
        self.kept.as_ref()?.opened()
    }

    /// Packs the spec of a job without a partition here and opens it otherwise.
    fn keep(&mut self) {
        match &mut self.kept {
            Some(kept) if self.partitions.is_empty() => kept.pack(),
            Some(kept) => kept.open(),
            None => {}
        }
    }
}

impl Phase {
    /// Returns the start request, if there is one.
    #[must_use]
    pub const fn start(&self) -> Option<&Start> {
        match self {
            Self::Placed => None,
            Self::Run(start) | Self::Stop(start, _) => Some(start),
        }
    }
}

impl AgentState {
    /// Returns the empty state of `node`.
    #[must_use]
    pub fn new(node: NodeId) -> Self {
        Self {
            node: Some(node),
            ..Self::default()
        }
    }

    /// Returns all containers with a start request and without an exit on the log.
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

    /// Reports whether another fold holds different requests or results for a container. Always true for a
    /// task set,
    /// whose finished orders leave no trace.
    #[must_use]
    pub fn asks_otherwise(&self, former: &Self, container: &ContainerId) -> bool {
        let asked = |of: &Self| of.partition(container).map(|(_, it)| it.asked());
        let spec = self
            .jobs
            .get(&container.job)
            .and_then(|job| job.kept.as_ref()?.get());
        spec.is_some_and(|spec| spec.tasks.is_some()) || asked(self) != asked(former)
    }

    /// Returns a container's job and partition.
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

    /// Events of this node come from this agent and are trusted.
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
