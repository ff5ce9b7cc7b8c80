//! The tenants' queues: who has what queued, what each tenant runs, how long it has waited.
//!
//! One fold for admission, which releases from it, and for the read models, which show it. All
//! that a release is decided on is kept as sums a tenant ([`TenantQueue`]), so that a release
//! costs the same with ten queued jobs and with a hundred thousand.
//!
//! 1. `job.admitted`: the job joins its tenant's queue, or waits for the jobs it depends on.
//! 2. A dependency completes: the last one lets the job join; one that failed dooms it.
//! 3. `job.released`: it leaves the queue, and what it has counts as run by its tenant: at least
//!    its smallest partition, and what the newest allocation gives it.
//! 4. Its end gives that back; a completion is a sample of how long jobs run.

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

/// Jobs that ended without success and are remembered for those that depend on them: what an
/// admission decided just before such an end was appended may still name it.
const FAILED_LIMIT: usize = 10_000;

/// Jobs of one tenant that are looked at for one that could run: more wait until the nodes or the tenant's
/// bounds change or they are cancelled.
pub const LOOKAHEAD: usize = 1_000;

/// Where a job stands in its tenant's queue: services first, then the highest priority class, then
/// the highest priority, then by admission.
pub type Order = (Reverse<Urgency>, Reverse<i32>, Reverse<i32>, Sequence);

/// A live job, as far as the queue is concerned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueJob {
    /// Demand of one worker.
    pub demand: Amounts,
    /// What stands beside the workers.
    pub beside: Beside,
    /// Weight of its fair share.
    pub weight: u32,
    /// Fewest and most containers.
    pub containers: Containers,
    /// Whether it can be resized while it runs.
    pub adjustable: bool,
    /// What a revision may not exceed: one container of a batch job, the concurrency of a task set.
    pub most: Option<u32>,
    /// Containers under the policy `static`, where the job names them.
    pub static_containers: Option<u32>,
    /// Whose need is met first.
    pub urgency: Urgency,
    /// The value of its priority class, over all tenants; 0 without one.
    pub class: i32,
    /// Whether jobs of lower classes make room for it.
    pub preempts: bool,
    /// Its priority in its tenant's queue.
    pub priority: i32,
    /// Bytes of its specification, as it stands on the log.
    pub bytes: u64,
    /// The event that admitted it.
    pub admitted: Sequence,
    /// When that was.
    pub admitted_at: Timestamp,
    /// The most seconds that it waits for its first start.
    pub queue_limit_s: Option<u32>,
    /// The most seconds that it may run, over all of its lives.
    pub time_limit_s: Option<u32>,
    /// Milliseconds that its lives before the present one ran.
    pub ran_ms: u64,
    /// Since when its present life runs.
    pub running_since: Option<Timestamp>,
    /// Whether it is on hold: it is given nothing before its tenant lets it go.
    pub on_hold: bool,
    /// Where it stands.
    pub stand: Stand,
}

/// Where a live job stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stand {
    /// It waits for the jobs that it depends on, or is on hold.
    Held {
        /// Those that have not completed.
        unmet: BTreeSet<JobId>,
    },
    /// A job that it depends on ended without success: admission cancels it.
    Doomed {
        /// Which.
        by: JobId,
        /// The event that ended it, or that admitted this job after it.
        at: Sequence,
    },
    /// It is queued.
    Queued {
        /// Since when.
        since: Timestamp,
        /// From when on its waiting is credited ([`credit`]).
        credited: Timestamp,
    },
    /// It may have containers.
    Released {
        /// Since when.
        at: Timestamp,
        /// Containers by the newest allocation.
        given: u32,
        /// Containers of its present life.
        running: u32,
        /// Whether it is to be cancelled.
        cancelling: bool,
        /// Whether the newest decision found that the nodes there are would not hold its smallest
        /// partition if they were empty, or that it is more than its tenant may have.
        hopeless: bool,
    },
}

impl QueueJob {
    /// Its place in the queue.
    #[must_use]
    pub fn order(&self) -> Order {
        (
            Reverse(self.urgency),
            Reverse(self.class),
            Reverse(self.priority),
            self.admitted,
        )
    }

