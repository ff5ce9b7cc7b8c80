//! A live job. Its *assignment* is the newest placement; its *partition* is the incarnation last asked to
//! start. While the two differ or the partition is not yet running, the job is in transit: new places and
//! held capacity both count as taken.
//!
//! - `assignment.rs`: the newest placement

mod assignment;

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{CHECKPOINTS_RESUMABLE, StopReason};
use dormouse_messages::job::{CheckpointMode, Containers, JobSpec, Ready, Success, Urgency};
use dormouse_messages::needs::ContainerType;
use dormouse_messages::policy::Policy;
use dormouse_messages::reservation::is_of_reservations;
use dormouse_messages::roles::Part;
use dormouse_messages::{
    Amounts, AuxiliaryRoles, Incarnation, JobId, Needs, NodeId, Rank, Resource, Sequence, Timestamp,
};
use serde::{Deserialize, Serialize};

use super::health::StartFaults;
use super::incarnation::{Partition, PartitionPhase, Place};
use super::limits::Limits;
use super::precedence::Precedence;
use super::tasks::TaskSet;

pub use assignment::Assignment;

/// Covers a lagging checkpointer; agents keep as many placements.
const SUPERSEDED_KEPT: usize = 4;

/// The default `min_run_s`, in costs of a resize: at most a fifth of a job's time goes into resizes.
const MIN_RUN_COSTS: u64 = 4;

/// The default's lower bound: a trainer needs a few seconds to import and to install signal handlers.
const MIN_RUN_LEAST_MS: u64 = 5_000;

/// The default's upper bound: the default objective lets a restart pay for itself within this time.
const MIN_RUN_MOST_MS: u64 = 900_000;

/// An incarnation without progress counts as ready after this time. Agents poll every second, and a framework
/// takes up to ten seconds to its first step.
const SILENT_MS: u64 = 15_000;

/// Bounds the wait for a promised first progress, so that a silent job does not block others without end.
const SILENT_AT_MOST_MS: u64 = 86_400_000;

/// A service's or notebook's time limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    pub drain_s: u32,
    pub ready_timeout_s: u32,
}

/// The end of the last incarnation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    pub incarnation: Incarnation,
    pub reason: StopReason,
    pub at: Timestamp,
    pub sequence: Sequence,
    /// The first failure.
    pub why: Option<String>,
    pub ran: bool,
}

/// A complete checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedCheckpoint {
    pub uri: String,
    pub step: u64,
    pub incarnation: Incarnation,
}

/// A live job and its progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Not started before these have completed.
    pub depends_on: Vec<JobId>,
    pub demand: Amounts,
    pub auxiliary: AuxiliaryRoles,
    pub weight: u32,
    pub containers: Containers,
    pub needs: Needs,
    pub static_containers: Option<u32>,
    pub mode: CheckpointMode,
    pub grace_s: u32,
    pub min_run_s: Option<u32>,
    pub ready: Option<Ready>,
    pub success: Success,
    pub retries: u32,
    pub limits: Limits,
    /// Gets no containers.
    pub on_hold: bool,
    /// On hold until its containers end.
    pub requeued: bool,
    /// Gets no containers until its tenant's budget allows it.
    pub over_budget: bool,
    pub admitted: Sequence,
    pub released: Option<Sequence>,
    pub cancel_requested: Option<Sequence>,
    pub waiting_since: Option<Timestamp>,
    pub assignment: Option<Assignment>,
    /// Older placements, or joining containers, never started; a lagging checkpointer may still start them.
    pub superseded: BTreeMap<Incarnation, BTreeMap<Rank, Place>>,
    pub partition: Option<Partition>,
    pub last_stop: Option<Stop>,
    pub attempts: u32,
    pub checkpoint: Option<SavedCheckpoint>,
    /// Newest first; fallbacks for unreadable checkpoints.
    pub older_checkpoints: Vec<SavedCheckpoint>,
    pub start_faults: StartFaults,
    pub kept_at: Option<Timestamp>,
    pub adjusting_since: Option<Timestamp>,
    /// From the last adjustment's request until running again.
    pub stall_ms: Option<u64>,
    pub warm_up_ms: Option<u64>,
    pub last_incarnation: Incarnation,
    pub tasks: Option<TaskSet>,
    pub in_place: bool,
    pub urgency: Urgency,
    pub serving: Option<Serving>,
    pub has_packages: bool,
    pub replicas: Option<u32>,
    pub deaths: Deaths,
    /// Gets the capacity taken from this job.
    pub made_for: Option<JobId>,
    pub precedence: Precedence,
    /// Stated speeds, in thousandths of the speed of one container.
    pub speed_milli: Vec<u32>,
}

