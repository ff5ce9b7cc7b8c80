//! Derives weights and largest partitions of jobs from tenants' entitlements.
//!
//! 1. Weights. Per tenant, the tenant's weight W, times the factor of its past use, is divided among its live
//!    jobs: w_i = W · w / Σ w, scaled to integers by the common multiple of the sums, so that the proportions are
//!    exact.
//! 2. Largest partitions. A tenant's jobs together stay within its quota: each keeps its least, then its
//!    present count, then the rest goes in order of release. With a used budget each keeps its present count.

use std::collections::BTreeMap;

use dormouse_messages::events::Waiting;
use dormouse_messages::job::Containers;
use dormouse_messages::policy::Allocation;
use dormouse_messages::{Amounts, AuxiliaryRoles, JobId, Quota, Resource, Shares, Timestamp};
use dormouse_state::{ClusterState, Job};
use num_integer::Integer;

use crate::present::starts;

const KEPT_BY_OTHERS: &str = "what its tenant may have holds no more beside what its other jobs cannot give back; it starts when one of them ends, or when the operator raises the quota (or the containers that it may have)";

const RESIZED_LATER: &str = "its tenant's quota is used by jobs that have just started or are being resized; it is decided again as soon as they may be";

pub type Live<'a> = (&'a JobId, &'a Job);

/// Larger weights lose their last bits, so that the shares within a tenant stay exact.
const MOST_WEIGHT: u64 = 1 << 22;

/// Returns each tenant's weight, with a memory times the factor of its past use.
fn tenant_weights<'a>(
    state: &ClusterState,
    tenants: impl Iterator<Item = &'a str>,
    now: Timestamp,
) -> BTreeMap<&'a str, u64> {
    let weight = |name: &'a str| {
        let weight = u64::from(state.tenants.weight(name, &state.policy));
        (name, weight)
    };
    let mut weights: BTreeMap<&str, u64> = tenants.map(weight).collect();
    if !state.usage.is_on() {
        return weights;
    }
    let standings = state.standings(now);
    for (name, weight) in &mut weights {
        *weight *= standings.factor(name);
    }
    let divisor = weights.values().fold(0, |gcd: u64, it| gcd.gcd(it)).max(1);
    let heaviest = weights.values().max().map_or(1, |it| it / divisor);
    let excess = heaviest / MOST_WEIGHT + 1;
    for weight in weights.values_mut() {
        *weight = (*weight / divisor / excess).max(1);
    }
    weights
}

pub fn weights<'a>(
    state: &ClusterState,
    live: &[Live<'a>],
    now: Timestamp,
) -> BTreeMap<&'a JobId, u32> {
    if state.policy.shares == Shares::Job {
        return live.iter().map(|(id, job)| (*id, job.weight)).collect();
    }
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for (id, job) in live {
        *sums.entry(id.tenant()).or_insert(0) += u64::from(job.weight.max(1));
    }
    let weights = tenant_weights(state, sums.keys().copied(), now);
    let weight = |tenant: &str| weights.get(tenant).copied().unwrap_or(1);
    let heaviest = weights.values().max().copied().unwrap_or(1);
    let most = u64::from(u32::MAX) / heaviest;
    // Without a small common multiple.
    let common = sums.values().try_fold(1u64, |common, sum| {
        let next = u128::from(common / common.gcd(sum)) * u128::from(*sum);
        u64::try_from(next).ok().filter(|next| *next <= most)
    });
    let scale = common.unwrap_or(most);
    let of = |(id, job): &Live<'a>| {
        let sum = sums.get(id.tenant()).copied().unwrap_or(1);
        let share = u128::from(weight(id.tenant())) * u128::from(job.weight.max(1));
        let scaled = share * u128::from(scale) / u128::from(sum);
        (*id, u32::try_from(scaled).unwrap_or(u32::MAX).max(1))
    };
    live.iter().map(of).collect()
}

