//! The result of a comparison of decisions.

use std::collections::BTreeMap;

use dormouse_messages::{Sequence, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::history::redact::{SeenError, seen_by};
use crate::history::whatif::Differs;

/// The kind of difference between two decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    Equal,
    /// Other containers of the same value.
    EqualValue,
    Better,
    Worse,
    /// The first state and policy do not allow the second.
    Infeasible,
    OtherType,
}

impl Class {
    /// Returns the name in answers.
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
    /// `None` if the decision is not on a log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<Sequence>,
    pub at: Timestamp,
    /// `allocation.decided` or `allocation.unchanged`.
    #[serde(rename = "type")]
    pub type_name: String,
    pub objective: f64,
    pub gap: f64,
    /// The sum over the resources.
    pub utilization: f64,
    pub fairness_loss: f64,
    pub fairness_loss_bound: f64,
    pub adjusted_jobs: u32,
    pub adjustment_bound: u32,
    pub build: String,
}

/// Two different decisions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionDiff {
    pub sequence: Sequence,
    pub class: Class,
    pub left: Side,
    pub right: Side,
    pub jobs: Vec<Differs>,
    pub explained: Vec<String>,
}

/// The comparison of all decisions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DiffAnswer {
    pub compared: u64,
    pub classes: BTreeMap<Class, u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<DecisionDiff>,
}

impl DiffAnswer {
    /// Hides other tenants' names.
    ///
    /// # Errors
    /// A name cannot be removed.
    pub fn seen_by(self, viewer: &TenantId) -> Result<Self, SeenError> {
        seen_by(self, Some(viewer))
    }
}
