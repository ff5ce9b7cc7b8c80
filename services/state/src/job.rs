//! One live job: what it asked for, where it is assigned, and the life that it lives.
//!
//! A job's *assignment* is the newest placement of its partition; its *life* is the incarnation
//! whose containers were last asked to start. While the two differ, or the life is not yet
//! running, the job is in transit: its new room and what it still holds both count as taken.

use std::collections::BTreeMap;

use dormouse_messages::events::{CHECKPOINTS_RESUMABLE, StopReason};
use dormouse_messages::job::{CheckpointMode, Containers, JobSpec, Ready, Success, Urgency};
use dormouse_messages::needs::ContainerType;
use dormouse_messages::policy::Policy;
use dormouse_messages::roles::Part;
use dormouse_messages::{
    Amounts, Beside, Epoch, Incarnation, JobId, Needs, NodeId, Rank, Resource, Sequence, Timestamp,
};
use serde::{Deserialize, Serialize};

use super::health::StartFaults;
use super::limits::Limits;
use super::members::Members;
use super::precedence::Precedence;
use super::tasks::TaskSet;

/// A checkpointer is behind by a moment, in which a job is placed once or twice. With the newest
/// one, the agents keep as many.
const SUPERSEDED_KEPT: usize = 4;

/// Where a job and the policy name no `min_run_s`: so many times what a resize of the job costs, so
/// that at most a fifth of its time goes into its own resizes however often others come and go.
const MIN_RUN_COSTS: u64 = 4;

/// The least of it: a trainer's processes end their imports and install what handles a signal within
/// a few seconds, and what is resized more often than that does little else.
const MIN_RUN_LEAST_MS: u64 = 5_000;

/// The most of it: the time within which the default objective lets a restart pay for itself.
const MIN_RUN_MOST_MS: u64 = 900_000;

/// A life that has reported no progress counts as ready after so long: agents look for progress
/// every second, and a framework on a busy machine takes ten seconds to its first step.
const SILENT_MS: u64 = 15_000;

/// The same where the job says that it is ready with its first progress: a day, so that one that
/// never reports any is not in everybody's way without end.
const SILENT_AT_MOST_MS: u64 = 86_400_000;

/// Where one container of an assignment stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The node.
    pub node: NodeId,
    /// UUIDs of the GPUs it may use.
    pub gpus: Vec<String>,
    /// The first of its own ports.
    pub port: u16,
}

/// The newest placement of a job's partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// The allocation.
    pub epoch: Epoch,
    /// The life that it is for.
    pub incarnation: Incarnation,
    /// The event.
    pub placed: Sequence,
    /// One place a rank.
    pub places: BTreeMap<Rank, Place>,
    /// The number of the next container: numbers are not used twice in a life.
    pub next: Rank,
    /// Places that were taken back before they were started: a checkpointer that has not seen that
    /// may still start them.
    pub dropped: BTreeMap<Rank, Place>,
    /// Places of which the containers died since, or may not start there any more: others are yet
    /// to be decided.
    pub lost: u32,
    /// Whether a node of it was lost or drained since: it must be decided again.
    pub displaced: bool,
}

impl Assignment {
    /// How many containers.
    #[must_use]
    pub fn containers(&self) -> u32 {
        u32::try_from(self.places.len()).unwrap_or(u32::MAX)
    }

    /// Containers on each node.
    #[must_use]
    pub fn by_node(&self) -> BTreeMap<NodeId, u32> {
        self.by_node_of(|_| true)
    }

    /// The node and the id of each GPU, once for each container on it.
    pub fn gpus(&self) -> impl Iterator<Item = (&NodeId, &str)> {
        let places = self.places.values();
        places.flat_map(|place| place.gpus.iter().map(|gpu| (&place.node, gpu.as_str())))
    }

    /// Those of some ranks on each node.
    #[must_use]
    pub fn by_node_of(&self, which: impl Fn(Rank) -> bool) -> BTreeMap<NodeId, u32> {
        let mut counts = BTreeMap::new();
        for (_, place) in self.places.iter().filter(|(rank, _)| which(**rank)) {
            *counts.entry(place.node.clone()).or_insert(0) += 1;
        }
        counts
    }
}

/// What is known of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerPhase {
    /// Asked to start.
    Requested,
    /// Running.
    Started,
    /// Ended by itself or by a signal.
    Exited {
        /// Whether it ended with exit code 0.
        success: bool,
        /// Whether the platform ended it, not the job.
        evicted: bool,
        /// In words, where it did not succeed.
        why: String,
        /// The event.
        at: Sequence,
    },
    /// Its node was lost.
    Lost {
        /// The event.
        at: Sequence,
    },
}

