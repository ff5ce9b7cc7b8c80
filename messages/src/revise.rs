//! The document in which a tenant revises a job.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::job::Containers;
use crate::lenient_int::maybe;
use crate::quantity::Written;

/// Changes to a job; absent fields stay unchanged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReviseDocument {
    /// Name of the job, with or without the tenant.
    pub job: String,
    /// Weight of the job's fair share.
    #[serde(
        default,
        deserialize_with = "maybe",
        skip_serializing_if = "Option::is_none"
    )]
    pub weight: Option<u32>,
    /// Fewest and most containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containers: Option<Containers>,
    /// Priority in the tenant's queue, the highest first.
    #[serde(
        default,
        deserialize_with = "maybe",
        skip_serializing_if = "Option::is_none"
    )]
    pub priority: Option<i32>,
    /// `true` holds the job: its containers save and stop, and none start; `false` resumes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<bool>,
    /// The job gives up its containers and starts again later. Excludes other changes.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub requeue: bool,
    /// Allows holding or requeuing a running job without a checkpoint, which begins again.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub force: bool,
    /// Limit on the run time in seconds, over all incarnations.
    #[serde(
        default,
        deserialize_with = "maybe",
        skip_serializing_if = "Option::is_none"
    )]
    pub time_limit_s: Option<u32>,
    /// Limit on the seconds between admission and first start.
    #[serde(
        default,
        deserialize_with = "maybe",
        skip_serializing_if = "Option::is_none"
    )]
    pub queue_limit_s: Option<u32>,
    /// For a fraction of a GPU: the limit while others leave capacity, from the request to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_limit: Option<Written>,
}

impl ReviseDocument {
    /// Returns an empty revision.
    #[must_use]
    pub const fn nothing(job: String) -> Self {
        Self {
            job,
            weight: None,
            containers: None,
            priority: None,
            held: None,
            requeue: false,
            force: false,
            time_limit_s: None,
            queue_limit_s: None,
            gpu_limit: None,
        }
    }
}
