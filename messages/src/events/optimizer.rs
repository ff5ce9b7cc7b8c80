//! Events of the optimizer: each job's containers by node.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::Basis;
use crate::ids::{Epoch, JobId, NodeId, Sequence};
use crate::speed::{Curve, CurveSource, SpeedPoint};
use crate::time::Timestamp;

/// A new allocation, as a list of changes.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct AllocationDecided {
    /// Number of the allocation.
    pub epoch: Epoch,
    /// Jobs that change, are new or wait.
    pub jobs: Vec<JobAllocation>,
    /// Figures of the allocation.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// The allocation stays unchanged.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct AllocationUnchanged {
    /// Reason, for a person.
    pub reason: String,
    /// Figures of the allocation.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// Unlike `flatten`, this does not buffer every value.
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
    jobs: Vec<JobAllocation>
});
with_figures!(AllocationUnchanged { reason: String });

/// One job in an allocation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobAllocation {
    /// The job.
    pub job: JobId,
    /// Number of containers, the roles' included.
    pub containers: u32,
    /// Containers by node and role: the x_ij of Dorm's P2.
    pub nodes: Vec<NodeContainers>,
    /// Number of containers before.
    pub previous: u32,
    /// True if the job did not run before.
    pub new: bool,
    /// Dominant share: s = max over k of d_k n / C_k.
    pub share: f64,
    /// Weighted DRF share ŝ by progressive filling.
    pub fair_share: f64,
    /// The service, notebook or preempting job that gets the capacity.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub made_for: Option<JobId>,
}

impl JobAllocation {
    /// Returns the containers of a role, or the workers, by node.
    #[must_use]
    pub fn by_node(&self, role: Option<&str>) -> BTreeMap<NodeId, u32> {
        let nodes = self.nodes.iter().filter(|it| it.role.as_deref() == role);
        nodes.map(|it| (it.node.clone(), it.containers)).collect()
    }
}

/// Containers of a job on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeContainers {
    /// The node.
    pub node: NodeId,
    /// The role; absent for workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Number of containers.
    pub containers: u32,
}

impl NodeContainers {
    /// Returns the entries of a role, or of the workers.
    pub fn of<'a>(
        role: Option<&'a str>,
        nodes: &'a BTreeMap<NodeId, u32>,
    ) -> impl Iterator<Item = Self> + 'a {
        nodes.iter().map(move |(node, containers)| Self {
            node: node.clone(),
            role: role.map(str::to_owned),
            containers: *containers,
        })
    }
}

/// The figures of an allocation, decided or kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// Released jobs without containers, with the reason.
    pub waiting: Vec<Waiting>,
    /// Fractions of the cluster in use.
    pub utilization: Utilization,
    /// Σ |s − ŝ| over the jobs with containers (Dorm, eq. 11, 12).
    pub fairness_loss: f64,
    /// Σ |s − ŝ| including the waiting jobs.
    pub fairness_loss_all: f64,
    /// Bound on the loss.
    pub fairness_loss_bound: f64,
    /// Adjusted running jobs.
    pub adjusted_jobs: u32,
    /// Bound on the adjusted jobs.
    pub adjustment_bound: u32,
    /// Jobs adjusted for a lost node or revised bounds, exempt from the bound.
    pub forced_jobs: u32,
    /// True if an idle cluster's queue head was admitted without the fairness bound.
    pub unbounded: bool,
    /// True if a service, notebook or preempting job got capacity beyond θ1, θ2 or (not for a preempting job)
    /// the bound on preemptions.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub forced: bool,
    /// Result of the search.
    pub solver: Solver,
}

/// A released job without containers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Waiting {
    /// The job.
    pub job: JobId,
    /// Machine-readable cause.
    pub code: String,
    /// The awaited condition, for a person.
    pub reason: String,
}

impl Waiting {
    /// Codes of jobs that do not fit on empty nodes or exceed the tenant's limits. `constraints` may be
    /// temporary and is not among them.
    pub const UNSCHEDULABLE: [&str; 5] = [
        "no_such_resource",
        "never_fits",
        "no_allowed_nodes",
        "above_quota",
        "above_max_containers",
    ];

    /// True if the job would wait on an empty cluster, too.
    #[must_use]
    pub fn is_unschedulable(&self) -> bool {
        Self::UNSCHEDULABLE.contains(&self.code.as_str())
    }
}

/// Utilization as fractions of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Utilization {
    /// Fraction by resource.
    pub resources: BTreeMap<String, f64>,
    /// Sum over resources (Dorm, eq. 5).
    pub total: f64,
}

/// The end condition of the search for an allocation.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum StoppedBy {
    /// The optimum is proven.
    Optimal,
    /// The requested gap is proven.
    Gap,
    /// The limit on branch-and-bound nodes.
    Nodes,
    /// The work limit of the decision.
    Work,
    /// All stages of the search ran.
    Stages,
    /// A procedure, without search.
    #[default]
    Procedure,
}

impl StoppedBy {
    /// Returns the name on the log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Optimal => "optimal",
            Self::Gap => "gap",
            Self::Nodes => "nodes",
            Self::Work => "work",
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

/// The origin and proven quality of a solution.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Solver {
    /// Origin: `highs`, `lagrangian`, `direct` (all jobs fit as they want), or a procedure.
    pub name: String,
    /// Solver version.
    pub version: String,
    /// Solver status.
    pub status: String,
    /// Value of the objective.
    pub objective: f64,
    /// Proven bound on the objective.
    pub bound: f64,
    /// (bound − objective) / |bound|.
    pub gap: f64,
    /// Steps of the search.
    pub work: u64,
    /// End condition of the search.
    pub stopped_by: StoppedBy,
    /// The pipeline stage that found the solution.
    pub stage: String,
}

/// The speed of a job by its number of containers, as the next allocations value it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobSpeedFitted {
    /// The job.
    pub job: JobId,
    /// Seconds per step: T(n) = a + b/n + c(n − 1).
    pub curve: Curve,
    /// Root mean square of log(measured / fitted) over the points.
    pub error: f64,
    /// Origin of the points.
    pub source: CurveSource,
    /// Fitted points, by number of containers.
    pub points: Vec<SpeedPoint>,
    /// Part of its speed that the job loses on several nodes, where a number of containers was measured both ways.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crossing: Option<f64>,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// New and changed forecasts of waiting jobs' starts, by simulations from the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StartsForecast {
    /// The log prefix that was simulated.
    pub asof: Sequence,
    /// Number of simulations.
    pub draws: u32,
    /// The forecasts.
    pub starts: Vec<StartForecast>,
}

/// The times before which a tenth, half and nine tenths of the simulations start a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StartForecast {
    /// The job.
    pub job: JobId,
    /// Tenth; absent if it lies beyond the simulations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earliest: Option<Timestamp>,
    /// Half.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub likely: Option<Timestamp>,
    /// Nine tenths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest: Option<Timestamp>,
}
