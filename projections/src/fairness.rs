//! Fairness over time, by tenant.
//!
//! - Dominant shares of running and queued work.
//! - Mean waiting time of all jobs, queued ones with their present age.
//! - Unfairness: Σ max(0, w/W − share) over tenants with queued jobs within their quota, W the weights of all
//!   active tenants. The area under the curve, in share-seconds, compares runs.
//! - Fairness loss: Σ |s − ŝ| of a tenant's jobs (Dorm, eq. 11, 12).
//! - Balance: remembered use by its due.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::AllocationDecided;
use dormouse_messages::{Event, Fact, JobId, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::steps::{Steps, fraction};
use crate::timelines::Metric;
use dormouse_state::{QueueJob, Queues, TenantQueue};

const TENANT_POINTS: usize = 2_000;
const CLUSTER_POINTS: usize = 20_000;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct TenantSteps {
    share: Steps,
    demand: Steps,
    waiting: Steps,
    loss: Steps,
    balance: Steps,
}

/// The step functions of every tenant.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Fairness {
    tenants: BTreeMap<TenantId, TenantSteps>,
    unfairness: Steps,
    /// |s − ŝ| of each live job.
    losses: BTreeMap<TenantId, BTreeMap<JobId, f64>>,
}

impl Fairness {
    /// Folds one event, after `queues`.
    pub fn evolve(&mut self, fact: &Fact<'_>, queues: &Queues) {
        let at = fact.at;
        match fact.event() {
            Some(Event::JobAdmitted(e)) => self.tenant(e.job.tenant(), queues, at),
            Some(Event::JobReleased(e)) => self.tenant(e.job.tenant(), queues, at),
            Some(Event::JobRevised(e)) => self.tenant(e.job.tenant(), queues, at),
            Some(Event::JobCompleted(e)) => self.ended(&e.job, queues, at),
            Some(Event::JobFailed(e)) => self.ended(&e.job, queues, at),
            Some(Event::JobCancelled(e)) => self.ended(&e.job, queues, at),
            Some(Event::AllocationDecided(e)) => {
                self.allocated(e, queues, at);
                self.all(queues, at);
            }
            Some(
                Event::TenantConfigured(_)
                | Event::TenantRemoved(_)
                | Event::ClusterConfigured(_)
                | Event::NodeJoined(_)
                | Event::NodeLost(_)
                | Event::NodeFenced(_)
                | Event::NodeRecovered(_)
                | Event::NodeDrained(_)
                | Event::NodeRestored(_)
                | Event::NodeQuarantined(_)
                | Event::NodeReadmitted(_),
            ) => self.all(queues, at),
            _ => {}
        }
    }

    fn all(&mut self, queues: &Queues, at: Timestamp) {
        for (name, tenant) in &queues.tenants {
            self.measure(name.as_str(), tenant, queues, at);
        }
        for (name, standing) in queues.cluster.standings(at).iter() {
            if let Some(steps) = self.steps(name.as_str()) {
                let balance = fraction(standing.balance, 1000);
                steps.balance.push(at, balance, TENANT_POINTS);
            }
        }
        let lacking = lacking(queues);
        self.unfairness.push(at, lacking, CLUSTER_POINTS);
    }

    fn tenant(&mut self, name: &str, queues: &Queues, at: Timestamp) {
        if let Some(tenant) = queues.tenants.get(name) {
            self.measure(name, tenant, queues, at);
        }
        let lacking = lacking(queues);
        self.unfairness.push(at, lacking, CLUSTER_POINTS);
    }

    fn measure(&mut self, name: &str, tenant: &TenantQueue, queues: &Queues, at: Timestamp) {
        let Some(steps) = self.steps(name) else {
            return;
        };
        let push = |steps: &mut Steps, value| steps.push(at, value, TENANT_POINTS);
        push(&mut steps.share, queues.share(tenant).as_f64());
        push(&mut steps.demand, queues.demand_share(tenant).as_f64());
        push(&mut steps.waiting, tenant.waits.mean_s(at));
    }

    fn steps(&mut self, name: &str) -> Option<&mut TenantSteps> {
        if !self.tenants.contains_key(name) {
            let id = TenantId::new(name).ok()?;
            self.tenants.insert(id, TenantSteps::default());
        }
        self.tenants.get_mut(name)
    }

    fn allocated(&mut self, event: &AllocationDecided, queues: &Queues, at: Timestamp) {
        let mut named: BTreeSet<&str> = BTreeSet::new();
        for job in &event.jobs {
            let tenant = job.job.tenant();
            let loss = (job.share - job.fair_share).abs();
            // The job may have ended before the allocation.
            if !queues.jobs.contains_key(&job.job) {
                continue;
            }
            if let Some(losses) = self.losses_of(tenant) {
                losses.insert(job.job.clone(), loss);
                named.insert(tenant);
            }
        }
        self.lose(&named, at);
    }