/// Whether a container takes part.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Readiness {
    /// Nothing was said yet.
    #[default]
    Unknown,
    /// It can.
    Ready,
    /// It was not ready in time, or is so no longer.
    Unready {
        /// The event.
        at: Sequence,
    },
}

/// A container of a life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LifeContainer {
    /// Where it runs.
    pub place: Place,
    /// What is known of it.
    pub phase: ContainerPhase,
    /// Whether it takes part, where that is asked.
    pub readiness: Readiness,
}

/// What a service or a notebook asks of its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    /// Seconds that a leaving replica has for the requests that it works on.
    pub drain_s: u32,
    /// Seconds until a replica must be ready.
    pub ready_timeout_s: u32,
}

impl LifeContainer {
    /// Whether it may still hold its room.
    #[must_use]
    pub fn holds_room(&self) -> bool {
        matches!(
            self.phase,
            ContainerPhase::Requested | ContainerPhase::Started
        )
    }
}

/// How far a life is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LifePhase {
    /// Its containers were asked to start.
    Starting,
    /// All of them run.
    Running,
    /// They were asked to save, for an adjustment.
    Saving {
        /// When.
        since: Timestamp,
        /// The request.
        requested: Sequence,
        /// Whether a checkpoint was saved since.
        saved: Option<Sequence>,
        /// Why it was not saved, where the agent said so.
        failed: Option<(Sequence, String)>,
    },
    /// They were asked to stop.
    Stopping {
        /// Why.
        reason: StopReason,
        /// The request.
        requested: Sequence,
        /// Whether every container was said to run then.
        whole: bool,
    },
}

/// The incarnation whose containers were last asked to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// Which one.
    pub incarnation: Incarnation,
    /// The allocation.
    pub epoch: Epoch,
    /// When it was asked to start.
    pub requested_at: Timestamp,
    /// Since when all of its containers run.
    pub running_since: Option<Timestamp>,
    /// When it first reported progress: it is ready then, to be asked to save too.
    pub ready_at: Option<Timestamp>,
    /// The newest event about it.
    pub last_event: Sequence,
    /// The checkpoint it resumed from.
    pub resumed_from: Option<String>,
    /// Its containers.
    pub containers: BTreeMap<Rank, LifeContainer>,
    /// The number behind all that were asked for: numbers are not used twice in a life.
    pub numbered: Rank,
    /// How far it is.
    pub phase: LifePhase,
    /// Whether any of its containers ran, however shortly: only these can have printed anything.
    pub ran: bool,
    /// How many of its containers were said to run, at the time or later.
    pub begun: u32,
    /// Whether an agent has joined again that was to start one of them.
    pub rejoined: bool,
    /// Its members, where they come and go.
    pub members: Option<Members>,
}

impl Life {
    /// Whether none of its containers holds room any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        !self.containers.values().any(LifeContainer::holds_room)
    }

    /// The first of its containers that did not succeed, in words; of a life that never ran as a whole, of
    /// those that were not asked to stop before.
    #[must_use]
    pub fn first_failure(&self) -> Option<&str> {
        let asked = match self.phase {
            LifePhase::Stopping { requested, .. } if self.running_since.is_none() => {
                Some(requested)
            }
            _ => None,
        };
        let exits = self.containers.values();
        let failed = exits.filter_map(|container| match &container.phase {
            ContainerPhase::Exited {
                success: false,
                why,
                at,
                ..
            } if asked.is_none_or(|asked| *at < asked) => Some((*at, why.as_str())),
            _ => None,
        });
        failed.min().map(|(_, why)| why)
    }

    /// Whether every container runs, by what was said of it.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let mut containers = self.containers.values();
        containers.all(|container| container.phase == ContainerPhase::Started)
    }

    /// Whether all of its containers never ran together, and that may be because brokers or agents were
    /// away: every one was said to run at some time, or an agent came back that was to start one.
    #[must_use]
    pub fn may_have_been_delayed(&self) -> bool {
        let all = u32::try_from(self.containers.len()).unwrap_or(u32::MAX);
        let have_begun = all > 0 && self.begun >= all;
        self.running_since.is_none() && (have_begun || self.rejoined)
    }

    /// Whether every container has been seen running (or past it).
    #[must_use]
    pub fn all_started(&self) -> bool {
        let requested = |c: &LifeContainer| c.phase == ContainerPhase::Requested;
        !self.containers.values().any(requested)
    }
}

