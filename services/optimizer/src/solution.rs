//! What the optimizer answers: who has how many containers, where there is room for them, who
//! waits and why, and how good the answer is proven to be.

use std::collections::BTreeMap;

use dormouse_messages::events::StoppedBy;
use dormouse_messages::ids::{JobId, NodeId};
use dormouse_messages::needs::ContainerType;
use dormouse_messages::quantity::Resource;

/// One decision.
#[derive(Debug, Clone, PartialEq)]
pub struct Solution {
    /// Every job that has containers or had some, in the problem's order.
    pub jobs: Vec<JobShare>,
    /// The distinct types of the containers that there are, in ascending order.
    pub shapes: Vec<ContainerType>,
    /// Per node, the number of containers of each shape (its index); every node is listed.
    pub slots: BTreeMap<NodeId, BTreeMap<usize, u32>>,
    /// The jobs that have no containers, in the problem's order.
    pub waiting: Vec<Waiting>,
    /// How full the cluster is.
    pub utilization: Utilization,
    /// Σ l_i over the jobs that run (Dorm, equation 15).
    pub fairness_loss: f64,
    /// The same with the jobs that wait, whose share is 0.
    pub fairness_loss_all: f64,
    /// The bound on it.
    pub fairness_loss_bound: f64,
    /// How many running jobs are restarted, displaced ones not counted.
    pub adjusted_jobs: u32,
    /// The bound on it.
    pub adjustment_bound: u32,
    /// How many restarts could not be avoided: a lost node, or a count outside its limits.
    pub forced_jobs: u32,
    /// The head of an idle cluster's queue was admitted without the fairness bound.
    pub unbounded: bool,
    /// The service, notebook or job of a class that room was made for.
    pub made_room_for: Option<JobId>,
    /// Whether the bounds left no solution for it and were lifted.
    pub forced: bool,
    /// Whether anything differs from before.
    pub changed: bool,
    /// How it was found.
    pub solver: SolverReport,
}

/// What one job has.
#[derive(Debug, Clone, PartialEq)]
pub struct JobShare {
    /// The job.
    pub job: JobId,
    /// Its containers from now on.
    pub containers: u32,
    /// Its containers before; `None` when it did not run.
    pub previous: Option<u32>,
    /// Its dominant share from now on.
    pub share: f64,
    /// Its weighted DRF share: divisible progressive filling with floors and caps over the jobs
    /// that have containers; of a job that waits, over all jobs.
    pub fair_share: f64,
    /// Where its containers are; unchanged to the container when the job is not restarted.
    pub nodes: BTreeMap<NodeId, u32>,
}

/// A job without containers, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    /// The job.
    pub job: JobId,
    /// What kind of reason.
    pub code: WaitCode,
    /// The reason, for a person.
    pub reason: String,
    /// The dominant share that it would have if all jobs took part.
    pub fair_share: f64,
}

/// Why a job waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitCode {
    /// The cluster has none of a resource that it demands.
    NoSuchResource,
    /// One container is larger than every node, or its minimum larger than the cluster.
    NeverFits,
    /// The nodes that its constraints and tolerations allow would not hold its minimum, empty or not.
    NoAllowedNodes,
    /// There would be room, but not on the nodes that its constraints and tolerations allow.
    Constraints,
    /// What is free, with what may be taken from others, is less than its minimum.
    Resources,
    /// The amounts are there, but not together on nodes.
    Fragmentation,
    /// Room could be made only by restarting more jobs than θ2 allows.
    AdjustmentBound,
    /// With it the fairness loss would exceed θ1's bound.
    FairnessBound,
    /// A job that was released earlier waits.
    Behind,
    /// It made room for a service, a notebook or a job of a class that preempts.
    Preempted,
    /// Room for it could only be taken from jobs that the policy's bound on preemptions protects.
    PreemptionBound,
}

impl WaitCode {
    /// The code on the log.
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

/// How full the cluster is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Utilization {
    /// Per resource that the cluster has, the fraction that is allocated.
    pub resources: BTreeMap<Resource, f64>,
    /// Their sum (Dorm, equation 5).
    pub total: f64,
}

/// How a decision was found.
#[derive(Debug, Clone, PartialEq)]
pub struct SolverReport {
    /// Which solver, or the procedure's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// `optimal`, `feasible`, `infeasible`, `unknown` (a limit was met before there was an answer) or
    /// `none` (no solver was needed).
    pub status: String,
    /// The objective's value of what was decided.
    pub objective: f64,
    /// What no allocation can exceed.
    pub bound: f64,
    /// (bound − objective) / |objective|.
    pub gap: f64,
    /// Branch-and-bound nodes, where the solver tells.
    pub nodes: Option<u64>,
    /// What ended the search.
    pub stopped_by: StoppedBy,
    /// The stage of the pipeline whose allocation was taken.
    pub stage: String,
}
