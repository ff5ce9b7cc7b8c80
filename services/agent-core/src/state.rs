//! A fold of the log's requests to one node, or to every node: partitions with a container here, specs of
//! jobs that may come (packed), and addresses of nodes. From every node's fold, [`AgentState::cut`] takes one
//! node's.
//!
//! A partition is kept until all its exits here are on the log; a job, until its end and its last
//! partition's. Running partitions resized in place are kept everywhere, since a later container here needs
//! their members.
//!
//! `fold.rs` applies events, `cut.rs` takes one node's part, `members.rs` holds members, `causes.rs` finds
//! requests.

mod causes;
mod cut;
mod fold;
mod members;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use members::{Announced, Here, Leave, Members, Readiness};

use dormouse_messages::events::NodeGpuReconciled;
use dormouse_messages::grants::GrantBook;
use dormouse_messages::job::JobSpec;
use dormouse_messages::policy::LeaseTerm;
use dormouse_messages::serialized_spec::SerializedSpec;
use dormouse_messages::{
    Body, ContainerId, Event, Fold, Incarnation, JobId, NodeId, PlacementAuthority, Rank, Recorded,
    Sequence, TaskRanges,
};

/// Orders of a container without known ends.
pub type Orders = BTreeMap<Sequence, TaskRanges>;

/// A view of the log: one node's, or every node's. "Here" means on a node of the view.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentState {
    /// Absent in every node's view.
    pub node: Option<NodeId>,
    pub folded: Sequence,
    /// Facts about the nodes of the view.
    pub nodes: BTreeMap<NodeId, NodeFacts>,
    pub addresses: BTreeMap<NodeId, String>,
    pub jobs: BTreeMap<JobId, Job>,
    /// Those of the few jobs with a partition here.
    pub here: BTreeSet<JobId>,
    pub lease: LeaseTerm,
    /// By first job, equally numbered on every node.
    pub tenants: BTreeMap<String, u32>,
    pub grants: GrantBook,
    pub authority: PlacementAuthority,
    /// A known event type in an unknown version.
    pub too_new: Option<String>,
}

/// The log's facts about a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// 0 before the first join.
    pub incarnation: u64,
    /// The last incarnation declared lost.
    pub lost: Option<u64>,
    pub execs: BTreeMap<u64, ContainerId>,
    /// The last deviations by UUID.
    pub gpu_doubts: BTreeMap<String, GpuDoubt>,
}

/// Deviations on a shared GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuDoubt {
    pub strangers: BTreeSet<u32>,
    pub beyond: BTreeSet<ContainerId>,
}

impl GpuDoubt {
    /// Returns an event's deviations.
    #[must_use]
    pub fn of(event: &NodeGpuReconciled) -> Self {
        Self {
            strangers: event.strangers.iter().map(|it| it.pid).collect(),
            beyond: event.beyond.iter().map(|it| it.container.clone()).collect(),
        }
    }

    /// True without deviations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.strangers.is_empty() && self.beyond.is_empty()
    }
}

/// A job as far as the view is concerned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The sequence of its `job.admitted`, by which the folders of jobs of one name differ.
    pub admitted: Sequence,
    /// Packed without a partition here.
    pub kept: SerializedSpec,
    pub in_place: bool,
    pub newest: Incarnation,
    pub ended: bool,
    /// Newest first.
    pub resumable: Vec<String>,
    /// With a container here, or running and resized in place.
    pub partitions: BTreeMap<Incarnation, Partition>,
}

/// One incarnation of a job with a container here.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Partition {
    pub gang: BTreeMap<Rank, Place>,
    pub here: BTreeMap<Rank, Here>,
    pub phase: Phase,
    /// Overrides the job's own.
    pub stop_grace_s: Option<u32>,
    /// Set once started, if resized in place.
    pub members: Option<Members>,
    pub coordinator_ready: bool,
    pub save: Option<Sequence>,
    /// Step and size.
    pub saved: Option<(u64, u64)>,
    pub step: Option<u64>,
    /// Unreported task orders.
    pub orders: BTreeMap<Rank, Orders>,
}

/// A container's placement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub node: NodeId,
    pub gpus: Vec<String>,
    pub port: u16,
    pub standing: Standing,
}

/// The progress of a container on any node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    #[default]
    Placed,
    /// Withdrawn before a start request.
    TakenBack,
    Asked,
    /// Exited, or on a lost node.
    Over,
}

/// The log's last fact about a container.
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
    pub resumed_from: Option<String>,
}

/// The request for a container without a known exit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub request: Sequence,
    pub known: Known,
    pub want: Want,
    pub save: Option<Sequence>,
    /// The newest open task order.
    pub order: Option<Sequence>,
}

/// The desired state of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Want {
    Run,
    /// Within the grace period.
    Stop,
    /// Evicted, for this reason.
    Gone(String),
}

static NO_ORDERS: Orders = Orders::new();

static NO_FACTS: NodeFacts = NodeFacts {
    incarnation: 0,
    lost: None,
    execs: BTreeMap::new(),
    gpu_doubts: BTreeMap::new(),
};

impl Partition {
    /// Drops containers' own reports, except exits.
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

    /// True if a container here has started or may start.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.here.values().any(Here::is_open)
    }
}

impl Job {
    /// Returns the spec of a job with a partition here.
    #[must_use]
    pub fn spec(&self) -> Option<&JobSpec> {
        self.kept.opened()
    }

    /// The spec is open only with a partition here.
    fn keep(&mut self) {
        if self.partitions.is_empty() {
            self.kept.pack();
        } else {
            self.kept.open();
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

    /// Returns the facts about the node of a one-node view.
    #[must_use]
    pub fn own(&self) -> &NodeFacts {
        let node = self.node.as_ref();
        let facts = node.and_then(|node| self.nodes.get(node));
        facts.unwrap_or(&NO_FACTS)
    }

    /// Returns all containers to run, stop or end.
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

    /// Compares a container's requests and results with another fold's. Always true for a task set, whose
    /// finished orders leave no trace.
    #[must_use]
    pub fn asks_otherwise(&self, former: &Self, container: &ContainerId) -> bool {
        let asked = |of: &Self| of.partition(container).map(|(_, it)| it.asked());
        let spec = self.jobs.get(&container.job).and_then(|job| job.kept.get());
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
    const VERSION: u32 = 13;

    fn evolve(&mut self, recorded: &Recorded) {
        self.folded = recorded.sequence;
        match &recorded.envelope.body {
            Body::Event(event) if event.writers().contains(&recorded.writer) => {
                if self.authority.rejects(event).is_none() {
                    self.authority.evolve(event);
                    self.fold(event, recorded);
                } else {
                    self.fold_late(event);
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

    fn rejects(&self, recorded: &Recorded) -> Option<String> {
        self.authority.rejects(recorded.event()?)
    }

    fn check_invariants(&self) -> Result<(), String> {
        for (id, job) in &self.jobs {
            if self.here.contains(id) == job.partitions.is_empty() {
                return Err(format!("{id}: the index of partitions is wrong"));
            }
            if job.spec().is_none() != job.partitions.is_empty() {
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
