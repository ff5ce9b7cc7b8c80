//! The optimizer's output: containers by job and node, waiting jobs with reasons, and the proven quality.

use std::collections::BTreeMap;

use dormouse_messages::events::Solver;
use dormouse_messages::ids::{JobId, NodeId};
use dormouse_messages::quantity::Resource;

/// One decision.
#[derive(Debug, Clone, PartialEq)]
pub struct Solution {
    pub jobs: Vec<JobShare>,
    pub waiting: Vec<Waiting>,
    pub utilization: Utilization,
    /// Σ l_i over the running jobs (Dorm, equation 15).
    pub fairness_loss: f64,
    /// The share of a waiting job is 0.
    pub fairness_loss_all: f64,
    pub fairness_loss_bound: f64,
    /// Without displaced jobs.
    pub adjusted_jobs: u32,
    pub adjustment_bound: u32,
    /// A lost node, or a count outside its limits.
    pub forced_jobs: u32,
    /// The head of an idle cluster's queue was admitted without the fairness bound.
    pub unbounded: bool,
    pub made_room_for: Option<JobId>,
    pub forced: bool,
    pub changed: bool,
    /// Its status is `optimal`, `feasible`, `infeasible`, `unknown` (a limit came first) or `none` (no solver
    /// was needed).
    pub solver: Solver,
}

/// One job's part of the allocation.
#[derive(Debug, Clone, PartialEq)]
pub struct JobShare {
    pub job: JobId,
    pub containers: u32,
    pub previous: Option<u32>,
    pub share: f64,
    /// Weighted DRF share over the running jobs, for a waiting job over all jobs.
    pub fair_share: f64,
    /// Unchanged if the job is not restarted.
    pub nodes: BTreeMap<NodeId, u32>,
}

/// A job without containers, and the reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    pub job: JobId,
    pub code: WaitCode,
    pub reason: String,
    /// Computed as if all jobs took part.
    pub fair_share: f64,
}

/// The kind of reason why a job waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitCode {
    /// The cluster lacks a demanded resource entirely.
    NoSuchResource,
    /// One container exceeds every node, or the minimum exceeds the cluster.
    NeverFits,
    /// The eligible nodes could not hold the minimum even when empty.
    NoAllowedNodes,
    /// Capacity exists, but not on the eligible nodes.
    Constraints,
    /// Free capacity plus what others may give is less than the minimum.
    Resources,
    /// The amounts exist, but not together on nodes.
    Fragmentation,
    AdjustmentBound,
    FairnessBound,
    Behind,
    Preempted,
    PreemptionBound,
}

impl WaitCode {
    /// Returns the code on the log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoSuchResource => "no_such_resource",
            Self::NeverFits => "never_fits",
            Self::NoAllowedNodes => "no_allowed_nodes",
            Self::Constraints => "constraints",
            Self::Resources => "resources",
            Self::Fragmentation => "fragmentation",
            Self::AdjustmentBound => "adjustment_bound",
            Self::FairnessBound => "fairness_bound",
            Self::Behind => "behind",
            Self::Preempted => "preempted",
            Self::PreemptionBound => "preemption_bound",
        }
    }
}

/// The cluster's utilization.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Utilization {
    pub resources: BTreeMap<Resource, f64>,
    /// Sum of the fractions (Dorm, equation 5).
    pub total: f64,
}
