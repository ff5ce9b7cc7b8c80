//! The optimizer's input: nodes, jobs in release order, the policy and the budget.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::ids::{JobId, NodeId};
use dormouse_messages::job::Urgency;
use dormouse_messages::needs::{ContainerType, Labels};
pub use dormouse_messages::policy::{
    Admit, Allocation, FairnessBound, Objective, Placement, Policy,
};
use dormouse_messages::quantity::Amounts;
use dormouse_messages::roles::Part;
use dormouse_messages::{Needs, Timestamp};

use serde::Deserialize;

use crate::useful::Useful;

/// One decision to make.
#[derive(Debug, Clone, Default)]
pub struct Problem {
    pub nodes: Vec<ProblemNode>,
    /// In release order, each followed by its roles, which count as jobs with a fixed count.
    pub jobs: Vec<ProblemJob>,
    pub policy: Policy,
    pub misfit: Misfit,
    pub budget: Budget,
}

impl Problem {
    /// Returns the indices of a job's roles.
    pub fn roles(&self, job: usize) -> impl Iterator<Item = usize> + '_ {
        let of = move |index: &usize| {
            let role = self.jobs.get(*index).and_then(|it| it.role.as_ref());
            role.is_some_and(|role| role.of == self.jobs[job].job)
        };
        (job + 1..).take_while(of)
    }

    /// Returns the jobs without their roles.
    pub fn heads(&self) -> impl Iterator<Item = (usize, &ProblemJob)> {
        let jobs = self.jobs.iter().enumerate();
        jobs.filter(|(_, job)| job.role.is_none())
    }
}

/// A node of the problem.
#[derive(Debug, Clone)]
pub struct ProblemNode {
    pub name: NodeId,
    /// The cluster's totals are the sums of these.
    pub capacity: Amounts,
    /// Held by containers in transit: subtracted for placing, not from the totals.
    pub reserved: Amounts,
    pub closed: bool,
    pub labels: Labels,
    pub taints: BTreeSet<String>,
    pub gpus: Vec<ProblemGpu>,
}

/// A GPU of a problem's node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProblemGpu {
    pub memory_bytes: u64,
    /// Out of [`GPU_PARTS`](dormouse_messages::needs::GPU_PARTS); `None` if the containers' devices are
    /// unknown.
    pub taken: Option<u64>,
}

/// A released job that has not ended.
#[derive(Debug, Clone)]
pub struct ProblemJob {
    pub job: JobId,
    pub demand: Amounts,
    /// They bind starting containers only.
    pub needs: Needs,
    pub gpu_parts: u64,
    /// A weight of 0 counts as 1.
    pub weight: u32,
    /// Fewest containers; 0 counts as 1.
    pub min: u32,
    pub max: u32,
    /// False without a checkpoint and in transit: all containers then stay.
    pub adjustable: bool,
    /// For messages only.
    pub left_until: Option<Timestamp>,
    /// Lost containers with a node: all are placed again, exempt from θ2.
    pub displaced: bool,
    /// `None` before the first start; of a displaced job the survivors, as a preference.
    pub previous: Option<BTreeMap<NodeId, u32>>,
    /// Measured seconds per restart; 0 if unknown.
    pub stall_s: f64,
    pub may_be_overtaken: bool,
    /// Resizing in place never restarts the job.
    pub in_place: Option<InPlace>,
    /// Services and notebooks get their `min` first, whatever it costs others.
    pub urgency: Urgency,
    pub has_checkpoint: bool,
    /// Containers under [`Allocation::Static`]; `min` if absent.
    pub static_containers: Option<u32>,
    pub precedence: Precedence,
    /// Value of the containers; `None`: their number.
    pub useful: Option<Useful>,
    /// Part of its speed that the job loses on several nodes, below 1: measured, else `objective.crossing`.
    pub crossing: f64,
    /// Seconds until the job ends with its present containers, if it says its work.
    pub ends_in_s: Option<f64>,
    /// A role has its containers exactly while its job has some.
    pub role: Option<RoleOf>,
}

/// A job's standing in preemption.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Precedence {
    pub class: i32,
    /// Lower classes give way when this job waits.
    pub preempts: bool,
    /// The bound on preemptions protects the job now.
    pub protected: bool,
    /// Seconds of work lost by a requeue; 0 if the job saves before it stops.
    pub at_risk_s: f64,
}

/// The job of a role, and the role's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleOf {
    pub of: JobId,
    pub name: String,
}

impl ProblemJob {
    /// Returns the type of the job's containers.
    #[must_use]
    pub fn container_type(&self) -> ContainerType {
        ContainerType {
            demand: self.demand.clone(),
            needs: self.needs.clone(),
        }
    }
}

impl ProblemJob {
    /// Returns the seconds over which a restart is paid back: at most until the job ends.
    pub(crate) fn amortised_over_s(&self, amortise_s: f64) -> f64 {
        self.ends_in_s
            .map_or(amortise_s, |ends_in_s| ends_in_s.max(1.0).min(amortise_s))
    }

    /// Builds a role of this job: `part.count` containers, now at `previous`.
    #[must_use]
    pub fn role(&self, part: &Part, previous: Option<BTreeMap<NodeId, u32>>) -> Self {
        Self {
            job: self.job.of_role(&part.role),
            demand: part.demand.clone(),
            needs: part.needs.clone(),
            gpu_parts: part.container_type().gpu_parts(u64::MAX),
            min: part.count,
            max: part.count,
            adjustable: false,
            previous,
            in_place: None,
            static_containers: None,
            useful: None,
            role: Some(RoleOf {
                of: self.job.clone(),
                name: part.role.clone(),
            }),
            ..self.clone()
        }
    }
}

/// The fixed part of a job that is resized in place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InPlace {
    /// Node of the coordinator or of a notebook's server; a service has none.
    pub coordinator: Option<NodeId>,
}

/// The offer loop's handling of a task that does not fit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Misfit {
    /// The user is retired and the loop goes on (Mesos).
    #[default]
    Skip,
    /// The first misfit ends the run (Ghodsi et al., Algorithm 1).
    Stop,
}

/// The three minutes of Dorm's evaluation.
pub const DEFAULT_STALL_S: f64 = 180.0;

/// The work of one decision. A step is at most the work on one type at one entry of a table of rooms, a
/// fraction of a nanosecond: a decision at the limit takes some twenty seconds.
pub const DECISION_WORK: u64 = 200_000_000_000;

/// The limits of the search for a better allocation: counted, so that every machine stops at the same place.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    pub gap: f64,
    /// Branch-and-bound nodes of one model.
    pub nodes: Option<u64>,
    /// Steps of the whole decision.
    pub work: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            gap: 0.01,
            nodes: None,
            work: DECISION_WORK,
        }
    }
}
