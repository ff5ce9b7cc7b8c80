//! The operator's policy: how containers are allocated and which queued job goes next.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::classes::{self, Preemption, PriorityClass};
use crate::grants::GrantsRule;
use crate::whole::whole;

/// The largest weight of a job or a tenant: beyond it the arithmetic of shares is pointless.
pub const MAX_WEIGHT: u32 = 1_000_000;

/// No job is left alone after its start for longer than a day: one that must not be resized has
/// no checkpoint.
pub const MAX_MIN_RUN_S: u32 = 86_400;

/// Priorities lie between this and its negative.
pub const MAX_PRIORITY: i32 = 1_000;

/// How containers are allocated to jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Allocation {
    /// P2 of the Dorm paper: utilization under fairness and adjustment bounds.
    #[default]
    Dorm,
    /// DRF offers of whole containers; nothing that runs is adjusted.
    Drf,
    /// A fixed number of containers a job, first in, first out, all or nothing, spread: the
    /// baseline of the Dorm paper.
    Static,
}

/// How the fairness bound Σ l ≤ θ1 · 2m is read (Dorm, eq. 15).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FairnessBound {
    /// ⌈θ1 · 2m⌉, as printed.
    #[default]
    Paper,
    /// θ1 · 2m, without the ceiling.
    Exact,
}

/// Which queued job is released next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Queue {
    /// First in, first out, over all tenants: nobody is overtaken.
    #[default]
    Fifo,
    /// The tenant with the smallest dominant share of what it runs (DRF; Tromino's DRF-aware).
    Drf,
    /// The tenant with the largest dominant share of what it has queued (Tromino's
    /// demand-aware).
    Demand,
    /// The tenant with the largest ratio of the two (Tromino's demand-DRF-aware).
    DemandDrf,
    /// The tenant whose mean waiting time will be the longest, by the cluster's throughput.
    ProjectedWait,
    /// The same, but a tenant's queued work is credited no faster than the cluster could run
    /// it, and nobody waits much longer than it would first in, first out.
    BalancedWait,
}

/// Who may start while a job that came before it waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Admit {
    /// Any job that demands nothing of what that job lacks, or starts on nodes that its containers do
    /// not fit, and takes nothing of what it is about to get.
    #[default]
    Backfill,
    /// Nobody: the longest prefix of the queue that fits, as in the Dorm paper.
    Prefix,
}

impl Queue {
    /// Every policy.
    pub const ALL: [Self; 6] = [
        Self::Fifo,
        Self::Drf,
        Self::Demand,
        Self::DemandDrf,
        Self::ProjectedWait,
        Self::BalancedWait,
    ];

    /// Its name in a policy.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Drf => "drf",
            Self::Demand => "demand",
            Self::DemandDrf => "demand-drf",
            Self::ProjectedWait => "projected-wait",
            Self::BalancedWait => "balanced-wait",
        }
    }
}

/// Whether a tenant that the operator has not configured may submit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnknownTenants {
    /// It may, with the policy's `unknown_weight` and without a quota.
    #[default]
    Accept,
    /// What it submits is refused.
    Refuse,
}

/// Among whom the optimizer shares the cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Shares {
    /// Each job has its own weight, as in Dorm.
    #[default]
    Job,
    /// A tenant's weight is divided among its released jobs, by their own weights.
    Tenant,
}

/// On which of the nodes that have a slot for it a container goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// The containers of a job go on as few nodes as they can.
    #[default]
    Pack,
    /// Each container by itself goes to the node with the most slots, as under a scheduler that does not
    /// know which containers belong together: a baseline.
    Spread,
}

impl Placement {
    fn is_pack(&self) -> bool {
        *self == Self::Pack
    }
}

/// Weights of the optimizer's objective: maximise utilization · Σ u n − loss · Σ l −
/// Σ r (ε + stall · u n̄ / `amortise_s`).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a map such as {utilization: 1, loss: 0.3, amortise_s: 900}"
)]
pub struct Objective {
    /// Weight of the cluster's utilization.
    pub utilization: f64,
    /// Weight of the fairness loss.
    pub loss: f64,
    /// Seconds over which a restart's lost work is paid back; null leaves the tie-break alone.
    pub amortise_s: Option<f64>,
    /// The part of its speed, 0 to below 1, that training loses when its containers stand on more than
    /// one node: then it gets no container elsewhere that costs it more than it brings. 0: nothing.
    #[serde(skip_serializing_if = "is_nothing")]
    pub crossing: f64,
}

fn is_nothing(part: &f64) -> bool {
    *part == 0.0
}

impl Default for Objective {
    /// {1, 0.3, 900}: less loss and fewer restarts at equal utilization than the paper's {1, 0, null}.
    fn default() -> Self {
        Self {
            utilization: 1.0,
            loss: 0.3,
            amortise_s: Some(900.0),
            crossing: 0.0,
        }
    }
}

