//! The tenants' queues: queued jobs, running capacity and waiting time of each tenant.
//!
//! Admission releases from this fold, and read models show it. All inputs of a release are sums per tenant
//! ([`TenantQueue`]), so the cost of a release does not depend on the number of queued jobs.
//!
//! 1. `job.admitted`: the job joins its tenant's queue, or waits for its dependencies.
//! 2. The last completed dependency lets the job join; a failed dependency marks the job for cancellation.
//! 3. `job.released`: the job leaves the queue and counts as running, with its newest allocation or at least
//!    its smallest partition.
//! 4. The end gives the capacity back; a completion is a sample of job durations.
//!
//! Files: `account` (checked sums), [`credit`] (FIFO release times), `evolve` (the fold), [`tenant`] (one
//! queue).

mod account;
mod credit;
mod evolve;
mod tenant;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dormouse_messages::job::{Containers, Urgency};
use dormouse_messages::policy::{Allocation, Policy};
use dormouse_messages::{
    Amounts, Beside, JobId, LogClock, Resource, Sequence, TenantId, Timestamp, Witness,
};
use serde::{Deserialize, Serialize};

use account::Contradiction;
pub use credit::Credit;
pub use tenant::{TenantQueue, Waits};

use super::membership::Membership;
use super::share::Share;
use super::tenants::{Above, Tenants};
use super::total::Total;

/// Bound on remembered failures. An admission decided just before such a failure may still depend on the job.
const FAILED_LIMIT: usize = 10_000;

/// Bound on the jobs of one tenant that are examined for one that could run.
pub const LOOKAHEAD: usize = 1_000;

/// The order in a tenant's queue: services, then priority class, then priority, then admission.
pub type Order = (Reverse<Urgency>, Reverse<i32>, Reverse<i32>, Sequence);

/// The queue's record of a live job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueJob {
    pub demand: Amounts,
    pub beside: Beside,
    pub weight: u32,
    pub containers: Containers,
    /// True if the job can be resized while running.
    pub adjustable: bool,
    /// Upper bound for revisions: one container of a batch job, the concurrency of a task set.
    pub most: Option<u32>,
    pub static_containers: Option<u32>,
    pub urgency: Urgency,
    /// Value of the priority class, over all tenants; 0 without one.
    pub class: i32,
    /// True if jobs of lower classes give way to this one.
    pub preempts: bool,
    pub priority: i32,
    /// Size of the specification on the log.
    pub bytes: u64,
    pub admitted: Sequence,
    pub admitted_at: Timestamp,
    /// Bounds the wait for the first start.
    pub queue_limit_s: Option<u32>,
    /// Bounds the run time over all incarnations.
    pub time_limit_s: Option<u32>,
    /// Run time of earlier incarnations.
    pub ran_ms: u64,
    /// Start of the current incarnation.
    pub running_since: Option<Timestamp>,
    /// True if the job gets nothing until its tenant ends the hold.
    pub on_hold: bool,
    pub stand: Stand,
}

