//! The answer to `plan`.

use dormouse_messages::sanitize;
use dormouse_messages::{Sequence, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::history::redact::{ANOTHER_JOB, SeenError, seen_by};

/// A node and a number of containers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnNode {
    pub node: String,
    pub containers: u32,
}

/// A job whose containers change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Moves {
    pub job: String,
    pub tenant: String,
    pub from: u32,
    pub to: u32,
    /// Seconds lost in the restart, if measured before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_s: Option<f64>,
    /// True if a decision now does so even without the plan.
    #[serde(default, skip_serializing_if = "dormouse_messages::is_default")]
    pub anyway: bool,
}

/// The start of a job, in seconds from now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Start {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p10_s: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_s: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p90_s: Option<f64>,
    /// Completed jobs behind the estimate.
    pub basis: u64,
    pub unknown: bool,
}

/// The predicted effects of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub about: String,
    pub asof: Sequence,
    pub at: Timestamp,
    /// `runs`, `waits` or `refused`; for changes of the cluster `changes` or `nothing`.
    pub code: String,
    /// The reason code for waiting or refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub containers: u32,
    pub nodes: Vec<OnNode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Start>,
    pub shrinks: Vec<Moves>,
    pub gains: Vec<Moves>,
    /// Other jobs with the same number, whose containers move or restart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<Moves>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_before: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_after: Option<f64>,
    /// The token for `submit --if-plan`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

impl Plan {
    /// True if other jobs' containers change.
    #[must_use]
    pub const fn moves_anything(&self) -> bool {
        !(self.shrinks.is_empty() && self.gains.is_empty() && self.moves.is_empty())
    }

    /// Hides other tenants' names.
    ///
    /// # Errors
    /// A name cannot be removed.
    pub fn seen_by(mut self, viewer: &TenantId) -> Result<Self, SeenError> {
        let others = self.shrinks.iter_mut().chain(&mut self.gains);
        for it in others.chain(&mut self.moves) {
            if it.tenant != viewer.as_str() {
                ANOTHER_JOB.clone_into(&mut it.job);
                it.tenant.clear();
            }
        }
        seen_by(self, Some(viewer))
    }

    /// Describes the difference to another plan for the same subject; `None` if they agree.
    #[must_use]
    pub fn difference(&self, now: &Self) -> Option<String> {
        let mut said = Vec::new();
        if self.code != now.code {
            said.push(format!(
                "it {} instead of {}",
                now.in_words(),
                self.in_words()
            ));
        } else if self.containers != now.containers {
            said.push(format!(
                "it gets {} instead of {}",
                sanitize::containers(now.containers),
                self.containers
            ));
        }
        (!said.is_empty()).then(|| said.join("; "))
    }

    /// `runs with 4 containers`, `waits`.
    #[must_use]
    pub fn in_words(&self) -> String {
        match self.code.as_str() {
            "runs" => format!("runs with {}", sanitize::containers(self.containers)),
            code => code.to_owned(),
        }
    }
}
