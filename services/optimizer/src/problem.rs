//! What the optimizer is asked: nodes, jobs in release order, the policy and the budget.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::ids::{JobId, NodeId};
use dormouse_messages::job::Urgency;
use dormouse_messages::needs::{ContainerType, Labels};
use dormouse_messages::quantity::Amounts;
use dormouse_messages::roles::Part;
use dormouse_messages::{Needs, Timestamp};

use crate::decimal::Decimal;

/// One decision to make.
#[derive(Debug, Clone, Default)]
pub struct Problem {
    /// The nodes that take containers.
    pub nodes: Vec<ProblemNode>,
    /// The jobs, in release order; directly behind each its roles, which count as jobs of a fixed
    /// number of containers.
    pub jobs: Vec<ProblemJob>,
    /// How to share.
    pub policy: Policy,
    /// How long to look for better.
    pub budget: Budget,
}

impl Problem {
    /// The indices of the roles that stand beside the workers of a job.
    pub fn roles(&self, job: usize) -> impl Iterator<Item = usize> + '_ {
        let of = move |index: &usize| {
            let role = self.jobs.get(*index).and_then(|it| it.role.as_ref());
            role.is_some_and(|role| role.of == self.jobs[job].job)
        };
        (job + 1..).take_while(of)
    }

    /// The jobs, without their roles.
    pub fn heads(&self) -> impl Iterator<Item = (usize, &ProblemJob)> {
        let jobs = self.jobs.iter().enumerate();
        jobs.filter(|(_, job)| job.role.is_none())
    }
}

/// A node.
#[derive(Debug, Clone)]
pub struct ProblemNode {
    /// Its name.
    pub name: NodeId,
    /// What it has; the cluster's totals are the sums of these.
    pub capacity: Amounts,
    /// Room held by containers in transit (the old containers of jobs being moved): taken from
    /// the capacity for placing, not from the totals.
    pub reserved: Amounts,
    /// It takes no containers but those that cannot leave it: what they give up is not free.
    pub closed: bool,
    /// Its labels.
    pub labels: Labels,
    /// What keeps containers away that do not tolerate it.
    pub taints: BTreeSet<String>,
    /// Its GPUs.
    pub gpus: Vec<ProblemGpu>,
}

/// A GPU of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProblemGpu {
    /// Its memory; 0 where it is not known.
    pub memory_bytes: u64,
    /// How many of its [`GPU_PARTS`](dormouse_messages::needs::GPU_PARTS) are taken, by whatever stands
    /// there; `None` where it is not known which device containers have.
    pub taken: Option<u64>,
}

/// A job that is released and has not ended.
#[derive(Debug, Clone)]
pub struct ProblemJob {
    /// Its id.
    pub job: JobId,
    /// The demand of one container.
    pub demand: Amounts,
    /// What it asks of its nodes besides room. What runs stays where it is; what starts starts there.
    pub needs: Needs,
    /// The parts of GPUs that a container takes
    /// ([`gpu_parts`](dormouse_messages::needs::ContainerType::gpu_parts)).
    pub gpu_parts: u64,
    /// Its weight; 0 is read as 1.
    pub weight: u32,
    /// The fewest containers that it runs with; 0 is read as 1.
    pub min: u32,
    /// The most containers that it can use.
    pub max: u32,
    /// Whether it may be restarted; false without a checkpoint, and in transit: its containers
    /// then stay where they are.
    pub adjustable: bool,
    /// Until when it is left as it is, although it could be resized: for the words alone.
    pub left_until: Option<Timestamp>,
    /// It lost containers with a node: all are placed again, exempt from θ2, its restart not
    /// counted.
    pub displaced: bool,
    /// Where its containers run; `None` when it does not run yet. Of a displaced job, what
    /// survived: only a preference.
    pub previous: Option<BTreeMap<NodeId, u32>>,
    /// The measured cost of one restart; 0 if unknown, the policy's default is then taken.
    pub stall_s: f64,
    /// While it waits, others that demand what it lacks may start before it.
    pub may_be_overtaken: bool,
    /// Its containers come and go while it runs: no change of their number restarts it.
    pub in_place: Option<InPlace>,
    /// Whose need is met first: a service's and a notebook's `min` is met whatever it costs others.
    pub urgency: Urgency,
    /// Whether it could go on from a checkpoint, if it had to make room for a service.
    pub has_checkpoint: bool,
    /// The containers it gets under [`Allocation::Static`]; `min` when absent.
    pub static_containers: Option<u32>,
    /// Who makes room for whom among training and batch.
    pub precedence: Precedence,
    /// Where it is not a job, but a role of one: it has its containers exactly while the job has
    /// some, and keeps them where they are as long.
    pub role: Option<RoleOf>,
}

/// Whom a job makes room for, and who makes room for it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Precedence {
    /// The value of its priority class; 0 without one.
    pub class: i32,
    /// Whether jobs of lower classes make room for it when it waits.
    pub preempts: bool,
    /// Whether the policy's bound on preemptions keeps it from being restarted or sent back for
    /// others now.
    pub protected: bool,
    /// Seconds of its run that are lost if it is sent back to the queue; 0 where it saves before it
    /// stops.
    pub at_risk_s: f64,
}

