//! The optimizer's output: containers by job and node, waiting jobs with reasons, and the proven quality.

use std::collections::BTreeMap;

use dormouse_messages::events::StoppedBy;
use dormouse_messages::ids::{JobId, NodeId};
use dormouse_messages::needs::ContainerType;
use dormouse_messages::quantity::Resource;

/// One decision.
#[derive(Debug, Clone, PartialEq)]
pub struct Solution {
    /// Every job that has or had containers, in the problem's order.
    pub jobs: Vec<JobShare>,
    pub shapes: Vec<ContainerType>,
    /// Containers per node and shape index; every node is listed.
    pub slots: BTreeMap<NodeId, BTreeMap<usize, u32>>,
    /// Jobs without containers, in the problem's order.
    pub waiting: Vec<Waiting>,
    pub utilization: Utilization,
    /// Σ l_i over the running jobs (Dorm, equation 15).
    pub fairness_loss: f64,
    /// Σ l_i over all jobs; the share of a waiting job is 0.
    pub fairness_loss_all: f64,
    pub fairness_loss_bound: f64,
    /// Restarted running jobs, without displaced ones.
    pub adjusted_jobs: u32,
    pub adjustment_bound: u32,
    /// Unavoidable restarts: a lost node, or a count outside its limits.
    pub forced_jobs: u32,
    /// True if the head of an idle cluster's queue was admitted without the fairness bound.
    pub unbounded: bool,
    /// The service, notebook or preempting job that space was made for.
    pub made_room_for: Option<JobId>,
    /// True if bounds were lifted for that job.
    pub forced: bool,
    /// True if anything differs from before.
    pub changed: bool,
    pub solver: SolverReport,
}

/// One job's part of the allocation.
#[derive(Debug, Clone, PartialEq)]
pub struct JobShare {
    pub job: JobId,
    /// Containers from now on.
    pub containers: u32,
    pub previous: Option<u32>,
    /// Dominant share from now on.
    pub share: f64,
    /// Weighted DRF share over the running jobs; for a waiting job over all jobs.
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
    /// Allocated fraction per resource.
    pub resources: BTreeMap<Resource, f64>,
    /// Sum of the fractions (Dorm, equation 5).
    pub total: f64,
}

/// The search's report on a decision.
#[derive(Debug, Clone, PartialEq)]
pub struct SolverReport {
    pub name: String,
    pub version: String,
    /// `optimal`, `feasible`, `infeasible`, `unknown` (a limit came before an answer) or `none` (no solver
    /// was needed).
    pub status: String,
    pub objective: f64,
    /// Upper bound on every allocation.
    pub bound: f64,
    /// Relative gap: (bound − objective) / |bound|.
    pub gap: f64,
    /// Branch-and-bound nodes, if the solver reports them.
    pub nodes: Option<u64>,
    /// Limit or proof that ended the search.
    pub stopped_by: StoppedBy,
    /// Stage whose allocation was taken.
    pub stage: String,
}