/// How the last life ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Which life.
    pub incarnation: Incarnation,
    /// Why.
    pub reason: StopReason,
    /// When.
    pub at: Timestamp,
    /// The event.
    pub sequence: Sequence,
    /// The first exit that was no success, in words.
    pub why: Option<String>,
    /// Whether any of its containers ran.
    pub ran: bool,
}

/// A complete checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedCheckpoint {
    /// Where it is.
    pub uri: String,
    /// The job's step.
    pub step: u64,
    /// The life that saved it.
    pub incarnation: Incarnation,
}

/// A live job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Demand of one worker.
    pub demand: Amounts,
    /// What stands beside the workers.
    pub beside: Beside,
    /// Weight of its fair share.
    pub weight: u32,
    /// Fewest and most containers.
    pub containers: Containers,
    /// What they ask of their nodes besides room.
    pub needs: Needs,
    /// Containers under the policy `static`, where the job names them.
    pub static_containers: Option<u32>,
    /// How it saves.
    pub mode: CheckpointMode,
    /// Seconds to save and to stop.
    pub grace_s: u32,
    /// The fewest seconds between its start and its next resize, where the job says so.
    pub min_run_s: Option<u32>,
    /// When a life of it counts as ready, where the job says so.
    pub ready: Option<Ready>,
    /// When it has succeeded.
    pub success: Success,
    /// How often a failed gang is started again.
    pub retries: u32,
    /// How long it may run and wait.
    pub limits: Limits,
    /// Whether it is on hold: it is given nothing, and gives back what it has.
    pub on_hold: bool,
    /// Whether it is so only until its containers have ended.
    pub requeued: bool,
    /// The event that admitted it.
    pub admitted: Sequence,
    /// The event that released it.
    pub released: Option<Sequence>,
    /// The request to cancel it.
    pub cancel_requested: Option<Sequence>,
    /// Since when an allocation says of it that it waits.
    pub waiting_since: Option<Timestamp>,
    /// The newest placement.
    pub assignment: Option<Assignment>,
    /// Older placements that were never started, and newcomers of what runs that were not: a
    /// checkpointer that had not seen the newer one may still start them.
    pub superseded: BTreeMap<Incarnation, BTreeMap<Rank, Place>>,
    /// The current life.
    pub life: Option<Life>,
    /// How the life before ended.
    pub last_stop: Option<Stop>,
    /// Lives that ended in a failure of the job's own.
    pub attempts: u32,
    /// The newest complete checkpoint.
    pub checkpoint: Option<SavedCheckpoint>,
    /// Those before it, the newest first: it resumes from there where a newer one cannot be read.
    pub older_checkpoints: Vec<SavedCheckpoint>,
    /// Its starts that failed for reasons of nodes.
    pub start_faults: StartFaults,
    /// When an adjustment was last given up.
    pub kept_at: Option<Timestamp>,
    /// When the adjustment under way began.
    pub adjusting_since: Option<Timestamp>,
    /// How long its last adjustment took, from the request to running again.
    pub stall_ms: Option<u64>,
    /// How long its last life took from running to its first progress.
    pub warm_up_ms: Option<u64>,
    /// The highest incarnation ever placed.
    pub last_incarnation: Incarnation,
    /// Its tasks, where it is a task set.
    pub tasks: Option<TaskSet>,
    /// Whether its containers come and go within one life.
    pub in_place: bool,
    /// Whose need is met first.
    pub urgency: Urgency,
    /// What it asks as a service.
    pub serving: Option<Serving>,
    /// Whether each node makes an environment of its packages before it starts there.
    pub has_packages: bool,
    /// How many replicas the autoscaler wants.
    pub replicas: Option<u32>,
    /// Members in a row that died, and when the last one did.
    pub deaths: Deaths,
    /// The job that its newest allocation makes room for.
    pub made_for: Option<JobId>,
    /// Its class, and how often it was preempted.
    pub precedence: Precedence,
}

/// Members that died in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deaths {
    /// How many.
    pub count: u32,
    /// When the last one did.
    pub last: Timestamp,
}

impl Deaths {
    /// Ten minutes without one, and the next is the first again.
    const FORGOTTEN_MS: u64 = 600_000;