/// The state of a live job in the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stand {
    /// Waiting for dependencies, or on hold.
    Held {
        unmet: BTreeSet<JobId>,
    },
    /// A dependency ended without success; admission cancels the job.
    Doomed {
        by: JobId,
        /// The event that ended the dependency, or that admitted this job later.
        at: Sequence,
    },
    Queued {
        since: Timestamp,
        /// Start of the credited wait ([`credit`]).
        credited: Timestamp,
    },
    Released {
        at: Timestamp,
        /// Containers by the newest allocation.
        given: u32,
        running: u32,
        cancelling: bool,
        /// Unschedulable: the smallest partition exceeds the empty nodes or the tenant's bounds.
        hopeless: bool,
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

    /// Returns the containers that count as held: the newest allocation, at least the smallest partition. An
    /// unschedulable job or one on hold reserves nothing beyond its allocation.
    #[must_use]
    pub fn held(&self) -> u64 {
        let (given, hopeless) = match self.stand {
            Stand::Released {
                given, hopeless, ..
            } => (given, hopeless),
            _ => (0, false),
        };
        match self.on_hold || hopeless {
            true => u64::from(given),
            false => u64::from(given.max(self.beside.containers(self.containers.min))),
        }
    }

    /// Returns the amounts needed to start.
    #[must_use]
    pub fn smallest(&self) -> Amounts {
        self.beside.partition(&self.demand, self.containers.start())
    }

    /// Returns the containers needed to start.
    #[must_use]
    pub fn smallest_containers(&self) -> u64 {
        u64::from(self.beside.containers(self.containers.start()))
    }

    /// Returns the end of a bounded wait.
    #[must_use]
    pub fn queued_until(&self) -> Option<Timestamp> {
        let limit_s = u64::from(self.queue_limit_s?);
        let waits = matches!(self.stand, Stand::Queued { .. } | Stand::Held { .. });
        waits.then(|| self.admitted_at.plus_ms(limit_s * 1000))
    }

    /// Returns the time at which the time limit ends the running job.
    #[must_use]
    pub fn ends_at(&self) -> Option<Timestamp> {
        Some(self.running_since?.plus_ms(self.left_ms()?))
    }

    /// Returns the end by time limit; for a job that does not run, as if started at `now`.
    #[must_use]
    pub fn would_end_at(&self, now: Timestamp) -> Option<Timestamp> {
        let since = self.running_since.unwrap_or(now);
        Some(since.plus_ms(self.left_ms()?))
    }

    /// Returns the run time that the limit leaves for the current or next incarnation.
    #[must_use]
    pub fn left_ms(&self) -> Option<u64> {
        let limit_ms = u64::from(self.time_limit_s?) * 1000;
        Some(limit_ms.saturating_sub(self.ran_ms))
    }

    /// Returns the non-preemptible containers: those that a running job cannot be made to give back.
    #[must_use]
    pub fn firm(&self) -> u64 {
        match self.adjustable && self.urgency == Urgency::Training {
            true => u64::from(self.beside.containers(self.containers.min)).min(self.held()),
            false => self.held(),
        }
    }
}

/// Durations of jobs, from release to completion.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Durations {
    pub count: u64,
    pub total_us: u64,
}

/// The folded queues.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Queues {
    pub now: Timestamp,
    pub clock: LogClock,
    pub witness: Witness,
    pub sequence: Sequence,
    pub policy: Policy,
    pub nodes: Membership,
    pub total: Amounts,
    pub config: Tenants,
    /// Every tenant that ever had a job admitted.
    pub tenants: BTreeMap<TenantId, TenantQueue>,
    pub jobs: BTreeMap<JobId, QueueJob>,
    /// Jobs to be cancelled because a dependency failed, with the failing event.
    pub doomed: BTreeMap<JobId, Sequence>,
    pub limited: BTreeSet<JobId>,
    /// Jobs with a bounded wait, by its end.
    pub expiring: BTreeSet<(Timestamp, JobId)>,
    pub hopeless: BTreeSet<JobId>,
    /// Blocked heads that other jobs overtook, with the first time.
    pub passed_over: BTreeMap<JobId, Timestamp>,
    /// The tenant that released last wins ties.
    pub last: Option<TenantId>,
    pub live: u64,
    /// The sum over the live jobs, requested or held.
    pub asked: Total,
    /// Non-preemptible amounts of released training and batch jobs, by class value: a preempting class counts
    /// the amounts of lower classes as available.
    pub by_class: BTreeMap<i32, Total>,
    pub durations: Durations,
    pub credit: Credit,
    /// Queued jobs whose credited arrival is in the future.
    waiting_credit: BTreeMap<Sequence, JobId>,
    dependents: BTreeMap<JobId, BTreeSet<JobId>>,
    failed: VecDeque<JobId>,
    /// The first account that does not add up. The folding process stops, so no snapshot holds this field.
    #[serde(skip)]
    contradiction: Contradiction,
}

impl Queues {
    /// Returns the mean time between two releases in a full cluster, in microseconds as an exact fraction:
    /// mean duration ÷ slots, slots = live jobs ÷ their common dominant share. `None` before the first
    /// completion.
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

