//! The job table: one row per job, bounded by [`ENDED_LIMIT`], [`REFUSED_LIMIT`] and [`INCARNATIONS_LIMIT`].
//! Ended jobs keep only figures.
//!
//! - `table.rs`: maps and dispatch of events
//! - `evolve.rs`, `allocate.rs`, `gpus.rs`: effects of events
//! - `phase.rs`: phases; [`reason`], [`turn`], [`room`]: reasons for people

mod allocate;
mod evolve;
mod gpus;
mod phase;
pub mod reason;
pub mod room;
mod table;
#[cfg(test)]
mod tests;
pub mod turn;

use std::borrow::Cow;
use std::collections::BTreeMap;

use dormouse_messages::events::StopReason;
use dormouse_messages::job::{Containers, Executor, Kind};
use dormouse_messages::workdir::Workdir;
use dormouse_messages::{
    Amounts, AuxiliaryRoles, By, Epoch, Incarnation, JobClass, JobId, NodeId, Rank, Sequence,
    SerializedSpec, TenantId, Timestamp,
};
use serde::{Deserialize, Serialize};

use dormouse_state::{ClusterState, TaskSet};

use crate::nodes::of_job;

pub use gpus::GpuUsed;
pub use phase::{Phase, PhaseCounts};
pub use table::JobTable;

/// Limit on ended jobs: about 50 MB, months of a busy cluster.
pub const ENDED_LIMIT: usize = 50_000;
/// Limit on refused submissions: enough to find one in a flood.
pub const REFUSED_LIMIT: usize = 10_000;
/// Limit on a job's incarnations: a day with a resize every 20 minutes.
pub const INCARNATIONS_LIMIT: usize = 72;
/// A line or two of a screen.
const COMMAND_LIMIT: usize = 240;
const PENDING_LIMIT: usize = 100_000;

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Orders the queue.
    pub admitted_sequence: Sequence,
    pub ingress_sequence: u64,
    /// An equal document is the same job.
    pub sha256: String,
    pub submitted_by: Option<By>,
    pub cancelled_by: Option<By>,
    pub kind: Kind,
    pub executor: Executor,
    pub phase: Phase,
    /// Restarts with fewer containers or returns to the queue, for others.
    pub preempted: u32,
    pub now: u32,
    pub target: u32,
    /// Dominant share s of the target (Dorm: max over k of d_k n / C_k).
    pub share: f64,
    /// Weighted DRF share ŝ.
    pub fair_share: f64,
    /// The last allocation that named the job.
    pub epoch: Epoch,
    pub times: Times,
    /// Incarnations started by adjustments.
    pub resizes: u32,
    /// Incarnations started after losses and failures.
    pub restarts: u32,
    /// Incarnations ended by the job's own failure.
    pub attempts: u32,
    pub resize_ms: u64,
    pub recovery_ms: u64,
    /// Container-milliseconds of completed incarnations.
    pub container_ms: u64,
    pub code: String,
    /// Reason for waiting or for the end.
    pub note: String,
    pub progress: Option<Box<ProgressPoint>>,
    pub checkpoint: Option<Box<SavedCheckpoint>>,
    pub incarnations: Vec<IncarnationHistory>,
    pub incarnations_dropped: u32,
    /// At the end; a live job's request stands in the cluster's state.
    pub last_request: Option<Box<Request>>,
    pub gpu: Option<Box<GpuUsed>>,
    /// Empty for a live job, which has its spec.
    pub command: String,
    pub workdir: Option<Box<Workdir>>,
    pub live: Option<Box<Live>>,
}

/// A job's request, as last revised.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub weight: u32,
    pub class: Option<JobClass>,
    pub bounds: Containers,
    /// Demand of one worker.
    pub demand: Amounts,
    pub auxiliary: AuxiliaryRoles,
    pub tasks: Option<TaskCounts>,
}

impl Request {
    /// Returns a live job's request.
    #[must_use]
    pub fn of(job: &dormouse_state::Job) -> Self {
        Self {
            weight: job.weight,
            class: job.precedence.class.clone(),
            bounds: job.containers,
            demand: job.demand.clone(),
            auxiliary: job.auxiliary.clone(),
            tasks: job.tasks.as_ref().map(TaskCounts::of),
        }
    }

    /// Returns the amounts of `containers` containers, roles included.
    #[must_use]
    pub fn amounts(&self, containers: u32) -> Amounts {
        let mut amounts = Amounts::new();
        self.auxiliary
            .add_to(&mut amounts, &self.demand, u64::from(containers));
        amounts
    }
}

/// The progress of a task set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCounts {
    pub count: u32,
    /// Tasks that exited with 0.
    pub completed: u32,
    /// Tasks that failed for good.
    pub failed: u32,
    /// Running or next.
    pub assigned: u32,
    pub retried: u32,
}

impl TaskCounts {
    /// Returns a task set's counts.
    #[must_use]
    pub fn of(set: &TaskSet) -> Self {
        let number = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        Self {
            count: set.count,
            completed: set.completed,
            failed: number(set.failed.len()),
            assigned: number(set.running()),
            retried: set.retried,
        }
    }
}