    /// Another one.
    pub(crate) fn one_more(&mut self, at: Timestamp) {
        let long_ago = at.ms_since(self.last) > Self::FORGOTTEN_MS;
        self.count = if long_ago {
            1
        } else {
            self.count.saturating_add(1)
        };
        self.last = at;
    }

    /// When the next container may start: after 1, 2, 4, … at most 60 s.
    #[must_use]
    pub fn next_start(&self) -> Timestamp {
        match self.count.checked_sub(1) {
            None => self.last,
            Some(before) => {
                let wait_s = 1_u64
                    .checked_shl(before)
                    .map_or(60, |wait_s| wait_s.min(60));
                self.last.plus_ms(wait_s * 1000)
            }
        }
    }
}

impl Job {
    /// A job as it was admitted.
    #[must_use]
    pub fn admitted(spec: &JobSpec, admitted: Sequence, at: Timestamp) -> Self {
        Self {
            limits: Limits::of(spec, at),
            on_hold: false,
            requeued: false,
            demand: spec.demand.clone(),
            beside: Beside::of(spec),
            needs: spec.needs(),
            weight: spec.weight,
            containers: spec.containers,
            static_containers: spec.static_containers,
            mode: spec.checkpoint.mode,
            grace_s: spec.checkpoint.grace_s,
            min_run_s: spec.min_run_s,
            ready: spec.ready,
            success: spec.success,
            retries: spec.retries,
            admitted,
            released: None,
            cancel_requested: None,
            waiting_since: None,
            assignment: None,
            superseded: BTreeMap::new(),
            life: None,
            last_stop: None,
            attempts: 0,
            checkpoint: None,
            older_checkpoints: Vec::new(),
            start_faults: StartFaults::default(),
            kept_at: None,
            adjusting_since: None,
            stall_ms: None,
            warm_up_ms: None,
            last_incarnation: Incarnation(0),
            tasks: spec.tasks.map(TaskSet::new),
            in_place: spec.is_in_place(),
            urgency: spec.kind.urgency(),
            serving: spec.service.as_ref().map(|service| Serving {
                drain_s: service.drain_s,
                ready_timeout_s: service.ready.timeout_s,
            }),
            has_packages: spec.python.is_some(),
            replicas: None,
            deaths: Deaths::default(),
            made_for: None,
            precedence: Precedence::of(spec),
        }
    }

    /// Demand of the container of a rank.
    #[must_use]
    pub fn demand_at(&self, rank: Rank) -> &Amounts {
        self.beside
            .at(rank)
            .map_or(&self.demand, |part| &part.demand)
    }

    /// What the container of a rank asks of its node besides room.
    #[must_use]
    pub fn needs_at(&self, rank: Rank) -> &Needs {
        self.beside.at(rank).map_or(&self.needs, |part| &part.needs)
    }

    /// The type of the container of a rank.
    #[must_use]
    pub fn type_at(&self, rank: Rank) -> ContainerType {
        let part = self.beside.at(rank);
        part.map_or_else(|| self.container_type(), Part::container_type)
    }

    /// Its workers by node, in the newest placement.
    #[must_use]
    pub fn workers_by_node(&self) -> BTreeMap<NodeId, u32> {
        let assignment = self.assignment.as_ref();
        assignment.map_or_else(BTreeMap::new, |it| {
            it.by_node_of(|rank| self.beside.is_worker(rank))
        })
    }

    /// Its workers, in the newest placement.
    #[must_use]
    pub fn workers(&self) -> u32 {
        let assignment = self.assignment.as_ref();
        assignment.map_or(0, |it| self.beside.workers(it.containers()))
    }

    /// The type of its workers.
    #[must_use]
    pub fn container_type(&self) -> ContainerType {
        ContainerType {
            demand: self.demand.clone(),
            needs: self.needs.clone(),
        }
    }

    /// How much of each GPU that it is given a container holds, in thousandths: a fraction of one
    /// GPU, or GPUs whole.
    #[must_use]
    pub fn gpu_share(&self, rank: Rank) -> u64 {
        match self.demand_at(rank).get(&Resource::Gpu) {
            fraction @ 1..1000 => fraction,
            _ => 1000,
        }
    }

