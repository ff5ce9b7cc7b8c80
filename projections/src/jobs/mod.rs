//! The job table: one row per job, from submission to end.
//!
//! Rows hold figures and phases; `reason.rs` writes the REASON text on demand. A live job holds its spec and
//! placement, an ended one only figures. Bounds: [`ENDED_LIMIT`], [`REFUSED_LIMIT`], [`LIVES_LIMIT`]; counts
//! continue.
//!
//! - `table.rs`: maps, bounds and dispatch of events
//! - `evolve.rs`, `allocate.rs`, `gpus.rs`: the effect of events on a job
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

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::StopReason;
use dormouse_messages::job::{Containers, Executor, Kind};
use dormouse_messages::workdir::Workdir;
use dormouse_messages::{
    Amounts, Beside, By, Epoch, Incarnation, JobClass, JobId, KeptSpec, NodeId, Rank, Sequence,
    TenantId, Timestamp,
};
use serde::{Deserialize, Serialize};

use dormouse_state::TaskSet;

pub use gpus::GpuUsed;
pub use phase::{Phase, PhaseCounts};
pub use table::JobTable;

/// Ended jobs in the table: about 50 MB, months of a busy cluster.
pub const ENDED_LIMIT: usize = 50_000;
/// Refused submissions in the table: enough to find one in a flood.
pub const REFUSED_LIMIT: usize = 10_000;
/// Incarnations per job in the table: a day with a resize every 20 minutes.
pub const LIVES_LIMIT: usize = 72;
/// Bytes of an ended job's command: a line or two of a screen.
const COMMAND_LIMIT: usize = 240;
/// Limit on submissions received and not decided.
const PENDING_LIMIT: usize = 100_000;

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The admission's sequence, which orders the queue.
    pub admitted_sequence: Sequence,
    pub ingress_sequence: u64,
    /// Hash of the submitted bytes: an equal document is the same job.
    pub sha256: String,
    /// The submitting user, if the broker vouches for one.
    #[serde(default)]
    pub submitted_by: Option<By>,
    /// The user who cancelled the job.
    #[serde(default)]
    pub cancelled_by: Option<By>,
    pub kind: Kind,
    pub executor: Executor,
    pub phase: Phase,
    pub weight: u32,
    pub class: Option<JobClass>,
    /// Preemptions: restarts with fewer containers or returns to the queue, for other jobs.
    pub preempted: u32,
    pub bounds: Containers,
    /// Demand of one worker.
    pub demand: Amounts,
    /// Roles next to the workers.
    #[serde(default)]
    pub beside: Beside,
    /// Running containers.
    pub now: u32,
    /// Containers in the last allocation.
    pub target: u32,
    /// Dominant share s of the target (Dorm: max over k of d_k n / C_k).
    pub share: f64,
    /// Weighted DRF share ŝ.
    pub fair_share: f64,
    /// The last allocation that named the job.
    pub epoch: Epoch,
    /// The partition's incarnation; 0 before the first.
    pub incarnation: Incarnation,
    pub times: Times,
    /// Incarnations started by an adjustment.
    pub resizes: u32,
    /// Incarnations started after a lost node or a failure.
    pub restarts: u32,
    /// Incarnations that ended in the job's own failure.
    pub attempts: u32,
    /// From save requests to the next starts, for adjustments.
    pub resize_ms: u64,
    /// From stops to the next starts, after losses and failures.
    pub recovery_ms: u64,
    /// Container-milliseconds of completed incarnations.
    pub container_ms: u64,
    /// Machine-readable cause of waiting.
    pub code: String,
    /// Reason for waiting (from the allocation) or for the end.
    pub note: String,
    pub progress: Option<Box<ProgressPoint>>,
    pub checkpoint: Option<Box<SavedCheckpoint>>,
    /// Incarnations, oldest first.
    pub lives: Vec<Life>,
    /// Older incarnations, dropped.
    pub lives_dropped: u32,
    pub tasks: Option<TaskCounts>,
    pub gpu: Option<Box<GpuUsed>>,
    /// Command of an ended job, cut at [`COMMAND_LIMIT`] bytes; a live job has its spec.
    #[serde(default)]
    pub command: String,
    #[serde(default)]
    pub workdir: Option<Box<Workdir>>,
    pub live: Option<Box<Live>>,
}

/// The progress of a task set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCounts {
    pub count: u32,
    /// Tasks that exited with 0.
    pub completed: u32,
    /// Tasks that failed for good.
    pub failed: u32,
    /// Tasks in containers, running or next.
    pub assigned: u32,
    /// Failures with a retry.
    pub retried: u32,
}

impl TaskCounts {
    /// Returns the counts of a task set.
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

/// Times of a job's course, by the log's time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    pub submitted: Timestamp,
    pub admitted: Timestamp,
    pub released: Option<Timestamp>,
    pub first_started: Option<Timestamp>,
    pub phase_since: Timestamp,
    pub ended: Option<Timestamp>,
}