/// Consecutive deaths of members.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deaths {
    pub count: u32,
    pub last: Timestamp,
}

impl Deaths {
    /// A longer pause resets the count.
    const FORGOTTEN_MS: u64 = 600_000;

    pub(crate) fn one_more(&mut self, at: Timestamp) {
        let long_ago = at.ms_since(self.last) > Self::FORGOTTEN_MS;
        self.count = if long_ago {
            1
        } else {
            self.count.saturating_add(1)
        };
        self.last = at;
    }

    /// Returns the next start: after 1, 2, 4, … at most 60 s.
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

/// Replaces the tolerations of reservations among others.
pub(crate) fn replace_tolerated(tolerations: &mut BTreeSet<String>, tolerated: &BTreeSet<String>) {
    tolerations.retain(|it| !is_of_reservations(it));
    tolerations.extend(tolerated.iter().cloned());
}

impl Job {
    /// Returns the job as admitted.
    #[must_use]
    pub fn admitted(spec: &JobSpec, admitted: Sequence, at: Timestamp) -> Self {
        Self {
            depends_on: spec.depends_on.clone(),
            limits: Limits::of(spec, at),
            on_hold: false,
            requeued: false,
            over_budget: false,
            demand: spec.demand.clone(),
            auxiliary: AuxiliaryRoles::of(spec),
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
            partition: None,
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
            speed_milli: spec.speed_milli.clone(),
        }
    }

    /// Returns the running job's end by its time limit.
    #[must_use]
    pub fn ends_at(&self) -> Option<Timestamp> {
        self.limits.stops_at(self.running_since()?)
    }

    /// Returns the end by the time limit, as if started at `now` if not running.
    #[must_use]
    pub fn would_end_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.limits.stops_at(self.running_since().unwrap_or(now))
    }

    /// Returns the time since all containers run.
    #[must_use]
    pub fn running_since(&self) -> Option<Timestamp> {
        self.partition.as_ref()?.running_since
    }

    /// Reports whether the present workers are on more than one node.
    pub(crate) fn is_apart(&self) -> bool {
        let containers = self.partition.iter().flat_map(|it| &it.containers);
        let workers =
            containers.filter(|(rank, it)| it.holds_room() && self.auxiliary.is_worker(**rank));
        let mut nodes = workers.map(|(_, container)| &container.place.node);
        let first = nodes.next();
        nodes.any(|node| Some(node) != first)
    }

    /// Returns the demand of a rank's container.
    #[must_use]
    pub fn demand_at(&self, rank: Rank) -> &Amounts {
        self.auxiliary
            .at(rank)
            .map_or(&self.demand, |part| &part.demand)
    }

    /// Returns a rank's node constraints.
    #[must_use]
    pub fn needs_at(&self, rank: Rank) -> &Needs {
        self.auxiliary
            .at(rank)
            .map_or(&self.needs, |part| &part.needs)
    }

    /// Returns the container type of a rank.
    #[must_use]
    pub fn type_at(&self, rank: Rank) -> ContainerType {
        let part = self.auxiliary.at(rank);
        part.map_or_else(|| self.container_type(), Part::container_type)
    }

    /// Returns the number of placed workers.
    #[must_use]
    pub fn workers(&self) -> u32 {
        let assignment = self.assignment.as_ref();
        assignment.map_or(0, |it| self.auxiliary.workers(it.containers()))
    }

    /// Returns the container type of the workers.
    #[must_use]
    pub fn container_type(&self) -> ContainerType {
        ContainerType {
            demand: self.demand.clone(),
            needs: self.needs.clone(),
        }
    }

    /// Returns a container's part of each assigned GPU, in thousandths.
    #[must_use]
    pub fn gpu_share(&self, rank: Rank) -> u64 {
        match self.demand_at(rank).get(&Resource::Gpu) {
            fraction @ 1..1000 => fraction,
            _ => 1000,
        }
    }