    /// Returns the dominant share of a tenant's running jobs.
    #[must_use]
    pub fn share(&self, tenant: &TenantQueue) -> Share {
        Share::dominant(&tenant.runs.amounts(), &self.total)
    }

    /// Returns the dominant share of a tenant's queued jobs.
    #[must_use]
    pub fn demand_share(&self, tenant: &TenantQueue) -> Share {
        Share::dominant(&tenant.queued.amounts(), &self.total)
    }

    /// Returns a tenant's weight.
    #[must_use]
    pub fn weight(&self, tenant: &str) -> u32 {
        self.config.weight(tenant, &self.policy)
    }

    /// Returns the non-preemptible amounts of all released jobs.
    #[must_use]
    pub fn committed(&self) -> Amounts {
        let mut committed = Amounts::new();
        for tenant in self.tenants.values() {
            committed.add(&tenant.certain(&self.policy).amounts(), 1);
        }
        committed
    }

    /// Returns a released job's part of [`committed`](Self::committed).
    #[must_use]
    pub fn committed_of(&self, job: &QueueJob) -> Amounts {
        let mut amounts = Amounts::new();
        if matches!(job.stand, Stand::Released { .. }) {
            let containers = match self.policy.allocation {
                Allocation::Dorm => job.firm(),
                _ => job.held(),
            };
            job.beside.add_to(&mut amounts, &job.demand, containers);
        }
        amounts
    }

    /// Returns the amount of a resource that training and batch jobs of lower classes hold, and that a
    /// preempting job may take. Allocations other than `dorm` take nothing.
    #[must_use]
    pub fn held_below(&self, class: i32, resource: &Resource) -> u64 {
        if self.policy.allocation != Allocation::Dorm {
            return 0;
        }
        let below = self.by_class.range(..class);
        below
            .map(|(_, total)| total.get(resource))
            .fold(0, u64::saturating_add)
    }

    /// Returns the tenant's bound that the job's smallest partition exceeds by itself.
    #[must_use]
    pub fn above(&self, id: &JobId) -> Option<Above<'_>> {
        let job = self.jobs.get(id)?;
        let one = (&job.demand, &job.beside);
        self.config.above(id.tenant(), one, job.containers.start())
    }

    /// Returns the first resource whose quota `tenant` would exceed with `needs`, with the present amount and
    /// the quota.
    #[must_use]
    pub fn over_quota(&self, tenant: &str, needs: &Amounts) -> Option<(&Resource, u64, u64)> {
        let quota = self.config.quota(tenant)?;
        let mut with = self.tenants.get(tenant)?.certain(&self.policy).amounts();
        with.add(needs, 1);
        let (resource, most) = quota.exceeded_by(&with)?;
        let has = with.get(resource).saturating_sub(needs.get(resource));
        Some((resource, has, most))
    }

    /// Returns the present and the allowed containers of `tenant` if `more` would exceed the bound.
    #[must_use]
    pub fn over_containers(&self, tenant: &str, more: u64) -> Option<(u64, u64)> {
        let most = u64::from(self.config.grants.max_containers(tenant)?);
        let queue = self.tenants.get(tenant);
        let has = queue.map_or(0, |queue| queue.certain_containers(&self.policy));
        (has + more > most).then_some((has, most))
    }

    /// Returns the amounts that a live job needs to start.
    #[must_use]
    pub fn needs(&self, id: &JobId) -> Option<Amounts> {
        self.jobs.get(id).map(QueueJob::smallest)
    }

    /// Returns the first queued job within the tenant's bounds, and the number of jobs before it. Jobs above
    /// the bounds block no others.
    #[must_use]
    pub fn first_within<'a>(&self, tenant: &'a TenantQueue) -> Option<(u64, &'a (Order, JobId))> {
        let mut order = (0..).zip(tenant.order.iter().take(LOOKAHEAD));
        order.find(|(_, (_, id))| self.above(id).is_none())
    }

    /// Reports whether one container of `demand` fits a usable node.
    #[must_use]
    pub fn some_node_fits(&self, demand: &Amounts) -> bool {
        let mut usable = self.nodes.usable();
        usable.any(|(_, node)| demand.times_in(&node.capacity) >= 1)
    }
}