/// The state that only a live job needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Live {
    /// The spec with revisions, packed since it is rarely read.
    pub spec: KeptSpec,
    /// True if containers come and go within one incarnation.
    pub in_place: bool,
    /// Retries of a task.
    pub retries: u32,
    /// Placements by incarnation, oldest first.
    pub gangs: Vec<Gang>,
    /// Set between two incarnations.
    pub transit: Option<Transit>,
    /// The first abnormal exit of the present incarnation.
    pub exit: Option<Exit>,
    /// Ranks asked to leave while the job runs.
    pub leaving: BTreeSet<Rank>,
    /// Started containers of the present incarnation.
    pub seen: u32,
    pub cancel_requested: bool,
    pub on_hold: bool,
    /// True if `on_hold` lasts only until the containers ended.
    pub requeued: bool,
    /// True if the allocation that stopped the job made room for others.
    #[serde(default)]
    pub preempted: bool,
    pub tasks: Option<TaskSet>,
    /// Reason why the last replica was unready; none once one is ready.
    #[serde(default)]
    pub unready: Option<String>,
}

/// The containers of one incarnation by node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gang {
    pub incarnation: Incarnation,
    /// The placement; a later one replaces it.
    pub placed: Sequence,
    /// Containers by node, in order of placement.
    pub nodes: Vec<(NodeId, u32)>,
    /// Node of each rank, for a job resized in place.
    #[serde(default)]
    pub places: BTreeMap<Rank, NodeId>,
    /// Ranks taken back by a later placement, until they exit.
    #[serde(default)]
    pub taken_back: BTreeSet<Rank>,
}

/// The time between two incarnations of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transit {
    /// Reason for the end of the last incarnation.
    pub cause: StopReason,
    /// Containers of the last incarnation.
    pub from: u32,
    /// Start of the time without progress.
    pub since: Timestamp,
    /// Step of the checkpoint saved for the change.
    pub saved_step: Option<u64>,
    /// Reason of a failed save.
    pub save_failed: Option<String>,
}

/// An abnormal exit of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub rank: Rank,
    pub node: NodeId,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub out_of_memory: bool,
    /// Details from the agent.
    pub reason: Option<String>,
}

/// The last progress report of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProgressPoint {
    pub at: Timestamp,
    pub step: u64,
    /// 0 if unknown.
    pub steps_total: u64,
    /// Other reported values, such as loss or accuracy, by name.
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
    /// Since the request; 0 without one.
    pub duration_ms: u64,
}

/// The reason why an adjustment stopped an incarnation, other than a resize or move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoppedFor {
    /// Held or requeued by its tenant or an operator.
    Hold,
    /// Preempted by a service or a job of a higher class.
    Preemption,
}

/// One incarnation of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    pub incarnation: Incarnation,
    pub epoch: Epoch,
    /// Containers, the latest number if resized in place.
    pub containers: u32,
    /// Start of the present number of containers.
    pub since: Option<Timestamp>,
    /// Number of nodes.
    pub nodes: u32,
    /// Every node used, by name.
    pub on: Vec<NodeId>,
    pub requested: Timestamp,
    /// Time at which every container ran.
    pub started: Option<Timestamp>,
    /// Time at which the last container ended.
    pub stopped: Option<Timestamp>,
    /// Absent if the job ended too.
    pub stop_reason: Option<StopReason>,
    /// Absent for a resize or move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_for: Option<StoppedFor>,
    /// Step of the checkpoint resumed from; absent on a first start.
    pub resumed_step: Option<u64>,
}

/// A refused submission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    pub at: Timestamp,
    /// The job in question, if known.
    pub job: Option<JobId>,
    /// The tenant, if its name is valid.
    pub tenant: Option<TenantId>,
    /// `submit`; empty if the submission is unknown.
    pub verb: String,
    pub ingress_sequence: u64,
    pub code: String,
    pub reason: String,
}

impl Job {
    /// Returns the gang of the present incarnation, or of the next before its start.
    #[must_use]
    pub fn gang(&self) -> Option<&Gang> {
        let gangs = &self.live.as_ref()?.gangs;
        gangs
            .iter()
            .find(|gang| gang.incarnation == self.incarnation)
            .or_else(|| gangs.last())
    }

    /// True if a partition runs.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.now > 0
    }

    /// Returns the seconds from submission to end; `None` for a live job.
    #[must_use]
    pub fn jct_s(&self) -> Option<f64> {
        let ended = self.times.ended?;
        Some(ended.seconds_since(self.times.submitted))
    }

    /// Returns the seconds from submission to first start, to end or to `now`.
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
            .lives
            .last()
            .filter(|life| life.stopped.is_none())
            .and_then(|life| Some(f64::from(life.containers) * now.seconds_since(life.since?)));
        self.container_ms as f64 / 1e3 + running.unwrap_or(0.0).max(0.0)
    }
}
