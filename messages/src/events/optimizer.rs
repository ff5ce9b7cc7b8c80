//! What the optimizer decides: how many containers each job has, and of which shape on which node.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::Basis;
use crate::ids::{Epoch, JobId, NodeId};
use crate::needs::Needs;
use crate::quantity::Amounts;

/// A new allocation. Lists what changes.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct AllocationDecided {
    /// Its number.
    pub epoch: Epoch,
    /// Jobs that change, are new or wait.
    pub jobs: Vec<JobAllocation>,
    /// Distinct types of containers; `slots` counts by their `shape`.
    pub shapes: Vec<Shape>,
    /// Containers of each shape on the nodes that change.
    pub slots: Vec<Slot>,
    /// Its figures.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// The allocation stays as it is.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct AllocationKept {
    /// Why nothing changes.
    pub reason: String,
    /// Its figures.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// Reads an event with the figures among its own fields. `flatten` would read every value twice,
/// the first time into one that can be anything.
macro_rules! with_figures {
    ($event:ident { $($field:ident: $type:ty),* }) => {
        impl<'de> Deserialize<'de> for $event {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                #[derive(Deserialize)]
                struct Flat {
                    $($field: $type,)*
                    waiting: Vec<Waiting>,
                    utilization: Utilization,
                    fairness_loss: f64,
                    fairness_loss_all: f64,
                    fairness_loss_bound: f64,
                    adjusted_jobs: u32,
                    adjustment_bound: u32,
                    forced_jobs: u32,
                    unbounded: bool,
                    #[serde(default)]
                    forced: bool,
                    solver: Solver,
                    #[serde(default)]
                    basis: Option<Basis>,
                }
                let flat = Flat::deserialize(deserializer)?;
                Ok(Self {
                    $($field: flat.$field,)*
                    outcome: Outcome {
                        waiting: flat.waiting,
                        utilization: flat.utilization,
                        fairness_loss: flat.fairness_loss,
                        fairness_loss_all: flat.fairness_loss_all,
                        fairness_loss_bound: flat.fairness_loss_bound,
                        adjusted_jobs: flat.adjusted_jobs,
                        adjustment_bound: flat.adjustment_bound,
                        forced_jobs: flat.forced_jobs,
                        unbounded: flat.unbounded,
                        forced: flat.forced,
                        solver: flat.solver,
                    },
                    basis: flat.basis,
                })
            }
        }
    };
}

with_figures!(AllocationDecided {
    epoch: Epoch,
    jobs: Vec<JobAllocation>,
    shapes: Vec<Shape>,
    slots: Vec<Slot>
});
with_figures!(AllocationKept { reason: String });

/// One job in an allocation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobAllocation {
    /// The job.
    pub job: JobId,
    /// Containers it gets.
    pub containers: u32,
    /// Containers it had.
    pub previous: u32,
    /// Whether it did not run before.
    pub new: bool,
    /// Dominant share: s = max over k of d_k n / C_k.
    pub share: f64,
    /// Weighted DRF share ŝ by progressive filling.
    pub fair_share: f64,
    /// The service, notebook or job of a class that preempts that it makes room for.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub made_for: Option<JobId>,
}

/// A type of containers (what each demands, and of which nodes) and its number in this decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Shape {
    /// Its number in this decision.
    pub shape: u32,
    /// Demand of one container.
    pub demand: Amounts,
    /// What it asks of its node besides room.
    #[serde(default, skip_serializing_if = "Needs::is_empty")]
    pub needs: Needs,
}

/// Containers of one shape that a node holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Slot {
    /// The node.
    pub node: NodeId,
    /// The shape's number.
    pub shape: u32,
    /// How many.
    pub containers: u32,
}

/// The figures of an allocation, decided or kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// Released jobs that have no containers, with the reason.
    pub waiting: Vec<Waiting>,
    /// Fractions of the cluster in use.
    pub utilization: Utilization,
    /// Σ |s − ŝ| over the jobs with containers (Dorm, eq. 11, 12).
    pub fairness_loss: f64,
    /// The same sum with the waiting jobs.
    pub fairness_loss_all: f64,
    /// The bound that the loss was held to.
    pub fairness_loss_bound: f64,
    /// Running jobs that are adjusted.
    pub adjusted_jobs: u32,
    /// The bound that they were held to.
    pub adjustment_bound: u32,
    /// Jobs adjusted because of a lost node or revised bounds; exempt from the bound.
    pub forced_jobs: u32,
    /// Whether the head of an idle cluster's queue was admitted without the fairness bound.
    pub unbounded: bool,
    /// Whether a service, a notebook or a job of a class that preempts got its room although θ1, θ2 or
    /// (not for a class) the bound on preemptions left no solution.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
    /// How it was found.
    pub solver: Solver,
}

/// A released job without containers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Waiting {
    /// The job.
    pub job: JobId,
    /// Machine-readable cause.
    pub code: String,
    /// What it waits for, for a person.
    pub reason: String,
}

impl Waiting {
    /// Codes of jobs whose smallest partition the nodes would not hold if they were empty, or that
    /// is more than their tenant may have. A lack of constraints' nodes that may pass (`constraints`)
    /// is not among them: such a job waits for room as any other.
    pub const HOPELESS: [&str; 5] = [
        "no_such_resource",
        "never_fits",
        "no_allowed_nodes",
        "above_quota",
        "above_max_containers",
    ];

    /// Whether the job would wait on an empty cluster, too.
    #[must_use]
    pub fn is_hopeless(&self) -> bool {
        Self::HOPELESS.contains(&self.code.as_str())
    }
}

/// Utilization as fractions of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Utilization {
    /// By resource.
    pub resources: BTreeMap<String, f64>,
    /// Their sum (Dorm, eq. 5).
    pub total: f64,
}

/// What ended the search for an allocation.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum StoppedBy {
    /// The optimum is proven.
    Optimal,
    /// The gap that was asked is proven.
    Gap,
    /// The limit of branch-and-bound nodes.
    Nodes,
    /// The limit of time: another machine may find another allocation.
    Time,
    /// Nothing was left to try.
    Stages,
    /// There is nothing to search: a procedure.
    #[default]
    Procedure,
}

impl StoppedBy {
    /// Its name on the log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Optimal => "optimal",
            Self::Gap => "gap",
            Self::Nodes => "nodes",
            Self::Time => "time",
            Self::Stages => "stages",
            Self::Procedure => "procedure",
        }
    }
}

impl std::fmt::Display for StoppedBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a solution was found and how good it is proven to be.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Solver {
    /// What found the allocation: `highs`, `lagrangian`, `direct` (there is room for all as they want it),
    /// or the name of a procedure.
    pub name: String,
    /// Its version.
    pub version: String,
    /// How it ended.
    pub status: String,
    /// The objective's value.
    pub objective: f64,
    /// The proven bound of it.
    pub bound: f64,
    /// (bound − objective) / |bound|.
    pub gap: f64,
    /// Branch-and-bound nodes; absent where the solver does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u64>,
    /// What ended the search.
    pub stopped_by: StoppedBy,
    /// The step of the pipeline that gave the solution.
    pub stage: String,
}