    /// Whether it runs until it is cancelled, by replicas that are replaced.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.serving.is_some()
    }

    /// The replicas that a service is to have: the autoscaler's word within its bounds.
    #[must_use]
    pub fn target(&self) -> u32 {
        let Containers { min, max, .. } = self.containers;
        self.replicas.unwrap_or(min).clamp(min, max.max(min))
    }

    /// Whether it is to have no container: a service without a replica to have, or a job on hold.
    #[must_use]
    pub fn stands_down(&self) -> bool {
        self.on_hold || (self.is_served() && self.target() == 0)
    }

    /// Whether it is to have no container and gives its places up now: on its way to them it arrives
    /// first.
    #[must_use]
    pub fn gives_up(&self) -> bool {
        let on_its_way = self.assignment.is_some() && self.life.is_some() && self.in_transit();
        self.stands_down() && (self.is_served() || !on_its_way)
    }

    /// Whether a life of it ever ran or was asked to.
    #[must_use]
    pub fn ever_started(&self) -> bool {
        self.life.is_some() || self.last_stop.is_some()
    }

    /// Whether its containers can be changed while it runs.
    #[must_use]
    pub fn is_adjustable(&self) -> bool {
        self.in_place || self.mode != CheckpointMode::None
    }

    /// Whether its containers are on the way: in transit, members change, or it has to leave where it
    /// is. Then it holds, for a while, room that is free afterwards.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        self.in_transit() || self.differs() || self.has_to_leave()
    }

    /// Whether an allocation may come out otherwise once it has arrived, if nobody waits: it is moving, and
    /// holds room until then that is free afterwards, or may be changed or put on hold from then on. What
    /// starts and cannot be changed while it runs is neither.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        let changes = self.is_adjustable() || self.stands_down() || !self.is_only_starting();
        self.is_moving() && changes
    }

    /// Whether it holds nothing but what it is to have, and has not begun there.
    fn is_only_starting(&self) -> bool {
        let Some(assignment) = self.assignment.as_ref().filter(|it| !it.displaced) else {
            return false;
        };
        self.life.as_ref().is_none_or(|life| {
            life.incarnation == assignment.incarnation && life.phase == LifePhase::Starting
        })
    }

    /// Whether it lost a node, or is to leave one, and its others still run.
    fn has_to_leave(&self) -> bool {
        let assignment = self.assignment.as_ref();
        let displaced = assignment.is_some_and(|assignment| assignment.displaced);
        displaced && self.life.is_some() && !self.in_place
    }

    /// Whether the members of its life are not those of its assignment.
    fn differs(&self) -> bool {
        let members = self.life.as_ref().and_then(|life| life.members.as_ref());
        let (Some(members), Some(assignment)) = (members, &self.assignment) else {
            return false;
        };
        members.change.is_some() || !members.current.iter().eq(assignment.places.keys())
    }

    /// Another complete checkpoint. A node that comes back may report late what an earlier life has
    /// saved: that is passed over.
    pub fn saved(&mut self, saved: SavedCheckpoint) {
        let known = self.checkpoint.as_ref();
        if known.is_some_and(|known| known.incarnation > saved.incarnation) {
            return;
        }
        let before = self.checkpoint.replace(saved);
        let is_present = |it: &SavedCheckpoint| {
            let newest = self.checkpoint.as_ref();
            newest.is_some_and(|newest| newest.uri == it.uri)
        };
        if let Some(before) = before.filter(|before| !is_present(before)) {
            self.older_checkpoints.insert(0, before);
        }
        self.older_checkpoints.truncate(CHECKPOINTS_RESUMABLE - 1);
    }

    /// A checkpoint cannot be read: the one before takes its place.
    pub fn rejected(&mut self, uri: &str) {
        self.older_checkpoints.retain(|it| it.uri != uri);
        if self.checkpoint.as_ref().is_some_and(|it| it.uri == uri) {
            let has_older = !self.older_checkpoints.is_empty();
            self.checkpoint = has_older.then(|| self.older_checkpoints.remove(0));
        }
    }

    /// The tasks of its present life.
    pub fn tasks_of(&mut self, incarnation: Incarnation) -> Option<&mut TaskSet> {
        let life = self.life.as_ref()?;
        let is_present = life.incarnation == incarnation;
        self.tasks.as_mut().filter(|_| is_present)
    }

    /// A task set never needs more containers than it has tasks left; those that it has it
    /// keeps, since taking one away stops them all.
    pub fn bound_by_tasks(&mut self) {
        let Some(tasks) = &self.tasks else {
            return;
        };
        let left = u32::try_from(tasks.remaining()).unwrap_or(u32::MAX);
        let has = self.assignment.as_ref().map_or(0, Assignment::containers);
        let needs = left.max(has).max(self.containers.min);
        self.containers.max = self.containers.max.min(needs);
    }

    /// Another assignment takes the place of the present one.
    pub fn assign(&mut self, assignment: Option<Assignment>) {
        if assignment.is_some() {
            self.waiting_since = None;
        }
        let old = std::mem::replace(&mut self.assignment, assignment);
        let lived = self.life.as_ref().map(|life| life.incarnation);
        let stopped = self.last_stop.as_ref().map(|stop| stop.incarnation);
        let Some(mut old) = old else {
            return;
        };
        match &self.life {
            Some(life) if life.incarnation == old.incarnation => {
                // Of what is resized in place, newcomers that have not been asked for.
                old.places.append(&mut old.dropped);
                let asked = |rank: &Rank| life.containers.contains_key(rank);
                let may_join = |rank: &Rank| life.members.is_some() && !asked(rank);
                old.places.retain(|rank, _| may_join(rank));
            }
            _ if Some(old.incarnation) <= lived.max(stopped) => return,
            _ => {}
        }
        if old.places.is_empty() {
            return;
        }
        self.superseded.insert(old.incarnation, old.places);
        if self.superseded.len() > SUPERSEDED_KEPT {
            self.superseded.pop_first();
        }
    }

    /// The places of an incarnation that is asked to start. Those of earlier ones are forgotten.
    pub fn places_to_start(&mut self, incarnation: Incarnation) -> Option<BTreeMap<Rank, Place>> {
        let later = self.superseded.split_off(&incarnation);
        self.superseded = later;
        let superseded = self.superseded.remove(&incarnation);
        let assigned = self.assignment.as_ref();
        let assigned = assigned.filter(|assignment| assignment.incarnation == incarnation);
        assigned
            .map(|assignment| assignment.places.clone())
            .or(superseded)
    }

    /// Whether its assignment is not (yet) what runs.
    #[must_use]
    pub fn in_transit(&self) -> bool {
        match (&self.assignment, &self.life) {
            (Some(assignment), Some(life)) => {
                life.incarnation != assignment.incarnation || life.phase != LifePhase::Running
            }
            (Some(_), None) => true,
            (None, life) => life.is_some(),
        }
    }

    /// When the life that runs may be resized because others come and go: when it is ready (it has
    /// reported progress, or has been silent for long enough) and has run for its `min_run_s`. Drains,
    /// losses and cancellations do not ask. It depends on the job's own life alone, so that it does
    /// not move with what others measure.
    #[must_use]
    pub fn settled_at(&self, policy: &Policy) -> Option<Timestamp> {
        let life = self.life.as_ref()?;
        let since = life.running_since?;
        let ready = match (self.ready, life.ready_at) {
            (Some(Ready::Progress), Some(ready)) => ready,
            (Some(Ready::Progress), None) => since.plus_ms(SILENT_AT_MOST_MS),
            (None, _) => since,
        };
        if let Some(min_run_s) = self.min_run_s.or(policy.min_run_s) {
            return Some(since.plus_ms(u64::from(min_run_s) * 1000).max(ready));
        }
        let started_ms = since.ms_since(life.requested_at);
        let cost_ms = self.stall_ms.unwrap_or(started_ms) + self.warm_up_ms.unwrap_or(0);
        let min_run_ms = cost_ms.saturating_mul(MIN_RUN_COSTS);
        let min_run_ms = min_run_ms.clamp(MIN_RUN_LEAST_MS, MIN_RUN_MOST_MS);
        let settled = since.plus_ms(min_run_ms);
        Some(match life.ready_at {
            Some(ready) => settled.max(ready),
            None => settled.max(since.plus_ms(SILENT_MS)).max(ready),
        })
    }

    /// Whether its newest assignment still has to be started.
    #[must_use]
    pub fn waits_to_start(&self) -> Option<&Assignment> {
        let assignment = self.assignment.as_ref()?;
        let lived = match (&self.life, &self.last_stop) {
            (Some(life), _) => Some(life.incarnation),
            (None, Some(stop)) => Some(stop.incarnation),
            (None, None) => None,
        };
        lived
            .is_none_or(|lived| lived < assignment.incarnation)
            .then_some(assignment)
    }

    /// The containers of its life that still hold room: their nodes and demands.
    pub fn held(&self) -> impl Iterator<Item = (&NodeId, &Amounts)> {
        let containers = self.life.iter().flat_map(|life| &life.containers);
        let held = containers.filter(|(_, container)| container.holds_room());
        held.map(|(rank, container)| (&container.place.node, self.demand_at(*rank)))
    }
}