    /// Reports whether the job has replaceable replicas until cancelled.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.serving.is_some()
    }

    /// Returns the autoscaler's replicas, within bounds.
    #[must_use]
    pub fn target(&self) -> u32 {
        let Containers { min, max, .. } = self.containers;
        self.replicas.unwrap_or(min).clamp(min, max.max(min))
    }

    /// Reports whether the job should have no container.
    #[must_use]
    pub fn stands_down(&self) -> bool {
        self.on_hold || self.over_budget || (self.is_served() && self.target() == 0)
    }

    /// Reports whether the job gives its places up now. A held job in transit arrives first.
    #[must_use]
    pub fn gives_up(&self) -> bool {
        let on_its_way = self.assignment.is_some() && self.partition.is_some() && self.in_transit();
        self.stands_down() && (self.is_served() || !on_its_way)
    }

    /// Returns the tolerations of reservations.
    pub(crate) fn tolerated(&self) -> BTreeSet<String> {
        let tolerations = self.needs.tolerations.iter();
        let reserved = tolerations.filter(|it| is_of_reservations(it));
        reserved.cloned().collect()
    }

    /// Replaces the tolerations of reservations.
    pub(crate) fn tolerate(&mut self, tolerated: &BTreeSet<String>) {
        replace_tolerated(&mut self.needs.tolerations, tolerated);
        self.auxiliary
            .tolerate(|tolerations| replace_tolerated(tolerations, tolerated));
    }

    /// Reports whether any start was requested.
    #[must_use]
    pub fn ever_started(&self) -> bool {
        self.partition.is_some() || self.last_stop.is_some()
    }

    /// Reports whether a running job can change.
    #[must_use]
    pub fn is_adjustable(&self) -> bool {
        self.in_place || self.mode != CheckpointMode::None
    }

    /// Reports whether containers are starting, changing or leaving.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        self.in_transit() || self.differs() || self.has_to_leave()
    }

    /// Reports whether the arrival may change the allocation although no job waits. Not so for a starting job
    /// that cannot be changed.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        let changes = self.is_adjustable() || self.stands_down() || !self.is_only_starting();
        self.is_moving() && changes
    }

    fn is_only_starting(&self) -> bool {
        let Some(assignment) = self.assignment.as_ref().filter(|it| !it.displaced) else {
            return false;
        };
        self.partition.as_ref().is_none_or(|partition| {
            partition.incarnation == assignment.incarnation
                && partition.phase == PartitionPhase::Starting
        })
    }

    /// True if the job runs on a lost or draining node.
    fn has_to_leave(&self) -> bool {
        let assignment = self.assignment.as_ref();
        let displaced = assignment.is_some_and(|assignment| assignment.displaced);
        displaced && self.partition.is_some() && !self.in_place
    }

    fn differs(&self) -> bool {
        let members = self.partition.as_ref().and_then(|it| it.members.as_ref());
        let (Some(members), Some(assignment)) = (members, &self.assignment) else {
            return false;
        };
        members.change.is_some() || !members.current.iter().eq(assignment.places.keys())
    }

    /// Records a complete checkpoint. Late reports of earlier incarnations are ignored.
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

    /// Falls back to the previous checkpoint.
    pub fn rejected(&mut self, uri: &str) {
        self.older_checkpoints.retain(|it| it.uri != uri);
        if self.checkpoint.as_ref().is_some_and(|it| it.uri == uri) {
            let has_older = !self.older_checkpoints.is_empty();
            self.checkpoint = has_older.then(|| self.older_checkpoints.remove(0));
        }
    }

    /// Returns the current incarnation's tasks.
    pub fn tasks_of(&mut self, incarnation: Incarnation) -> Option<&mut TaskSet> {
        let partition = self.partition.as_ref()?;
        let is_present = partition.incarnation == incarnation;
        self.tasks.as_mut().filter(|_| is_present)
    }

    /// Bounds the containers by the remaining tasks, but not below the present ones: removing one stops all.
    pub fn bound_by_tasks(&mut self) {
        let Some(tasks) = &self.tasks else {
            return;
        };
        let left = u32::try_from(tasks.remaining()).unwrap_or(u32::MAX);
        let has = self.assignment.as_ref().map_or(0, Assignment::containers);
        let needs = left.max(has).max(self.containers.min);
        self.containers.max = self.containers.max.min(needs);
    }

    /// Replaces the assignment.
    pub fn assign(&mut self, assignment: Option<Assignment>) {
        if assignment.is_some() {
            self.waiting_since = None;
        }
        let old = std::mem::replace(&mut self.assignment, assignment);
        let lived = self.partition.as_ref().map(|it| it.incarnation);
        let stopped = self.last_stop.as_ref().map(|stop| stop.incarnation);
        let Some(mut old) = old else {
            return;
        };
        match &self.partition {
            Some(partition) if partition.incarnation == old.incarnation => {
                // Unrequested joining containers.
                old.places.append(&mut old.dropped);
                let asked = |rank: &Rank| partition.containers.contains_key(rank);
                let may_join = |rank: &Rank| partition.members.is_some() && !asked(rank);
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

    /// Returns a starting incarnation's places and forgets earlier ones.
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

    /// Reports whether the assignment does not run yet.
    #[must_use]
    pub fn in_transit(&self) -> bool {
        match (&self.assignment, &self.partition) {
            (Some(assignment), Some(partition)) => {
                partition.incarnation != assignment.incarnation
                    || partition.phase != PartitionPhase::Running
            }
            (Some(_), None) => true,
            (None, partition) => partition.is_some(),
        }
    }

    /// Returns the earliest resize on behalf of other jobs: once ready (or long silent) and after
    /// `min_run_s`. Drains, losses and cancellations do not wait. Measurements of other jobs do not move this
    /// time.
    #[must_use]
    pub fn settled_at(&self, policy: &Policy) -> Option<Timestamp> {
        let partition = self.partition.as_ref()?;
        let since = partition.running_since?;
        let ready = match (self.ready, partition.ready_at) {
            (Some(Ready::Progress), Some(ready)) => ready,
            (Some(Ready::Progress), None) => since.plus_ms(SILENT_AT_MOST_MS),
            (None, _) => since,
        };
        if let Some(min_run_s) = self.min_run_s.or(policy.min_run_s) {
            return Some(since.plus_ms(u64::from(min_run_s) * 1000).max(ready));
        }
        let started_ms = since.ms_since(partition.requested_at);
        let cost_ms = self.stall_ms.unwrap_or(started_ms) + self.warm_up_ms.unwrap_or(0);
        let min_run_ms = cost_ms.saturating_mul(MIN_RUN_COSTS);
        let min_run_ms = min_run_ms.clamp(MIN_RUN_LEAST_MS, MIN_RUN_MOST_MS);
        let settled = since.plus_ms(min_run_ms);
        Some(match partition.ready_at {
            Some(ready) => settled.max(ready),
            None => settled.max(since.plus_ms(SILENT_MS)).max(ready),
        })
    }

    /// Returns the newest assignment if not yet started.
    #[must_use]
    pub fn waits_to_start(&self) -> Option<&Assignment> {
        let assignment = self.assignment.as_ref()?;
        let lived = match (&self.partition, &self.last_stop) {
            (Some(partition), _) => Some(partition.incarnation),
            (None, Some(stop)) => Some(stop.incarnation),
            (None, None) => None,
        };
        lived
            .is_none_or(|lived| lived < assignment.incarnation)
            .then_some(assignment)
    }

    /// Iterates over the assigned containers whose start was not requested.
    pub fn reserved(&self) -> impl Iterator<Item = (Incarnation, &Rank, &Place)> {
        let waits = self.waits_to_start().is_some();
        let partition = self.partition.as_ref();
        self.assignment.iter().flat_map(move |assignment| {
            let own = partition.filter(|it| it.incarnation == assignment.incarnation);
            let is_open = move |rank: &Rank| match own {
                Some(partition) => !partition.containers.contains_key(rank),
                None => waits,
            };
            let places = assignment
                .places
                .iter()
                .filter(move |(rank, _)| is_open(rank));
            places.map(|(rank, place)| (assignment.incarnation, rank, place))
        })
    }

    /// Iterates over node and demand of containers that hold capacity.
    pub fn held(&self) -> impl Iterator<Item = (&NodeId, &Amounts)> {
        let containers = self.partition.iter().flat_map(|it| &it.containers);
        let held = containers.filter(|(_, container)| container.holds_room());
        held.map(|(rank, container)| (&container.place.node, self.demand_at(*rank)))
    }
}