    /// What it has: containers of the newest allocation, at least its smallest partition. One that
    /// cannot start on the nodes that there are, or within its tenant's bounds, keeps nothing from the
    /// others.
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

    /// What it needs to start.
    #[must_use]
    pub fn smallest(&self) -> Amounts {
        self.beside.partition(&self.demand, self.containers.start())
    }

    /// The containers of that.
    #[must_use]
    pub fn smallest_containers(&self) -> u64 {
        u64::from(self.beside.containers(self.containers.start()))
    }

    /// Until when it waits in the queue, where that is bounded.
    #[must_use]
    pub fn queued_until(&self) -> Option<Timestamp> {
        let limit_s = u64::from(self.queue_limit_s?);
        let waits = matches!(self.stand, Stand::Queued { .. } | Stand::Held { .. });
        waits.then(|| self.admitted_at.plus_ms(limit_s * 1000))
    }

    /// When its time limit ends it, where it has one and runs.
    #[must_use]
    pub fn ends_at(&self) -> Option<Timestamp> {
        Some(self.running_since?.plus_ms(self.left_ms()?))
    }

    /// When that would be if it ran from `now` on, where it does not run.
    #[must_use]
    pub fn would_end_at(&self, now: Timestamp) -> Option<Timestamp> {
        let since = self.running_since.unwrap_or(now);
        Some(since.plus_ms(self.left_ms()?))
    }

    /// What its time limit leaves for the present life, or the next one.
    #[must_use]
    pub fn left_ms(&self) -> Option<u64> {
        let limit_ms = u64::from(self.time_limit_s?) * 1000;
        Some(limit_ms.saturating_sub(self.ran_ms))
    }

    /// What it cannot be made to give back while it runs: a service keeps what it needs.
    #[must_use]
    pub fn firm(&self) -> u64 {
        match self.adjustable && self.urgency == Urgency::Training {
            true => u64::from(self.beside.containers(self.containers.min)).min(self.held()),
            false => self.held(),
        }
    }
}

/// How long jobs run, from release to completion.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Durations {
    /// Completed jobs.
    pub count: u64,
    /// Their durations together, in microseconds.
    pub total_us: u64,
}

/// The folded queues.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Queues {
    /// The time of the log at the last event.
    pub now: Timestamp,
    /// What tells it.
    pub clock: LogClock,
    /// Which node may say what of a job.
    pub witness: Witness,
    /// The last sequence folded.
    pub sequence: Sequence,
    /// The policy in force.
    pub policy: Policy,
    /// The nodes.
    pub nodes: Membership,
    /// What the usable nodes offer together.
    pub total: Amounts,
    /// What the operator said of the tenants.
    pub config: Tenants,
    /// The queue of every tenant that ever had a job admitted.
    pub tenants: BTreeMap<TenantId, TenantQueue>,
    /// Live jobs.
    pub jobs: BTreeMap<JobId, QueueJob>,
    /// Jobs that are to be cancelled because of one they depend on, and by which event.
    pub doomed: BTreeMap<JobId, Sequence>,
    /// Released jobs with a time limit.
    pub limited: BTreeSet<JobId>,
    /// Those whose waiting is bounded, by when it ends.
    pub expiring: BTreeSet<(Timestamp, JobId)>,
    /// Released jobs that the newest decision found no nodes for, empty or not, or above a bound of their
    /// tenant's.
    pub hopeless: BTreeSet<JobId>,
    /// Heads that did not fit while others went by, with the first time of it.
    pub passed_over: BTreeMap<JobId, Timestamp>,
    /// The tenant that released last keeps its turn in a tie.
    pub last: Option<TenantId>,
    /// Queued and released jobs.
    pub live: u64,
    /// What they ask for and have.
    pub asked: Total,
    /// What released training and batch jobs cannot be made to give back while they run, by the value
    /// of their class: a class that preempts has what lower ones hold.
    pub by_class: BTreeMap<i32, Total>,
    /// How long jobs run.
    pub durations: Durations,
    /// When the jobs would be released if it were first in, first out.
    pub credit: Credit,
    /// The queued jobs whose credited arrival is still to come.
    waiting_credit: BTreeMap<Sequence, JobId>,
    /// The dependents of each live job.
    dependents: BTreeMap<JobId, BTreeSet<JobId>>,
    /// Jobs that ended without success, the oldest first.
    failed: VecDeque<JobId>,
    /// The first that does not add up. What folds it stops, so that it is in no snapshot.
    #[serde(skip)]
    contradiction: Contradiction,
}

