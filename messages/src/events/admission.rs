//! What admission decides: intake and release.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Basis;
use crate::ids::{JobId, Sequence, TenantId};
use crate::job::{Containers, JobSpec};
use crate::policy::Queue;
use crate::subject::MEASURED;
use crate::time::Timestamp;
use crate::who::By;

/// How `raw` holds the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawEncoding {
    /// The payload is UTF-8 and stands as it is.
    Utf8,
    /// Lower-case hexadecimal of the bytes.
    Hex,
}

/// Something arrived on a tenant's ingress subject. The decision on it is made from this
/// record alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SubmissionReceived {
    /// Sequence in the ingress stream: a second delivery of it is always recognised.
    pub ingress_sequence: u64,
    /// The subject's tenant token, as it was published.
    pub tenant: String,
    /// `submit`, `cancel`, `revise` or `measured`.
    pub verb: String,
    /// The payload's media type: as its header says, else recognised.
    pub content_type: String,
    /// Size of the whole payload.
    pub bytes: u64,
    /// Of the whole payload, lower-case hexadecimal.
    pub sha256: String,
    /// The payload, cut off past [`SubmissionReceived::RAW_LIMIT_BYTES`].
    pub raw: String,
    /// How `raw` holds it.
    pub raw_encoding: RawEncoding,
    /// When the broker stored it in the ingress stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_at: Option<Timestamp>,
    /// Who published it, by the subject that the broker stored it under; absent where it is the
    /// tenant's own key, and where the broker has no accounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
}

/// Submissions of a tenant came faster than it may submit: they are refused, together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SubmissionsShed {
    /// The subject's tenant token, as it was published.
    pub tenant: String,
    /// The first one's sequence in the ingress stream.
    pub first: u64,
    /// The last one's; other tenants' lie between.
    pub last: u64,
    /// How many they are.
    pub count: u64,
    /// When the broker stored the first.
    pub since: Timestamp,
    /// When it stored the last.
    pub until: Timestamp,
    /// Submissions a second that are taken of the tenant.
    pub max_rate: u32,
    /// `measured`, where they are measurements, which have a rate of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verb: Option<String>,
}

impl SubmissionReceived {
    /// A job document is a few hundred bytes; 256 KiB leaves room for long environments and
    /// keeps ten thousand submissions in a second bearable for the log.
    pub const RAW_LIMIT_BYTES: usize = 256 * 1024;

    /// The largest measurement has two histograms of 64 bounds and 60 seconds: some 6 KiB. What is
    /// refused stands on the log, so that it is to be no larger than it needs to be.
    pub const MEASURED_LIMIT_BYTES: usize = 16 * 1024;

    /// The most bytes of a document that asks for `verb`.
    #[must_use]
    pub fn limit_bytes(verb: &str) -> usize {
        match verb {
            MEASURED => Self::MEASURED_LIMIT_BYTES,
            _ => Self::RAW_LIMIT_BYTES,
        }
    }
}

/// A submission is valid; the job is queued.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobAdmitted {
    /// The job.
    pub job: JobId,
    /// Its normalised specification.
    pub spec: JobSpec,
    /// The submission.
    pub ingress_sequence: u64,
    /// Who asked for it, where the broker vouches for a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// A submission, cancellation or revision is refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobRefused {
    /// The job it named, where it can be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// The ingress subject's tenant, where it is a valid name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// The submission.
    pub ingress_sequence: u64,
    /// Machine-readable cause.
    pub code: String,
    /// What is wrong and what to do, for a person.
    pub reason: String,
    /// Who asked for it, where the broker vouches for a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// A queued job may have containers from here on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobReleased {
    /// The job.
    pub job: JobId,
    /// What the queue was when it was its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<Turn>,
    /// Jobs at the head of their queues that did not fit when it went by; said once of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<JobId>,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// Why it was a tenant's turn, before the release. Shares are fractions of the cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Turn {
    /// The policy that chose it.
    pub queue: Queue,
    /// Dominant share of what the tenant runs.
    pub share: f64,
    /// Dominant share of what the tenant has queued.
    pub demand_share: f64,
    /// The tenant's weight.
    pub weight: u32,
    /// Its queued jobs, this one among them.
    pub queued: u64,
    /// How long the job was queued.
    pub waited_ms: u64,
}

/// A job's weight, bounds, priority, limits or its part of a GPU change, or it is put on hold or let go.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobRevised {
    /// The job.
    pub job: JobId,
    /// The submission.
    pub ingress_sequence: u64,
    /// The new weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// The new bounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containers: Option<Containers>,
    /// The new priority in its tenant's queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Whether it is on hold from here on: it is given nothing, and gives back what it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<bool>,
    /// The new limit of how long it runs; 0 lifts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_s: Option<u32>,
    /// The new limit of how long it waits for its first start; 0 lifts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_limit_s: Option<u32>,
    /// The most of a GPU that it may use from here on, in thousandths; what runs goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_limit_milli: Option<u64>,
    /// Who asked for it, where the broker vouches for a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

impl JobRevised {
    /// A revision that changes nothing yet.
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

/// A job gives its room back, and starts again when it has room: its containers save and stop, and it is
/// given nothing until they have ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobRequeued {
    /// The job.
    pub job: JobId,
    /// The submission.
    pub ingress_sequence: u64,
    /// Who asked for it, where the broker vouches for a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// A released job is to be cancelled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobCancelRequested {
    /// The job.
    pub job: JobId,
    /// The request.
    pub ingress_sequence: u64,
    /// Who asked for it, where the broker vouches for a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// A submission named the token of a plan that still holds: what the job is to get at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanAccepted {
    /// The job.
    pub job: JobId,
    /// The submission.
    pub ingress_sequence: u64,
    /// Containers that were planned; 0: that it waits.
    pub containers: u32,
    /// The last event that the plan was made from.
    pub planned_at: Sequence,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// A job got something else than was planned: something was decided together with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanMissed {
    /// The job.
    pub job: JobId,
    /// Containers that were planned.
    pub planned: u32,
    /// Containers by the first allocation that could name it; 0: it waits.
    pub containers: u32,
    /// That allocation.
    pub decided: Sequence,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}