    fn losses_of(&mut self, tenant: &str) -> Option<&mut BTreeMap<JobId, f64>> {
        if !self.losses.contains_key(tenant) {
            let id = TenantId::new(tenant).ok()?;
            self.losses.insert(id, BTreeMap::new());
        }
        self.losses.get_mut(tenant)
    }

    fn ended(&mut self, job: &JobId, queues: &Queues, at: Timestamp) {
        let tenant = job.tenant();
        let losses = self.losses.get_mut(tenant);
        if losses.is_some_and(|losses| losses.remove(job).is_some()) {
            self.lose(&BTreeSet::from([tenant]), at);
        }
        self.tenant(tenant, queues, at);
    }

    fn lose(&mut self, named: &BTreeSet<&str>, at: Timestamp) {
        for (name, steps) in &mut self.tenants {
            let loss = if named.contains(name.as_str()) {
                let losses = self.losses.get(name).into_iter().flat_map(BTreeMap::values);
                losses.fold(0.0, |sum, loss| sum + loss)
            } else {
                steps.loss.last()
            };
            steps.loss.push(at, loss, TENANT_POINTS);
        }
    }

    /// Returns only the last point of every series.
    #[must_use]
    pub fn tails(&self) -> Self {
        let tails = self.tenants.iter().map(|(name, steps)| {
            let tail = TenantSteps {
                share: steps.share.tail(),
                demand: steps.demand.tail(),
                waiting: steps.waiting.tail(),
                loss: steps.loss.tail(),
                balance: steps.balance.tail(),
            };
            (name.clone(), tail)
        });
        Self {
            tenants: tails.collect(),
            unfairness: self.unfairness.tail(),
            losses: self.losses.clone(),
        }
    }

    /// Returns a tenant's present fairness loss.
    #[must_use]
    pub fn loss(&self, tenant: &str) -> f64 {
        self.tenants
            .get(tenant)
            .map_or(0.0, |steps| steps.loss.last())
    }

    /// Returns the area under the unfairness until `now`, in share-seconds.
    #[must_use]
    pub fn area(&self, now: Timestamp) -> f64 {
        self.unfairness.integral(now)
    }

    /// Returns a metric's named series.
    #[must_use]
    pub fn series(&self, metric: Metric) -> Vec<(String, &Steps)> {
        let of: fn(&TenantSteps) -> &Steps = match metric {
            Metric::DominantShare => |steps| &steps.share,
            Metric::DemandShare => |steps| &steps.demand,
            Metric::Waiting => |steps| &steps.waiting,
            Metric::Balance => |steps| &steps.balance,
            Metric::FairnessLossByTenant => |steps| &steps.loss,
            Metric::Unfairness => return vec![("unfairness".to_owned(), &self.unfairness)],
            _ => return Vec::new(),
        };
        let tenants = self.tenants.iter();
        tenants
            .map(|(name, steps)| (name.to_string(), of(steps)))
            .collect()
    }
}

fn lacking(queues: &Queues) -> f64 {
    let active = queues.tenants.iter();
    let active: Vec<_> = active
        .filter(|(_, tenant)| tenant.released > 0 || !tenant.order.is_empty())
        .map(|(name, tenant)| (name, f64::from(queues.weight(name.as_str())), tenant))
        .collect();
    let weights: f64 = active.iter().map(|(_, weight, _)| weight).sum();
    let held_back = |name: &TenantId, tenant: &TenantQueue| {
        let Some((_, (_, head))) = queues.first_within(tenant) else {
            return true;
        };
        let over = |job: &QueueJob| {
            let least = job.smallest_containers();
            let name = name.as_str();
            queues.over_quota(name, &job.smallest()).is_some()
                || queues.over_containers(name, least).is_some()
        };
        queues.jobs.get(head).is_none_or(over)
    };
    let backlogged = active
        .iter()
        .filter(|(name, _, tenant)| !held_back(name, tenant));
    let lack =
        backlogged.map(|(_, weight, tenant)| weight / weights - queues.share(tenant).as_f64());
    lack.fold(0.0, |sum, lack| sum + lack.max(0.0))
}

#[cfg(test)]
mod tests {
    use crate::ReadModel;
    use dormouse_state::history::History;

    #[test]
    fn an_allocation_that_crossed_a_jobs_end_leaves_no_loss() {
        let mut history = History::default();
        history.join("n0", 1).run("ads/lr", 2);
        assert!(history.fold::<ReadModel>().fairness.loss("ads") > 0.0);
        history.complete("ads/lr");
        history.allocate(2, &[("ads/lr", 2, 3)], &[]);
        assert_eq!(history.fold::<ReadModel>().fairness.loss("ads"), 0.0);
    }
}