/// The cluster's policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a map such as {allocation: dorm, theta1: 0.1, theta2: 0.1}"
)]
pub struct Policy {
    /// How containers are allocated.
    pub allocation: Allocation,
    /// Fairness threshold, 0 to 1.
    pub theta1: f64,
    /// Adjustment threshold, 0 to 1.
    pub theta2: f64,
    /// How the fairness bound is read.
    pub fairness_bound: FairnessBound,
    /// Weights of the objective.
    pub objective: Objective,
    /// On which nodes a job's containers go.
    #[serde(skip_serializing_if = "Placement::is_pack")]
    pub placement: Placement,
    /// Whether a job starts with all of its containers or not at all. Without that, under `allocation:
    /// static`, one that is resized in place starts with those that fit and is given the others as they
    /// become free: a baseline.
    #[serde(skip_serializing_if = "is_true")]
    pub gang: bool,
    /// Which queued job goes next.
    pub queue: Queue,
    /// Who may start while a job that came before it waits.
    pub admit: Admit,
    /// A job at the head of its queue that others went by because it did not fit, for the first
    /// time this many seconds ago, has room reserved for it.
    #[serde(deserialize_with = "whole")]
    pub reserve_after_s: u32,
    /// The fewest seconds between a job's start and its next resize, where the job names none;
    /// null: a few times what its resizes have cost. Drains and losses do not wait for it.
    pub min_run_s: Option<u32>,
    /// Whether a tenant that was not configured may submit.
    pub unknown_tenants: UnknownTenants,
    /// The weight of such a tenant.
    #[serde(deserialize_with = "whole")]
    pub unknown_weight: u32,
    /// Among whom the cluster is shared.
    pub shares: Shares,
    /// Seconds without a renewed lease until a node counts as lost. Nodes that `up` runs itself have
    /// no part in it.
    #[serde(deserialize_with = "whole")]
    pub lease_s: u32,
    /// Seconds after its last renewal until an agent ends its containers by itself; null: three
    /// quarters of `lease_s`.
    pub fence_s: Option<u32>,
    /// Whether tenants may have what was not granted to them; `open` where nobody said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grants: Option<GrantsRule>,
    /// How often and how soon a job may be preempted.
    #[serde(skip_serializing_if = "Preemption::is_unbounded")]
    pub preemption: Preemption,
    /// The priority classes that jobs may name, where their tenants are granted them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub priority_classes: BTreeMap<String, PriorityClass>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_true(flag: &bool) -> bool {
    *flag
}

/// A node's lease, as the policy has it: an agent ends its containers after `fence`, so that none
/// runs any more when the node is declared lost, after `lease`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseTerm {
    /// Milliseconds without a renewal until the node is lost.
    pub lease_ms: u64,
    /// Milliseconds without a renewal until its containers are asked to end.
    pub fence_ms: u64,
}

impl LeaseTerm {
    /// How long fenced containers have to end before they are killed: half of what is left of the
    /// lease, the other half is for the kill itself.
    #[must_use]
    pub const fn grace_ms(&self) -> u64 {
        (self.lease_ms - self.fence_ms) / 2
    }
}

impl Default for LeaseTerm {
    fn default() -> Self {
        Policy::default().lease()
    }
}

/// A minute and a half outlives the restart of a single broker.
const LEASE_S: u32 = 90;

/// A broker's round trip must fit well into it.
const MIN_LEASE_S: u32 = 1;

/// With several brokers an election takes seconds, in which no lease can be renewed: no container may
/// end of one.
pub const MIN_REPLICATED_LEASE_S: u32 = 20;

/// A node that is silent for a day is lost in any case.
const MAX_LEASE_S: u32 = 86_400;

/// Ten minutes: long beside a release, short beside a training job.
const RESERVE_AFTER_S: u32 = 600;

impl Default for Policy {
    /// Dorm-3 of the paper: both thresholds 0.1.
    fn default() -> Self {
        Self {
            allocation: Allocation::Dorm,
            theta1: 0.1,
            theta2: 0.1,
            fairness_bound: FairnessBound::Paper,
            objective: Objective::default(),
            placement: Placement::Pack,
            gang: true,
            queue: Queue::Fifo,
            admit: Admit::Backfill,
            reserve_after_s: RESERVE_AFTER_S,
            min_run_s: None,
            unknown_tenants: UnknownTenants::Accept,
            unknown_weight: 1,
            shares: Shares::Job,
            lease_s: LEASE_S,
            fence_s: None,
            grants: None,
            preemption: Preemption::default(),
            priority_classes: BTreeMap::new(),
        }
    }
}

impl Policy {
    /// Whether jobs may start while one that came before them waits. The static baseline is first
    /// in, first out, all or nothing.
    #[must_use]
    pub fn backfills(&self) -> bool {
        self.admit == Admit::Backfill && self.allocation != Allocation::Static
    }

