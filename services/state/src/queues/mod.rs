//! The tenants' queues: queued jobs, held capacity, waiting times. Admission releases from this fold; read
//! models show the same fold. Releases depend on sums per tenant ([`TenantQueue`]), so their cost is
//! independent of queue lengths.
//!
//! 1. `job.admitted`: the job joins its tenant's queue, or waits for dependencies.
//! 2. A completed dependency lets the job join; a failed one marks the job for cancellation.
//! 3. `job.released`: the job holds its newest allocation, or at least its smallest partition.
//! 4. The end returns the capacity; a completion is a sample of durations.
//!
//! Files: `account` (checked sums), `by_writer` (dispatch), `credit` (FIFO simulation), `evolve` (the fold),
//! `sums`, `tenant` (one queue).

mod account;
mod by_writer;
mod credit;
mod evolve;
mod sums;
mod tenant;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dormouse_messages::budget::AtLimit;
use dormouse_messages::job::{Containers, Urgency};
use dormouse_messages::policy::Allocation;
use dormouse_messages::{Amounts, AuxiliaryRoles, JobId, Resource, Sequence, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use account::Contradiction;
pub use credit::Credit;
pub use tenant::{TenantQueue, Waits};

use super::budgets::Allowance;
use super::cluster::ClusterState;
use super::share::Share;
use super::tenants::Above;
use super::total::Total;

/// A lagging admission may depend on a job that just failed.
const FAILED_LIMIT: usize = 10_000;

/// Bounds the search for a job that could run.
pub const LOOKAHEAD: usize = 1_000;

/// Services, then priority class, then priority, then admission.
pub type Order = (Reverse<Urgency>, Reverse<i32>, Reverse<i32>, Sequence);

/// The queue's record of a live job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueJob {
    pub demand: Amounts,
    pub auxiliary: AuxiliaryRoles,
    pub weight: u32,
    pub containers: Containers,
    /// Resizable while running.
    pub adjustable: bool,
    /// Bounds revisions: one container for batch jobs, the concurrency for task sets.
    pub most: Option<u32>,
    pub static_containers: Option<u32>,
    pub urgency: Urgency,
    /// Over all tenants; 0 without a class.
    pub class: i32,
    /// Lower classes give way.
    pub preempts: bool,
    pub priority: i32,
    pub bytes: u64,
    pub admitted: Sequence,
    pub admitted_at: Timestamp,
    pub queue_limit_s: Option<u32>,
    /// Gets nothing until the tenant ends the hold.
    pub on_hold: bool,
    /// Gets nothing until the tenant's budget allows it.
    pub over_budget: bool,
    pub stand: Stand,
}

/// A live job's state in the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stand {
    /// Waiting for dependencies, or on hold.
    Held {
        /// Incomplete dependencies.
        unmet: BTreeSet<JobId>,
    },
    /// A dependency failed; admission cancels the job.
    DependencyFailed {
        by: JobId,
        /// The dependency's end, or this job's later admission.
        at: Sequence,
    },
    Queued {
        since: Timestamp,
        /// Start of the credited wait.
        credited: Timestamp,
    },
    Released {
        at: Timestamp,
        /// By the newest allocation.
        given: u32,
        /// Unschedulable: too large for the empty nodes or the tenant's bounds.
        unschedulable: bool,
    },
}

impl QueueJob {
    /// Returns the sort key in the queue.
    #[must_use]
    pub fn order(&self) -> Order {
        (
            Reverse(self.urgency),
            Reverse(self.class),
            Reverse(self.priority),
            self.admitted,
        )
    }

    /// Returns the newest allocation, at least the smallest partition. Unschedulable and held jobs reserve
    /// nothing more.
    #[must_use]
    pub fn held(&self) -> u64 {
        let (given, unschedulable) = match self.stand {
            Stand::Released {
                given,
                unschedulable,
                ..
            } => (given, unschedulable),
            _ => (0, false),
        };
        if self.on_hold || self.over_budget || unschedulable {
            u64::from(given)
        } else {
            u64::from(given.max(self.auxiliary.containers(self.containers.min)))
        }
    }

    /// Returns the smallest partition's amounts.
    #[must_use]
    pub fn smallest(&self) -> Amounts {
        self.auxiliary
            .partition(&self.demand, self.containers.start())
    }

    /// Returns the smallest partition's containers.
    #[must_use]
    pub fn smallest_containers(&self) -> u64 {
        u64::from(self.auxiliary.containers(self.containers.start()))
    }

