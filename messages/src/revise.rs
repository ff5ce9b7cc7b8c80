//! The document in which a tenant revises a job.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::job::Containers;
use crate::quantity::Written;
use crate::whole::maybe;

/// What is to change of a job; what is not named stays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReviseDocument {
    /// The job: its name, with or without the tenant before it.
    pub job: String,
    /// Weight of its fair share.
    #[serde(
        default,
        deserialize_with = "maybe",
        skip_serializing_if = "Option::is_none"
    )]
    pub weight: Option<u32>,
    /// Fewest and most containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containers: Option<Containers>,
    /// Its place in the tenant's own queue: the highest goes first.
    #[serde(
        default,
        deserialize_with = "maybe",
        skip_serializing_if = "Option::is_none"
    )]
    pub priority: Option<i32>,
    /// `true` puts it on hold: what runs saves and stops, and nothing starts; `false` takes it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<bool>,
    /// The job gives its room back, and starts again when it has room. Nothing else changes with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub requeue: bool,
    /// A job without a checkpoint may be put on hold, or requeued, while it runs: it begins again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// The most seconds that it may run, over all of its lives.
    #[serde(
        default,
        deserialize_with = "maybe",
        skip_serializing_if = "Option::is_none"
    )]
    pub time_limit_s: Option<u32>,
    /// The most seconds from its admission to its first start.
    #[serde(
        default,
        deserialize_with = "maybe",
        skip_serializing_if = "Option::is_none"
    )]
    pub queue_limit_s: Option<u32>,
    /// Of a fraction of a GPU: the most that it may use while others leave it, from its request to
    /// 1. A running container has it at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_limit: Option<Written>,
}

impl ReviseDocument {
    /// A document that changes nothing yet.
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
