//! The job table: one row a job, from its submission to its end.
//!
//! Folds nearly every event. A row keeps figures and phases only; the words of the REASON
//! column are made from them when somebody asks (`reason.rs`), never while folding.
//!
//! Bounded: a live job holds its specification and placement; an ended one only its figures.
//! The table keeps the last [`ENDED_LIMIT`] ended jobs, the last [`REFUSED_LIMIT`] refused
//! submissions and the last [`LIVES_LIMIT`] lives of a job; counts go on.

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

/// Ended jobs that are kept: about 50 MB of figures, months of a busy cluster.
pub const ENDED_LIMIT: usize = 50_000;
/// Refused submissions that are kept: enough to find one's own among a flood.
pub const REFUSED_LIMIT: usize = 10_000;
/// Lives of one job that are kept: a day of a resize every 20 minutes.
pub const LIVES_LIMIT: usize = 72;
/// Bytes that are kept of the command of a job that is over: a line or two of a screen.
const COMMAND_LIMIT: usize = 240;
/// Submissions that may stand between their receipt and the decision on them.
const PENDING_LIMIT: usize = 100_000;

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The admission on the log: the order of the queue.
    pub admitted_sequence: Sequence,
    /// The submission that made it.
    pub ingress_sequence: u64,
    /// Hash of the submitted bytes: the same document again is the same job.
    pub sha256: String,
    /// Who submitted it, where the broker vouches for a user.
    #[serde(default)]
    pub submitted_by: Option<By>,
    /// Who asked for its end.
    #[serde(default)]
    pub cancelled_by: Option<By>,
    /// Training or batch.
    pub kind: Kind,
    /// How its processes are told their cluster.
    pub executor: Executor,
    /// Where it is in its life.
    pub phase: Phase,
    /// Weight of its fair share.
    pub weight: u32,
    /// Its priority class.
    pub class: Option<JobClass>,
    /// How often it was restarted with fewer containers, or sent back to the queue, for others.
    pub preempted: u32,
    /// Fewest and most containers.
    pub bounds: Containers,
    /// Demand of one worker.
    pub demand: Amounts,
    /// What stands beside the workers.
    #[serde(default)]
    pub beside: Beside,
    /// Containers that run.
    pub now: u32,
    /// Containers that the last allocation gives it.
    pub target: u32,
    /// Dominant share s of the target (Dorm: max over k of d_k n / C_k).
    pub share: f64,
    /// Weighted DRF share ŝ.
    pub fair_share: f64,
    /// The last allocation that names it.
    pub epoch: Epoch,
    /// Its partition's life; 0 before the first.
    pub incarnation: Incarnation,
    /// When things happened, by the log's time.
    pub times: Times,
    /// Lives that an adjustment began.
    pub resizes: u32,
    /// Lives that a lost node or a failure of the gang began.
    pub restarts: u32,
    /// Lives that ended in a failure of the job's own.
    pub attempts: u32,
    /// Milliseconds without progress because of adjustments: from the request to save to the
    /// next start.
    pub resize_ms: u64,
    /// Milliseconds from a lost or failed gang's stop to the next start.
    pub recovery_ms: u64,
    /// Container-milliseconds run in lives that have ended.
    pub container_ms: u64,
    /// Machine-readable cause of waiting.
    pub code: String,
    /// Why it waits (from the allocation), or why it ended (from the event).
    pub note: String,
    /// The last report.
    pub progress: Option<Box<ProgressPoint>>,
    /// The last checkpoint on the log.
    pub checkpoint: Option<Box<SavedCheckpoint>>,
    /// Its partition's lives, oldest first.
    pub lives: Vec<Life>,
    /// Lives older than those.
    pub lives_dropped: u32,
    /// How far its tasks are, where it is a task set.
    pub tasks: Option<TaskCounts>,
    /// What it used of GPUs, where it has parts of some.
    pub gpu: Option<Box<GpuUsed>>,
    /// Of a job that is over: what it ran, cut at [`COMMAND_LIMIT`] bytes; a live one has its
    /// specification.
    #[serde(default)]
    pub command: String,
    /// The packed folder that went with it.
    #[serde(default)]
    pub workdir: Option<Box<Workdir>>,
    /// What only a live job needs.
    pub live: Option<Box<Live>>,
}

/// How far a task set is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCounts {
    /// All of its tasks.
    pub count: u32,
    /// Those that exited with 0.
    pub completed: u32,
    /// Those that failed for good.
    pub failed: u32,
    /// Those that containers have: run, or are to run next.
    pub assigned: u32,
    /// Failures of tasks that were, or are to be, tried again.
    pub retried: u32,
}

impl TaskCounts {
    /// The figures of a set.
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

/// When things happened, by the log's time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// The submission was received.
    pub submitted: Timestamp,
    /// The job was admitted.
    pub admitted: Timestamp,
    /// The queue let it go.
    pub released: Option<Timestamp>,
    /// Its first partition ran.
    pub first_started: Option<Timestamp>,
    /// The present phase began.
    pub phase_since: Timestamp,
    /// It completed, failed or was cancelled.
    pub ended: Option<Timestamp>,
}