    /// The nodes' leases. A fence that would not leave a quarter of the lease is the usual one: the
    /// containers must have ended when the lease ends, whatever stands on the log.
    #[must_use]
    pub fn lease(&self) -> LeaseTerm {
        let lease_ms = u64::from(self.lease_s.max(MIN_LEASE_S)) * 1_000;
        let latest = lease_ms / 4 * 3;
        let fence_ms = self.fence_s.map(|fence_s| u64::from(fence_s) * 1_000);
        LeaseTerm {
            lease_ms,
            fence_ms: fence_ms.map_or(latest, |fence_ms| fence_ms.min(latest)),
        }
    }

    /// What is wrong with the leases, if anything.
    fn lease_problem(&self) -> Option<String> {
        let (lease_s, fence_s) = (self.lease_s, self.fence_s);
        if !(MIN_LEASE_S..=MAX_LEASE_S).contains(&lease_s) {
            return Some(format!(
                "lease_s is {lease_s}; it must lie between {MIN_LEASE_S} and {MAX_LEASE_S}"
            ));
        }
        let latest = lease_s * 3 / 4;
        let fence_s = fence_s.filter(|fence_s| *fence_s == 0 || *fence_s > latest)?;
        Some(format!(
            "fence_s is {fence_s}; with lease_s {lease_s} it must lie between 1 and {latest}: a quarter of the lease is left for containers to end"
        ))
    }

    /// Says what is wrong with the numbers, if anything.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let problem = self.lease_problem();
        let problem = problem.or_else(|| self.preemption.problem());
        if let Some(problem) = problem.or_else(|| classes::problem(&self.priority_classes)) {
            return Some(problem);
        }
        for (name, theta) in [("theta1", self.theta1), ("theta2", self.theta2)] {
            if !(0.0..=1.0).contains(&theta) {
                return Some(format!("{name} is {theta}; it must lie between 0 and 1"));
            }
        }
        if !(1..=MAX_WEIGHT).contains(&self.unknown_weight) {
            return Some(format!(
                "unknown_weight is {}; it must lie between 1 and {MAX_WEIGHT}",
                self.unknown_weight
            ));
        }
        if self
            .min_run_s
            .is_some_and(|min_run_s| min_run_s > MAX_MIN_RUN_S)
        {
            return Some(format!(
                "min_run_s is above {MAX_MIN_RUN_S}, a day; a smaller one, or theta2 0 to resize nothing"
            ));
        }
        if !self.gang && self.allocation != Allocation::Static {
            return Some(
                "gang: false is a baseline of allocation: static; the others start gangs whole"
                    .to_owned(),
            );
        }
        let objective = &self.objective;
        if !(0.0..1.0).contains(&objective.crossing) {
            return Some(format!(
                "objective.crossing is {}; it must lie between 0 and below 1",
                objective.crossing
            ));
        }
        if objective.utilization == 0.0 && objective.loss == 0.0 {
            return Some("the objective's weights are both 0; one must be above".to_owned());
        }
        let weights = [
            objective.utilization,
            objective.loss,
            objective.amortise_s.unwrap_or(1.0),
        ];
        if weights
            .iter()
            .any(|weight| !weight.is_finite() || *weight < 0.0)
            || objective.amortise_s == Some(0.0)
        {
            return Some(
                "the objective's weights must be 0 or more, amortise_s above 0 or null".to_owned(),
            );
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lasting(lease_s: u32, fence_s: Option<u32>) -> Policy {
        Policy {
            lease_s,
            fence_s,
            ..Policy::default()
        }
    }

    #[test]
    fn containers_have_ended_before_the_lease_has() {
        for (lease_s, fence_s) in [
            (90, None),
            (20, None),
            (1, None),
            (90, Some(30)),
            (8, Some(6)),
        ] {
            let policy = lasting(lease_s, fence_s);
            assert_eq!(policy.problem(), None);
            let term = policy.lease();
            let killed_ms = term.fence_ms + term.grace_ms();
            assert!(killed_ms < term.lease_ms, "{term:?}");
            assert!(term.lease_ms - killed_ms >= term.lease_ms / 8, "{term:?}");
        }
    }

    #[test]
    fn baselines_and_prices_that_make_no_sense_are_refused() {
        let policy = |text: &str| serde_json::from_str::<Policy>(text).expect("a policy");
        for wrong in [
            r#"{"gang": false}"#,
            r#"{"objective": {"crossing": 1}}"#,
            r#"{"objective": {"crossing": -0.1}}"#,
        ] {
            assert!(policy(wrong).problem().is_some(), "{wrong}");
        }
        let right = r#"{"allocation": "static", "gang": false, "placement": "spread", "objective": {"crossing": 0.7}}"#;
        assert_eq!(policy(right).problem(), None);
        assert_eq!(policy(right).placement, Placement::Spread);
    }

    #[test]
    fn a_fence_after_the_lease_is_refused_and_never_used() {
        for (lease_s, fence_s) in [(0, None), (100_000, None), (10, Some(60)), (10, Some(0))] {
            assert!(lasting(lease_s, fence_s).problem().is_some());
        }
        let term = lasting(10, Some(60)).lease();
        assert_eq!((term.lease_ms, term.fence_ms), (10_000, 7_500));
    }
}