    /// Returns the end of a bounded wait.
    #[must_use]
    pub fn queued_until(&self) -> Option<Timestamp> {
        let limit_s = u64::from(self.queue_limit_s?);
        let waits = matches!(self.stand, Stand::Queued { .. } | Stand::Held { .. });
        waits.then(|| self.admitted_at.plus_ms(limit_s * 1000))
    }

    /// Returns the non-preemptible containers.
    #[must_use]
    pub fn non_preemptible(&self) -> u64 {
        if self.adjustable && self.urgency == Urgency::Training {
            u64::from(self.auxiliary.containers(self.containers.min)).min(self.held())
        } else {
            self.held()
        }
    }
}

/// Times from release to completion.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Durations {
    pub count: u64,
    pub total_us: u64,
}

/// The folded queues.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Queues {
    /// Shared with the deciders that place; nodes, policy, tenants and running incarnations come from here.
    pub cluster: ClusterState,
    /// The usable nodes' capacity.
    pub total: Amounts,
    /// Ever had a job admitted.
    pub tenants: BTreeMap<TenantId, TenantQueue>,
    pub jobs: BTreeMap<JobId, QueueJob>,
    /// To be cancelled, with the dependency's end.
    pub dependency_failed: BTreeMap<JobId, Sequence>,
    pub limited: BTreeSet<JobId>,
    /// Bounded waits, by their end.
    pub expiring: BTreeSet<(Timestamp, JobId)>,
    pub unschedulable: BTreeSet<JobId>,
    /// Overtaken blocked heads, since when.
    pub passed_over: BTreeMap<JobId, Timestamp>,
    /// Wins the next tie.
    pub last: Option<TenantId>,
    pub live: u64,
    /// The sum over the live jobs, requested or held.
    pub asked: Total,
    /// Non-preemptible amounts of released training and batch jobs, by class. A preempting class counts lower
    /// classes as free.
    pub by_class: BTreeMap<i32, Total>,
    pub durations: Durations,
    pub credit: Credit,
    waiting_credit: BTreeMap<Sequence, JobId>,
    dependents: BTreeMap<JobId, BTreeSet<JobId>>,
    failed: VecDeque<JobId>,
    /// The first account that does not add up stops the process, so no snapshot holds this.
    #[serde(skip)]
    contradiction: Contradiction,
}

impl Queues {
    /// Returns the mean time between releases of a full cluster, in microseconds as a fraction: mean duration
    /// ÷ slots, slots = live jobs ÷ their common dominant share. `None` before the first completion.
    #[must_use]
    pub fn gap_us(&self) -> Option<(u128, u128)> {
        if self.durations.count == 0 || self.live == 0 {
            return None;
        }
        let share = Share::dominant(&self.asked.amounts(), &self.total);
        let over = u128::from(self.durations.total_us).saturating_mul(u128::from(share.over));
        let jobs = u128::from(self.durations.count).saturating_mul(u128::from(self.live));
        Some((over, jobs.saturating_mul(u128::from(share.under))))
    }

    /// Returns the dominant share of running jobs.
    #[must_use]
    pub fn share(&self, tenant: &TenantQueue) -> Share {
        Share::dominant(&tenant.runs.amounts(), &self.total)
    }

    /// Returns the dominant share of queued jobs.
    #[must_use]
    pub fn demand_share(&self, tenant: &TenantQueue) -> Share {
        Share::dominant(&tenant.queued.amounts(), &self.total)
    }

    /// Returns a tenant's weight.
    #[must_use]
    pub fn weight(&self, tenant: &str) -> u32 {
        self.cluster.tenants.weight(tenant, &self.cluster.policy)
    }

    /// Returns the non-preemptible amounts of all released jobs.
    #[must_use]
    pub fn committed(&self) -> Amounts {
        let mut committed = Amounts::new();
        for tenant in self.tenants.values() {
            committed.add(&tenant.certain(&self.cluster.policy).amounts(), 1);
        }
        committed
    }

    /// Returns a released job's part of [`committed`](Self::committed).
    #[must_use]
    pub fn committed_of(&self, job: &QueueJob) -> Amounts {
        let mut amounts = Amounts::new();
        if matches!(job.stand, Stand::Released { .. }) {
            let containers = match self.cluster.policy.allocation {
                Allocation::Dorm => job.non_preemptible(),
                _ => job.held(),
            };
            job.auxiliary.add_to(&mut amounts, &job.demand, containers);
        }
        amounts
    }

    /// Returns the lower classes' training and batch amounts, which a preempting job may take. Allocations
    /// other than `dorm` take nothing.
    #[must_use]
    pub fn held_below(&self, class: i32, resource: &Resource) -> u64 {
        if self.cluster.policy.allocation != Allocation::Dorm {
            return 0;
        }
        let below = self.by_class.range(..class);
        below
            .map(|(_, total)| total.get(resource))
            .fold(0, u64::saturating_add)
    }