/// What only a live job needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Live {
    /// Its specification, as it was admitted and revised; packed: it is read when it is asked for.
    pub spec: KeptSpec,
    /// Whether its containers come and go within one life.
    pub in_place: bool,
    /// How often a task of it is tried again.
    pub retries: u32,
    /// Where its gangs are placed, by life, oldest first.
    pub gangs: Vec<Gang>,
    /// Why it is between two lives.
    pub transit: Option<Transit>,
    /// The first abnormal exit of the present life.
    pub exit: Option<Exit>,
    /// Containers that were asked to leave while the job runs on.
    pub leaving: BTreeSet<Rank>,
    /// Containers of the present life that were seen to run.
    pub seen: u32,
    /// Whether its tenant asked to cancel it.
    pub cancel_requested: bool,
    /// Whether its tenant has put it on hold.
    pub on_hold: bool,
    /// Whether it is so only until its containers have ended.
    pub requeued: bool,
    /// Whether the allocation that it leaves for made room for others.
    #[serde(default)]
    pub preempted: bool,
    /// Its tasks, where it is a task set.
    pub tasks: Option<TaskSet>,
    /// Why its last replica was not ready, or not any more; none since one has been.
    #[serde(default)]
    pub unready: Option<String>,
}

/// The containers of one life by node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gang {
    /// The life.
    pub incarnation: Incarnation,
    /// The placement that made it: a later one replaces it.
    pub placed: Sequence,
    /// Containers by node, in the order placed.
    pub nodes: Vec<(NodeId, u32)>,
    /// Where each is, of a job whose containers come and go within one life.
    #[serde(default)]
    pub places: BTreeMap<Rank, NodeId>,
    /// Those of them whose place a later placement takes back: until they have left.
    #[serde(default)]
    pub taken_back: BTreeSet<Rank>,
}

/// Between two lives of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transit {
    /// Why the last one ends or ended.
    pub cause: StopReason,
    /// Its containers.
    pub from: u32,
    /// Since when no progress is made.
    pub since: Timestamp,
    /// The step saved for it.
    pub saved_step: Option<u64>,
    /// Why saving failed.
    pub save_failed: Option<String>,
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Its place in the gang.
    pub rank: Rank,
    /// Its node.
    pub node: NodeId,
    /// Exit code.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether it ran out of memory.
    pub out_of_memory: bool,
    /// What the agent knows beyond that.
    pub reason: Option<String>,
}

/// How far a job is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProgressPoint {
    /// When it was reported.
    pub at: Timestamp,
    /// Steps done.
    pub step: u64,
    /// Steps in all; 0 where it is not known.
    pub steps_total: u64,
    /// Whatever else it reports, such as loss or accuracy; by name.
    pub metrics: Vec<(String, f64)>,
}

/// A checkpoint on the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedCheckpoint {
    /// When it was complete.
    pub at: Timestamp,
    /// The life that saved it.
    pub incarnation: Incarnation,
    /// Where it is.
    pub uri: String,
    /// The job's step.
    pub step: u64,
    /// Its size.
    pub bytes: u64,
    /// From the request; 0 where there was none.
    pub duration_ms: u64,
}

/// For what an adjustment stopped a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoppedFor {
    /// Its tenant, or an operator, has put the job on hold, or requeued it.
    Hold,
    /// To make room for a service, or for a job of a higher class.
    Preemption,
}

/// One life of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// Its number.
    pub incarnation: Incarnation,
    /// The allocation that it carries out.
    pub epoch: Epoch,
    /// Its containers, the last ones where it was resized in place.
    pub containers: u32,
    /// Since when it has so many.
    pub since: Option<Timestamp>,
    /// The nodes they are on.
    pub nodes: u32,
    /// Every node that it had a container on, by name.
    pub on: Vec<NodeId>,
    /// When its start was requested.
    pub requested: Timestamp,
    /// When every container ran.
    pub started: Option<Timestamp>,
    /// When none ran any more.
    pub stopped: Option<Timestamp>,
    /// Why it ended; absent where the job ended with it.
    pub stop_reason: Option<StopReason>,
    /// For what it was stopped, if not to be resized or moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_for: Option<StoppedFor>,
    /// The step it resumed from; absent on a first start.
    pub resumed_step: Option<u64>,
}

/// A refused submission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// When it was refused.
    pub at: Timestamp,
    /// The job it named, where it could be told.
    pub job: Option<JobId>,
    /// Its tenant, where that is a valid name.
    pub tenant: Option<TenantId>,
    /// `submit`; empty where the submission is not known.
    pub verb: String,
    /// The submission.
    pub ingress_sequence: u64,
    /// Machine-readable cause.
    pub code: String,
    /// What is wrong and what to do.
    pub reason: String,
}

impl Job {
    /// Containers by node of the present life, or of the placed one before it starts.
    #[must_use]
    pub fn gang(&self) -> Option<&Gang> {
        let gangs = &self.live.as_ref()?.gangs;
        gangs
            .iter()
            .find(|gang| gang.incarnation == self.incarnation)
            .or_else(|| gangs.last())
    }

    /// Whether a partition of it runs.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.now > 0
    }

    /// Job completion time in seconds: from the submission to the end; `None` while it lives.
    #[must_use]
    pub fn jct_s(&self) -> Option<f64> {
        let ended = self.times.ended?;
        Some(ended.seconds_since(self.times.submitted))
    }

    /// Seconds from the submission to the first start, to the end or to `now`.
    #[must_use]
    pub fn waiting_s(&self, now: Timestamp) -> f64 {
        let until = self.times.first_started.or(self.times.ended);
        until
            .unwrap_or(now)
            .seconds_since(self.times.submitted)
            .max(0.0)
    }

    /// Container-seconds run until `now`.
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