/// Times of a job's course.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    pub submitted: Timestamp,
    pub admitted: Timestamp,
    pub released: Option<Timestamp>,
    pub first_started: Option<Timestamp>,
    pub phase_since: Timestamp,
    pub ended: Option<Timestamp>,
}

/// The past of a live job, dropped at its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Live {
    /// Packed, as rarely read.
    pub spec: SerializedSpec,
    /// Set between two incarnations.
    pub transit: Option<Transit>,
    pub exit: Option<Exit>,
    /// True if the job was stopped for others.
    pub preempted: bool,
    /// Reason of the last unready replica, until one is ready.
    pub unready: Option<String>,
}

/// The time between two incarnations of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transit {
    pub cause: StopReason,
    pub from: u32,
    /// Start of the time without progress.
    pub since: Timestamp,
    pub saved_step: Option<u64>,
    pub save_failed: Option<String>,
}

/// A container's abnormal exit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub rank: Rank,
    pub node: NodeId,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub out_of_memory: bool,
    pub reason: Option<String>,
}

/// The last progress report of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProgressPoint {
    pub at: Timestamp,
    pub step: u64,
    /// 0 if unknown.
    pub steps_total: u64,
    /// Such as loss or accuracy.
    pub metrics: Vec<(String, f64)>,
}

/// A checkpoint on the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedCheckpoint {
    pub at: Timestamp,
    pub incarnation: Incarnation,
    pub uri: String,
    pub step: u64,
    pub bytes: u64,
    /// 0 without a request.
    pub duration_ms: u64,
}

/// The reason for a stop other than a resize or move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoppedFor {
    /// By its tenant or an operator.
    Hold,
    /// By a service or a higher class.
    Preemption,
}

/// One incarnation of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncarnationHistory {
    pub incarnation: Incarnation,
    pub epoch: Epoch,
    pub containers: u32,
    /// Start of this number of containers.
    pub since: Option<Timestamp>,
    pub nodes: u32,
    /// Every node used.
    pub on: Vec<NodeId>,
    pub requested: Timestamp,
    pub started: Option<Timestamp>,
    pub stopped: Option<Timestamp>,
    /// Absent if the job ended too.
    pub stop_reason: Option<StopReason>,
    /// Absent for a resize or move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_for: Option<StoppedFor>,
    /// Absent on a first start.
    pub resumed_step: Option<u64>,
}

/// A refused submission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    pub at: Timestamp,
    pub job: Option<JobId>,
    /// Absent for an invalid name.
    pub tenant: Option<TenantId>,
    pub verb: String,
    pub ingress_sequence: u64,
    pub code: String,
    pub reason: String,
}

/// Counts the containers on each node: of a partition resized in place those that are there or come, otherwise
/// the whole gang.
#[must_use]
pub fn nodes_of(id: &JobId, job: &dormouse_state::Job) -> BTreeMap<NodeId, u32> {
    let mut nodes: BTreeMap<NodeId, u32> = BTreeMap::new();
    let mut count = |node: &NodeId| *nodes.entry(node.clone()).or_default() += 1;
    match job.partition.as_ref().filter(|_| !job.in_place) {
        Some(partition) => partition
            .containers
            .values()
            .for_each(|container| count(&container.place.node)),
        None => of_job(id, job).for_each(|container| count(container.node)),
    }
    nodes
}

impl Job {
    /// Returns the last incarnation that was asked to start, or 0.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        let last = self.incarnations.last();
        last.map_or(Incarnation::default(), |it| it.incarnation)
    }

    /// Returns the present request, or the last one of an ended job.
    #[must_use]
    pub fn request<'a>(&'a self, id: &JobId, state: &ClusterState) -> Option<Cow<'a, Request>> {
        match &self.last_request {
            Some(last) => Some(Cow::Borrowed(last)),
            None => state.job(id).map(|job| Cow::Owned(Request::of(job))),
        }
    }

    /// True if a partition runs.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.now > 0
    }

    /// Returns the seconds from submission to end.
    #[must_use]
    pub fn jct_s(&self) -> Option<f64> {
        let ended = self.times.ended?;
        Some(ended.seconds_since(self.times.submitted))
    }

    /// Returns the seconds from submission to first start, end or `now`.
    #[must_use]
    pub fn waiting_s(&self, now: Timestamp) -> f64 {
        let until = self.times.first_started.or(self.times.ended);
        until
            .unwrap_or(now)
            .seconds_since(self.times.submitted)
            .max(0.0)
    }

    /// Returns the container-seconds until `now`.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "a figure to read; 2^53 ms of containers are exact"
    )]
    pub fn container_s(&self, now: Timestamp) -> f64 {
        let running = self
            .incarnations
            .last()
            .filter(|it| it.stopped.is_none())
            .and_then(|it| Some(f64::from(it.containers) * now.seconds_since(it.since?)));
        self.container_ms as f64 / 1e3 + running.unwrap_or(0.0).max(0.0)
    }
}