impl Queues {
    /// The mean time between two releases when the cluster is full, in microseconds as an exact
    /// fraction: mean duration ÷ slots, slots = live jobs ÷ the dominant share that they have
    /// and ask for together. `None` before the first completion.
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

    /// The dominant share of what a tenant runs.
    #[must_use]
    pub fn share(&self, tenant: &TenantQueue) -> Share {
        Share::dominant(&tenant.runs.amounts(), &self.total)
    }

    /// The dominant share of what a tenant has queued.
    #[must_use]
    pub fn demand_share(&self, tenant: &TenantQueue) -> Share {
        Share::dominant(&tenant.queued.amounts(), &self.total)
    }

    /// A tenant's weight.
    #[must_use]
    pub fn weight(&self, tenant: &str) -> u32 {
        self.config.weight(tenant, &self.policy)
    }

    /// What the jobs that are released hold for certain: what they cannot be made to give back.
    #[must_use]
    pub fn committed(&self) -> Amounts {
        let mut committed = Amounts::new();
        for tenant in self.tenants.values() {
            committed.add(&tenant.certain(&self.policy).amounts(), 1);
        }
        committed
    }

    /// What of a released job counts among what is [committed](Self::committed).
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

    /// What training and batch jobs of lower classes than this one hold of a resource: it is taken
    /// from them for a job of a class that preempts. Other allocations than `dorm` take nothing.
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

    /// The bound of its tenant's that the smallest partition of a live job exceeds by itself.
    #[must_use]
    pub fn above(&self, id: &JobId) -> Option<Above<'_>> {
        let job = self.jobs.get(id)?;
        let one = (&job.demand, &job.beside);
        self.config.above(id.tenant(), one, job.containers.start())
    }

    /// The first resource of which `tenant` would have more than its quota with `needs`, with
    /// what it has of it and the quota.
    #[must_use]
    pub fn over_quota(&self, tenant: &str, needs: &Amounts) -> Option<(&Resource, u64, u64)> {
        let quota = self.config.quota(tenant)?;
        let mut with = self.tenants.get(tenant)?.certain(&self.policy).amounts();
        with.add(needs, 1);
        let (resource, most) = quota.exceeded_by(&with)?;
        let has = with.get(resource).saturating_sub(needs.get(resource));
        Some((resource, has, most))
    }

    /// The containers that `tenant` has and those that it may have, where with `more` it would have
    /// more than that.
    #[must_use]
    pub fn over_containers(&self, tenant: &str, more: u64) -> Option<(u64, u64)> {
        let most = u64::from(self.config.grants.max_containers(tenant)?);
        let queue = self.tenants.get(tenant);
        let has = queue.map_or(0, |queue| queue.certain_containers(&self.policy));
        (has + more > most).then_some((has, most))
    }

    /// What a live job needs to start.
    #[must_use]
    pub fn needs(&self, id: &JobId) -> Option<Amounts> {
        self.jobs.get(id).map(QueueJob::smallest)
    }

    /// The first queued job of a tenant that is within its bounds, with how many stand before it: they hold
    /// nobody back.
    #[must_use]
    pub fn first_within<'a>(&self, tenant: &'a TenantQueue) -> Option<(u64, &'a (Order, JobId))> {
        let mut order = (0..).zip(tenant.order.iter().take(LOOKAHEAD));
        order.find(|(_, (_, id))| self.above(id).is_none())
    }

    /// Whether one container of `demand` fits a usable node.
    #[must_use]
    pub fn some_node_fits(&self, demand: &Amounts) -> bool {
        let mut usable = self.nodes.usable();
        usable.any(|(_, node)| demand.times_in(&node.capacity) >= 1)
    }
}