pub fn caps<'a>(state: &ClusterState, live: &[Live<'a>]) -> BTreeMap<&'a JobId, u32> {
    let mut caps = BTreeMap::new();
    let mut by_tenant: BTreeMap<&str, Vec<&Live<'a>>> = BTreeMap::new();
    for job in live {
        by_tenant.entry(job.0.tenant()).or_default().push(job);
    }
    for (tenant, jobs) in by_tenant {
        let most = state.tenants.grants.max_containers(tenant);
        let quota = state.tenants.quota(tenant);
        let holds = state.budgets.holds(tenant);
        if quota.is_none() && most.is_none() && !holds {
            continue;
        }
        let mut left = Left::of(quota, most);
        for (id, job) in &jobs {
            left.take(&job.auxiliary);
            let least = least(state, job);
            caps.insert(*id, left.grant(&job.demand, least, 0, true));
        }
        // A used budget lets nothing grow.
        let upto = if holds { 1 } else { 2 };
        for upto in [present, |job: &Job| job.containers.max]
            .into_iter()
            .take(upto)
        {
            for (id, job) in &jobs {
                if let Some(cap) = caps.get_mut(*id) {
                    *cap = left.grant(&job.demand, upto(job), *cap, false);
                }
            }
        }
    }
    caps
}

