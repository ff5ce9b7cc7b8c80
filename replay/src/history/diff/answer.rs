//! What a comparison of decisions says.

use std::collections::BTreeMap;

use dormouse_messages::{Sequence, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::history::seen::{SeenError, seen_by};
use crate::history::whatif::Differs;

/// How a pair of decisions differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The same containers.
    Equal,
    /// Other containers of the same worth.
    EqualValue,
    /// The second is worth more.
    Better,
    /// The second is worth less.
    Worse,
    /// The first one's state and policy do not allow the second.
    Infeasible,
    /// One changes containers, the other keeps them.
    OtherType,
}

impl Class {
    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::EqualValue => "equal_value",
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Infeasible => "infeasible",
            Self::OtherType => "other_type",
        }
    }
}

/// One of two decisions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// Its event; nothing of one that is not on a log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<Sequence>,
    /// When.
    pub at: Timestamp,
    /// `allocation.decided` or `allocation.kept`.
    #[serde(rename = "type")]
    pub type_name: String,
    /// The objective's value.
    pub objective: f64,
    /// Its proven gap.
    pub gap: f64,
    /// Utilization, the sum over the resources.
    pub utilization: f64,
    /// Fairness loss of the running jobs.
    pub fairness_loss: f64,
    /// The bound on it.
    pub fairness_loss_bound: f64,
    /// Jobs that are restarted.
    pub adjusted_jobs: u32,
    /// The bound on them.
    pub adjustment_bound: u32,
    /// The build that decided.
    pub build: String,
}

/// Two decisions that differ.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionDiff {
    /// The first one's event.
    pub sequence: Sequence,
    /// How they differ.
    pub class: Class,
    /// The first.
    pub left: Side,
    /// The second.
    pub right: Side,
    /// Jobs with other containers.
    pub jobs: Vec<Differs>,
    /// In words.
    pub explained: Vec<String>,
}

/// What was compared.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DiffAnswer {
    /// Pairs of decisions.
    pub compared: u64,
    /// How many of each class.
    pub classes: BTreeMap<Class, u64>,
    /// The first that differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<DecisionDiff>,
}

impl DiffAnswer {
    /// What a tenant may see: its own names, others as amounts.
    ///
    /// # Errors
    /// When a name cannot be taken out.
    pub fn seen_by(self, viewer: &TenantId) -> Result<Self, SeenError> {
        seen_by(self, Some(viewer))
    }
}
