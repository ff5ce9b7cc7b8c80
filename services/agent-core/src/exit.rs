//! Exits of containers and failures to start them.

use dormouse_messages::events::NodeFault;
use serde::{Deserialize, Serialize};

/// The exit of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub out_of_memory: bool,
    pub reason: Option<String>,
    /// True if the platform ended it, not the job.
    pub evicted: bool,
    pub fault: Option<NodeFault>,
}

/// A failure to start a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{why}")]
pub struct NotStarted {
    /// For a person.
    pub why: String,
    /// Absent if every node would fail.
    pub fault: Option<NodeFault>,
}

impl NotStarted {
    /// Returns a failure of the node.
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
    /// Returns the exit of a container that could not start. A node's fault costs the job nothing.
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

    /// Returns the exit of a container ended or lost by the platform.
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

    /// Returns the exit of a container without a record.
    #[must_use]
    pub fn unseen() -> Self {
        let why = "it is gone without a record of its end: its supervisor was killed, or the machine restarted";
        Self::evicted(why.to_owned())
    }

    /// Marks the exit as an eviction, if there is a reason.
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

    /// True if the exit code is 0.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.code == Some(0)
    }
}