/// Whose role it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleOf {
    /// The job.
    pub of: JobId,
    /// The role's name.
    pub name: String,
}

impl ProblemJob {
    /// The type of its containers.
    #[must_use]
    pub fn container_type(&self) -> ContainerType {
        ContainerType {
            demand: self.demand.clone(),
            needs: self.needs.clone(),
        }
    }
}

impl ProblemJob {
    /// A role of this job: `part.count` containers, `previous` where they stand.
    #[must_use]
    pub fn role(&self, part: &Part, previous: Option<BTreeMap<NodeId, u32>>) -> Self {
        Self {
            job: self.job.beside(&part.role),
            demand: part.demand.clone(),
            needs: part.needs.clone(),
            // Whole GPUs, or none: of these nothing else is to be known.
            gpu_parts: part.container_type().gpu_parts(u64::MAX),
            min: part.count,
            max: part.count,
            adjustable: false,
            previous,
            in_place: None,
            static_containers: None,
            role: Some(RoleOf {
                of: self.job.clone(),
                name: part.role.clone(),
            }),
            ..self.clone()
        }
    }
}

/// How a job that is resized in place runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InPlace {
    /// The node of its chief, or of a notebook's server, which stays there as long as the job runs; a
    /// service has none.
    pub chief: Option<NodeId>,
}

/// How the cluster is shared.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// The procedure.
    pub allocation: Allocation,
    /// θ1: how much unfairness is allowed (Dorm, equation 15).
    pub theta1: Decimal,
    /// θ2: the fraction of jobs that may be restarted (Dorm, equation 16).
    pub theta2: Decimal,
    /// How θ1 becomes a bound.
    pub fairness_bound: FairnessBound,
    /// What is maximised.
    pub objective: Objective,
    /// Whether [`Allocation::Static`] starts jobs whole or not at all.
    pub gang: bool,
    /// What the offers of [`Allocation::Drf`] do with a task that does not fit.
    pub drf: Misfit,
    /// Whether P2 admits jobs behind one that cannot start; if not, the longest prefix of the queue.
    pub backfill: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            allocation: Allocation::Dorm,
            theta1: Decimal::new(1, 1),
            theta2: Decimal::new(1, 1),
            fairness_bound: FairnessBound::Paper,
            objective: Objective::default(),
            gang: true,
            drf: Misfit::Skip,
            backfill: true,
        }
    }
}

/// The procedures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocation {
    /// P2: utilization under bounds on unfairness and restarts.
    Dorm,
    /// Whole-task offers in DRF order; what runs is left alone.
    Drf,
    /// Fixed counts, first in first out, all or nothing, spread.
    Static,
}

/// How θ1 becomes a bound on the sum of the fairness losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FairnessBound {
    /// ⌈θ1 · 2m⌉, as published (equation 15).
    Paper,
    /// θ1 · 2m, without the ceiling.
    Exact,
}

/// What the offer loop does with a task that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misfit {
    /// The user is retired and the loop goes on (Mesos).
    Skip,
    /// The first misfit ends the run (Ghodsi et al., Algorithm 1).
    Stop,
}

/// The objective: utilization · Σ u_i n_i − loss · Σ l_i − Σ r_i (ε + stall_s · u_i n̄_i /
/// amortise_s).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Objective {
    /// The weight of utilization.
    pub utilization: f64,
    /// The weight of the fairness loss.
    pub loss: f64,
    /// The time over which a restart must pay; `None`: restarts cost only the tie-break.
    pub amortise_s: Option<f64>,
    /// The part of its speed that training loses on more than one node; 0: nothing.
    pub crossing: f64,
}

impl Default for Objective {
    fn default() -> Self {
        Self {
            utilization: 1.0,
            loss: 0.3,
            amortise_s: Some(900.0),
            crossing: 0.0,
        }
    }
}

impl Objective {
    /// The published objective: utilization alone.
    #[must_use]
    pub const fn paper() -> Self {
        Self {
            utilization: 1.0,
            loss: 0.0,
            amortise_s: None,
            crossing: 0.0,
        }
    }
}

/// The cost of a restart that has not been measured: the three minutes of Dorm's evaluation.
pub const DEFAULT_STALL_S: f64 = 180.0;

/// A clock that does not go back: the seconds since some moment.
pub type Clock = fn() -> f64;

/// The time that one decision may take, by the clock of the caller.
#[derive(Debug, Clone, Copy)]
pub struct TimeLimit {
    /// How long.
    pub seconds: f64,
    /// By which clock.
    pub clock: Clock,
}

/// When to stop looking for a better allocation.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// The relative gap between allocation and bound that is good enough.
    pub gap: f64,
    /// The most branch-and-bound nodes of one solver run.
    pub nodes: Option<u64>,
    /// The time limit of all solver runs together. A decision that met it is recorded as such: its
    /// outcome depends on the machine.
    pub time: Option<TimeLimit>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            gap: 0.01,
            nodes: None,
            time: None,
        }
    }
}
