//! The answer to `plan`.

use dormouse_messages::plain;
use dormouse_messages::{Sequence, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::history::seen::{ANOTHER_JOB, SeenError, seen_by};

/// Containers on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnNode {
    /// The node.
    pub node: String,
    /// How many.
    pub containers: u32,
}

/// A job whose containers change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Moves {
    /// The job.
    pub job: String,
    /// Its tenant.
    pub tenant: String,
    /// Containers before.
    pub from: u32,
    /// Containers then.
    pub to: u32,
    /// Seconds that its restart costs it, by what restarts have cost; nothing where none was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_s: Option<f64>,
    /// Whether a decision at this moment does the same without what is planned.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anyway: bool,
}

/// When a job would start, in seconds from now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// One run in ten starts it before; nothing where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p10_s: Option<f64>,
    /// Half of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_s: Option<f64>,
    /// Nine in ten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p90_s: Option<f64>,
    /// Completed jobs on the log, from which it is estimated.
    pub basis: u64,
    /// Whether there are too few of them to say anything.
    pub unknown: bool,
}

/// What would become of it now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The job, or the changes.
    pub about: String,
    /// The last event that counts.
    pub asof: Sequence,
    /// When that was.
    pub at: Timestamp,
    /// `runs`, `waits`, `refused`; of changes of the cluster `changes` or `nothing`.
    pub code: String,
    /// Why it waits, as decisions say it, or why it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// The same in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Containers that it gets.
    pub containers: u32,
    /// Where.
    pub nodes: Vec<OnNode>,
    /// When it starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Start>,
    /// Jobs that get fewer containers.
    pub shrinks: Vec<Moves>,
    /// Other jobs that get more.
    pub gains: Vec<Moves>,
    /// Other jobs that keep their number, and of which containers move or start again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<Moves>,
    /// Fairness loss of the running jobs, by the last decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_before: Option<f64>,
    /// By the next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_after: Option<f64>,
    /// With which `submit --if-plan` holds it to this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

impl Plan {
    /// Whether other jobs' containers change.
    #[must_use]
    pub const fn moves_anything(&self) -> bool {
        !(self.shrinks.is_empty() && self.gains.is_empty() && self.moves.is_empty())
    }

    /// What a tenant may see: its own names, others as amounts.
    ///
    /// # Errors
    /// When a name cannot be taken out.
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

    /// How another plan for the same differs, in words; nothing where it is the same.
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
                plain::containers(now.containers),
                self.containers
            ));
        }
        (!said.is_empty()).then(|| said.join("; "))
    }

    /// `runs with 4 containers`, `waits`.
    #[must_use]
    pub fn in_words(&self) -> String {
        match self.code.as_str() {
            "runs" => format!("runs with {}", plain::containers(self.containers)),
            code => code.to_owned(),
        }
    }
}