    /// Returns the tenant's bound that the smallest partition exceeds.
    #[must_use]
    pub fn above(&self, id: &JobId) -> Option<Above<'_>> {
        let job = self.jobs.get(id)?;
        let one = (&job.demand, &job.auxiliary);
        self.cluster
            .tenants
            .above(id.tenant(), one, job.containers.start())
    }

    /// Returns a resource whose need exceeds every period of the tenant's budget.
    #[must_use]
    pub fn never_within(&self, id: &JobId) -> Option<Resource> {
        let spending = self.cluster.budgets.get(id.tenant())?;
        let never = spending.never_allows(&self.needs(id)?, self.left_ms(id));
        never.map(|(resource, _)| resource)
    }

    /// Returns the first resource over quota with `needs`: the present amount and the quota.
    #[must_use]
    pub fn over_quota(&self, tenant: &str, needs: &Amounts) -> Option<(&Resource, u64, u64)> {
        let quota = self.cluster.tenants.quota(tenant)?;
        let mut with = self
            .tenants
            .get(tenant)?
            .certain(&self.cluster.policy)
            .amounts();
        with.add(needs, 1);
        let (resource, most) = quota.exceeded_by(&with)?;
        let has = with.get(resource).saturating_sub(needs.get(resource));
        Some((resource, has, most))
    }

    /// Returns present and allowed containers if `more` exceeds the bound.
    #[must_use]
    pub fn over_containers(&self, tenant: &str, more: u64) -> Option<(u64, u64)> {
        let most = u64::from(self.cluster.tenants.grants.max_containers(tenant)?);
        let queue = self.tenants.get(tenant);
        let has = queue.map_or(0, |queue| queue.certain_containers(&self.cluster.policy));
        (has + more > most).then_some((has, most))
    }

    /// Returns what the budget of a tenant leaves to its queued jobs; `None` if no budget holds them. Released
    /// jobs have reserved their smallest partitions for their time limits.
    #[must_use]
    pub fn allowance(&self, tenant: &str, now: Timestamp) -> Option<Allowance> {
        let spending = self.cluster.budgets.get(tenant)?;
        if spending.budget.at_limit == AtLimit::Warn {
            return None;
        }
        let mut allowance = Allowance::new(spending, now);
        let released = self.cluster.jobs.iter();
        for (id, job) in released.filter(|(id, _)| id.tenant() == tenant) {
            let left = job.would_end_at(now).map(|end| end.ms_since(now));
            if let Some(needs) = self.needs(id) {
                allowance.take(&needs, left);
            }
        }
        Some(allowance)
    }

    /// Describes the budget that keeps a queued job from its start.
    #[must_use]
    pub fn over_budget(&self, id: &JobId, now: Timestamp) -> Option<String> {
        let needs = self.needs(id)?;
        let allowance = self.allowance(id.tenant(), now)?;
        let resource = allowance.over(&needs, self.left_ms(id))?;
        let spending = self.cluster.budgets.get(id.tenant())?.at(now);
        Some(spending.words(id.tenant(), resource))
    }

    /// Reports whether a released job's cancellation was requested.
    #[must_use]
    pub fn is_cancelled(&self, id: &JobId) -> bool {
        let job = self.cluster.jobs.get(id);
        job.is_some_and(|job| job.cancel_requested.is_some())
    }

    /// Returns the remaining run time under the job's time limit.
    #[must_use]
    pub fn left_ms(&self, id: &JobId) -> Option<u64> {
        // Mostly asked of queued jobs.
        let queued = self.cluster.queued.get(id);
        let job = queued.or_else(|| self.cluster.jobs.get(id))?;
        job.limits.left_ms()
    }

    /// Returns the amounts to start with.
    #[must_use]
    pub fn needs(&self, id: &JobId) -> Option<Amounts> {
        self.jobs.get(id).map(QueueJob::smallest)
    }

    /// Returns the first job within the tenant's bounds, and its position. Jobs above the bounds block no
    /// others.
    #[must_use]
    pub fn first_within<'a>(&self, tenant: &'a TenantQueue) -> Option<(u64, &'a (Order, JobId))> {
        let mut order = (0..).zip(tenant.order.iter().take(LOOKAHEAD));
        order.find(|(_, (_, id))| self.above(id).is_none() && self.never_within(id).is_none())
    }

    /// Reports whether some usable node fits one container.
    #[must_use]
    pub fn some_node_fits(&self, demand: &Amounts) -> bool {
        let mut usable = self.cluster.nodes.usable();
        usable.any(|(_, node)| demand.times_in(&node.capacity) >= 1)
    }
}
