//! How a container ended, and why one could not start.

use dormouse_messages::events::NodeFault;
use serde::{Deserialize, Serialize};

/// How a container ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether it ran out of memory.
    pub out_of_memory: bool,
    /// What is known beyond that.
    pub reason: Option<String>,
    /// Whether the platform ended it, not the job itself.
    pub evicted: bool,
    /// What of the node kept it from starting.
    pub fault: Option<NodeFault>,
}

/// Why a container could not start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{why}")]
pub struct NotStarted {
    /// For a person, with what to do.
    pub why: String,
    /// What of the node was wrong; absent where another node would not start it either.
    pub fault: Option<NodeFault>,
}

impl NotStarted {
    /// For a reason of the node's.
    #[must_use]
    pub const fn of_node(fault: NodeFault, why: String) -> Self {
        Self {
            why,
            fault: Some(fault),
        }
    }
}

impl From<String> for NotStarted {
    fn from(why: String) -> Self {
        Self { why, fault: None }
    }
}

impl From<&str> for NotStarted {
    fn from(why: &str) -> Self {
        why.to_owned().into()
    }
}

impl Exit {
    /// A container that could not start. A reason of the node's costs the job nothing.
    #[must_use]
    pub fn cannot_start(not_started: &NotStarted) -> Self {
        let NotStarted { why, fault } = not_started;
        Self {
            reason: Some(format!("cannot start: {why}")),
            evicted: fault.is_some(),
            fault: *fault,
            ..Self::default()
        }
    }

    /// A container that the platform ended, or lost sight of.
    #[must_use]
    pub const fn evicted(reason: String) -> Self {
        Self {
            code: None,
            signal: None,
            out_of_memory: false,
            reason: Some(reason),
            evicted: true,
            fault: None,
        }
    }

    /// An end that nobody has seen.
    #[must_use]
    pub fn unseen() -> Self {
        let why = "it is gone without a record of its end: its keeper was killed, or the machine restarted";
        Self::evicted(why.to_owned())
    }

    /// The same exit, if the platform took the container away for a reason.
    #[must_use]
    pub fn with_eviction(self, reason: Option<String>) -> Self {
        match reason {
            Some(reason) => Self {
                evicted: true,
                reason: Some(reason),
                ..self
            },
            None => self,
        }
    }

    /// Whether it exited with 0.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.code == Some(0)
    }
}