/// Returns jobs that take no part: above the tenant's bounds, waiting for an end, or waiting until `kept`
/// jobs may be resized.
pub fn over_quota(
    state: &ClusterState,
    jobs: &[Live<'_>],
    kept: impl Fn(&Job) -> bool,
) -> Vec<Waiting> {
    let mut used: BTreeMap<&str, [Used; 2]> = BTreeMap::new();
    let placed = jobs.iter().filter(|(_, job)| job.assignment.is_some());
    for (id, job) in placed {
        let least = least(state, job);
        let [certain, now] = used.entry(id.tenant()).or_default();
        certain.add(job, least);
        now.add(job, if kept(job) { present(job) } else { least });
    }
    let mut over = Vec::new();
    for (id, job) in jobs.iter().filter(|(_, job)| job.assignment.is_none()) {
        let most = state.tenants.grants.max_containers(id.tenant());
        let quota = state.tenants.quota(id.tenant());
        if quota.is_none() && most.is_none() {
            continue;
        }
        let [certain, now] = used.entry(id.tenant()).or_default();
        let mut waits = |code: &str, reason: String| {
            over.push(Waiting {
                job: (*id).clone(),
                code: code.to_owned(),
                reason,
            });
        };
        let exceeds = |used: &Used| {
            let exceeded = quota.and_then(|quota| quota.exceeded_by(&used.amounts));
            exceeded.is_some() || most.is_some_and(|most| used.containers > u64::from(most))
        };
        let (least, one) = (least(state, job), (&job.demand, &job.auxiliary));
        let (mut certain, mut now) = (certain.clone(), now.clone());
        certain.add(job, least);
        now.add(job, least);
        let above = state.tenants.above(id.tenant(), one, least);
        if let Some(above) = above {
            waits(above.code(), above.waits(id.tenant()));
        } else if exceeds(&certain) {
            waits("quota", KEPT_BY_OTHERS.to_owned());
        } else if exceeds(&now) {
            waits("quota", RESIZED_LATER.to_owned());
        } else {
            used.insert(id.tenant(), [certain, now]);
        }
    }
    over
}

#[derive(Debug, Clone, Default)]
struct Used {
    amounts: Amounts,
    containers: u64,
}

impl Used {
    fn add(&mut self, job: &Job, workers: u32) {
        let containers = u64::from(job.auxiliary.containers(workers));
        job.auxiliary
            .add_to(&mut self.amounts, &job.demand, containers);
        self.containers += containers;
    }
}

/// Returns the workers that a job cannot go below: the start, or the present count if the job cannot shrink
/// while running; at least one.
fn least(state: &ClusterState, job: &Job) -> u32 {
    let Containers { min, .. } = job.containers;
    let resizes = state.policy.allocation == Allocation::Dorm;
    match resizes && job.is_adjustable() && !job.is_served() {
        _ if starts(state, job) => job.containers.start().max(1),
        true => min,
        false => present(job).max(min),
    }
}

fn present(job: &Job) -> u32 {
    job.workers()
}

struct Left {
    amounts: BTreeMap<Resource, u64>,
    containers: Option<u64>,
}

impl Left {
    fn of(quota: Option<&Quota>, most: Option<u32>) -> Self {
        let amounts = quota.into_iter().flat_map(Quota::iter);
        Self {
            amounts: amounts.map(|(r, amount)| (r.clone(), amount)).collect(),
            containers: most.map(u64::from),
        }
    }

    fn take(&mut self, auxiliary: &AuxiliaryRoles) {
        for part in auxiliary.parts() {
            self.grant(&part.demand, part.count, 0, true);
        }
    }

    fn grant(&mut self, demand: &Amounts, wanted: u32, had: u32, regardless: bool) -> u32 {
        let mut more = u64::from(wanted.saturating_sub(had));
        for (resource, amount) in demand.iter().filter(|_| !regardless) {
            if let Some(left) = self.amounts.get(resource) {
                more = more.min(left / amount);
            }
        }
        if let Some(left) = &mut self.containers {
            if !regardless {
                more = more.min(*left);
            }
            *left = left.saturating_sub(more);
        }
        for (resource, amount) in demand.iter() {
            if let Some(left) = self.amounts.get_mut(resource) {
                *left = left.saturating_sub(amount.saturating_mul(more));
            }
        }
        had.saturating_add(u32::try_from(more).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use dormouse_messages::Sequence;
    use dormouse_messages::events::TenantConfigured;
    use dormouse_messages::job::JobSpec;
    use dormouse_messages::{Envelope, Fold, Recorded, Timestamp, Writer};

    use super::*;

    fn job(weight: u32, max: u32) -> Job {
        let spec: JobSpec = serde_json::from_value(serde_json::json!({
            "name": "a", "tenant": "ads", "command": {"start": ["train"]},
            "demand": {"cpu_milli": 1000}, "weight": weight,
            "containers": {"min": 1, "max": max}, "checkpoint": {"mode": "exit"},
        }))
        .expect("valid");
        Job::admitted(&spec, Sequence(1), Timestamp::default())
    }

    fn state(shares: Shares) -> ClusterState {
        let mut state = ClusterState::default();
        state.policy.shares = shares;
        let event = TenantConfigured {
            tenant: "ads".parse().expect("valid"),
            weight: 3,
            quota: "cpu=8".parse().expect("valid"),
            max_job_weight: None,
            priority: None,
        };
        let now = Timestamp::default();
        state.evolve(&Recorded {
            sequence: Sequence(1),
            stored_at: now,
            writer: Writer::Operator,
            envelope: Envelope::new("1".to_owned(), Writer::Operator, now, None, event.into()),
        });
        state
    }

    fn ids() -> [JobId; 3] {
        ["ads/a", "ads/b", "lab/c"].map(|text| text.parse().expect("valid"))
    }

    #[test]
    fn a_tenants_weight_is_divided_among_its_jobs_exactly() {
        let (ids, jobs) = (ids(), [job(1, 4), job(2, 4), job(5, 4)]);
        let live: Vec<Live<'_>> = ids.iter().zip(&jobs).collect();
        let by_job = weights(&state(Shares::Job), &live, Timestamp::default());
        assert_eq!(by_job.values().copied().collect::<Vec<_>>(), [1, 2, 5]);
        // Weight 3 in 1 : 2, against 1 for the other tenant, gives 1, 2, 1.
        let by_tenant = weights(&state(Shares::Tenant), &live, Timestamp::default());
        let [a, b, c] = [&ids[0], &ids[1], &ids[2]].map(|id| by_tenant[id]);
        assert_eq!((b, c), (2 * a, a));
    }

    #[test]
    fn a_quota_bounds_what_the_jobs_of_a_tenant_have_together() {
        let (ids, jobs) = (ids(), [job(1, 6), job(1, 6), job(1, 60)]);
        let live: Vec<Live<'_>> = ids.iter().zip(&jobs).collect();
        let caps = caps(&state(Shares::Job), &live);
        assert_eq!(caps.get(&ids[0]), Some(&6));
        assert_eq!(caps.get(&ids[1]), Some(&2));
        assert_eq!(caps.get(&ids[2]), None);
    }
}
