//! Events of admission: intake, release, revision and cancellation of jobs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Basis;
use crate::budget::BudgetLevel;
use crate::ids::{JobId, NodeId, ReservationId, Sequence, TenantId};
use crate::job::{Containers, JobSpec};
use crate::policy::Queue;
use crate::reservation::ReservationPhase;
use crate::subject::MEASURED;
use crate::time::Timestamp;
use crate::who::By;

/// The encoding of `raw`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawEncoding {
    /// Plain UTF-8 text.
    Utf8,
    /// Lower-case hexadecimal.
    Hex,
}

/// A message arrived from a tenant. Admission decides from this record alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SubmissionReceived {
    /// Sequence in the ingress stream; identifies redeliveries.
    pub ingress_sequence: u64,
    /// The subject's tenant token, as published.
    pub tenant: String,
    /// `submit`, `cancel`, `revise` or `measured`.
    pub verb: String,
    /// Media type, from the header or detected.
    pub content_type: String,
    /// Size of the whole payload.
    pub bytes: u64,
    /// SHA-256 of the payload, in lower-case hexadecimal.
    pub sha256: String,
    /// The payload, truncated to [`SubmissionReceived::RAW_LIMIT_BYTES`].
    pub raw: String,
    /// Encoding of `raw`.
    pub raw_encoding: RawEncoding,
    /// Time of storage at the broker.
    pub published_at: Timestamp,
    /// The publishing user; absent for the tenant's own key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
}

/// Submissions above a tenant's rate are refused together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SubmissionsRateLimited {
    /// The subject's tenant token, as published.
    pub tenant: String,
    /// Ingress sequence of the first refused submission.
    pub first: u64,
    /// Ingress sequence of the last; others' submissions lie between.
    pub last: u64,
    /// Number of refused submissions.
    pub count: u64,
    /// Time of the first's storage.
    pub since: Timestamp,
    /// Time of the last's storage.
    pub until: Timestamp,
    /// The tenant's limit in submissions a second.
    pub max_rate: u32,
    /// `measured` for measurements, which have their own rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verb: Option<String>,
}

impl SubmissionReceived {
    /// Limit on recorded bytes: fits long environments, and the log bears ten thousand submissions a second.
    pub const RAW_LIMIT_BYTES: usize = 256 * 1024;

    /// The largest measurement takes some 6 KiB, and the log keeps refused ones, too.
    pub const MEASURED_LIMIT_BYTES: usize = 16 * 1024;

    /// Returns the size limit for `verb`.
    #[must_use]
    pub fn limit_bytes(verb: &str) -> usize {
        match verb {
            MEASURED => Self::MEASURED_LIMIT_BYTES,
            _ => Self::RAW_LIMIT_BYTES,
        }
    }
}

/// A valid submission is queued as a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobAdmitted {
    /// The job.
    pub job: JobId,
    /// The normalised job spec.
    pub spec: JobSpec,
    /// Ingress sequence of the submission.
    pub ingress_sequence: u64,
    /// The requesting user, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// A submission, cancellation or revision is refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobRefused {
    /// The job in question, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// The tenant, if its name is valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// Ingress sequence of the submission.
    pub ingress_sequence: u64,
    /// Machine-readable cause.
    pub code: String,
    /// Error and remedy, for a person.
    pub reason: String,
    /// The requesting user, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// A queued job may have containers from now on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobReleased {
    /// The job.
    pub job: JobId,
    /// State of the queue at the job's turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<Turn>,
    /// Blocked heads overtaken for the first time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<JobId>,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// The reasons for a tenant's turn. Shares are fractions of the cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Turn {
    /// The queue policy in force.
    pub queue: Queue,
    /// Dominant share of the tenant's running jobs.
    pub share: f64,
    /// Dominant share of the tenant's queued jobs.
    pub demand_share: f64,
    /// The tenant's weight.
    pub weight: u32,
    /// Factor of the weight by past use, in thousandths; absent without a memory of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<u64>,
    /// The tenant's queued jobs, including this one.
    pub queued: u64,
    /// The job's time in the queue.
    pub waited_ms: u64,
}

/// A job is held or resumed, or its weight, bounds, priority or limits change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobRevised {
    /// The job.
    pub job: JobId,
    /// Ingress sequence of the submission.
    pub ingress_sequence: u64,
    /// The new weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// The new bounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containers: Option<Containers>,
    /// The new priority in the tenant's queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// True to hold the job without containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<bool>,
    /// The new limit on the run time; 0 for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_s: Option<u32>,
    /// The new limit on the wait for the first start; 0 for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_limit_s: Option<u32>,
    /// The new limit in thousandths of a GPU; running containers continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_limit_milli: Option<u64>,
    /// The requesting user, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

impl JobRevised {
    /// Returns an empty revision.
    #[must_use]
    pub const fn nothing(job: JobId, ingress_sequence: u64) -> Self {
        Self {
            job,
            ingress_sequence,
            weight: None,
            containers: None,
            priority: None,
            held: None,
            time_limit_s: None,
            queue_limit_s: None,
            gpu_limit_milli: None,
            by: None,
            basis: None,
        }
    }
}

/// A job gives up its containers, which save and stop, and starts again later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobRequeued {
    /// The job.
    pub job: JobId,
    /// Ingress sequence of the submission.
    pub ingress_sequence: u64,
    /// The requesting user, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// A released job is to be cancelled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobCancelRequested {
    /// The job.
    pub job: JobId,
    /// Ingress sequence of the request.
    pub ingress_sequence: u64,
    /// The requesting user, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// A submission named a valid plan, which fixes the job's first allocation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanAccepted {
    /// The job.
    pub job: JobId,
    /// Ingress sequence of the submission.
    pub ingress_sequence: u64,
    /// Planned containers; 0 if the job waits.
    pub containers: u32,
    /// The last event before the plan.
    pub planned_at: Sequence,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// A concurrent decision changed a job's planned allocation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanMissed {
    /// The job.
    pub job: JobId,
    /// Planned containers.
    pub planned: u32,
    /// Allocated containers; 0 if the job waits.
    pub containers: u32,
    /// Sequence of that allocation.
    pub decided: Sequence,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// A tenant's use of its budget has another level.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetLevelChanged {
    /// The tenant.
    pub tenant: TenantId,
    /// The level from now on.
    pub level: BudgetLevel,
    /// The resource of which most is used.
    pub resource: String,
    /// Amount times hours used in the period, rounded down.
    pub used: u64,
    /// The budget with the carried-over part, likewise.
    pub budget: u64,
    /// The end of the period; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// A reservation enters another phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReservationPhaseChanged {
    /// The reservation.
    pub reservation: ReservationId,
    /// The phase from now on.
    pub phase: ReservationPhase,
    /// Its nodes; for amounts they are chosen for each occurrence.
    pub nodes: Vec<NodeId>,
    /// The beginning of the occurrence.
    pub from: Timestamp,
    /// The end of the occurrence.
    pub until: Timestamp,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}
