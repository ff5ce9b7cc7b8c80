//! The queries `tenants` and `tenant`.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::budget::{BudgetLevel, TenantBudget, hours};
use dormouse_messages::grants::{Grants, GrantsRule};
use dormouse_messages::policy::Queue;
use dormouse_messages::{Amounts, JobId, Quota, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use super::error::QueryError;
use crate::ReadModel;
use crate::jobs::{room::Room, turn};
use dormouse_state::{Queues, Spending, Stand, TenantQueue};

const LISTED: usize = 50;

/// Tenants configured or with admitted jobs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TenantsAnswer {
    pub queue: Queue,
    #[serde(default)]
    pub grants: GrantsRule,
    pub tenants: Vec<TenantRow>,
    /// In share-seconds.
    pub unfairness_area: f64,
}

/// A row of the tenant list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TenantRow {
    pub tenant: TenantId,
    pub configured: bool,
    pub weight: u32,
    /// An absent resource has no limit.
    pub quota: Quota,
    pub max_job_weight: Option<u32>,
    pub priority: i32,
    #[serde(default)]
    pub grants: Grants,
    /// Fraction of the active tenants' weights, or of all tenants'.
    pub entitled: f64,
    pub share: f64,
    pub demand_share: f64,
    pub runs: Amounts,
    pub queued: Amounts,
    pub released_jobs: u64,
    pub queued_jobs: u64,
    /// For dependencies.
    pub held_jobs: u64,
    pub mean_wait_s: f64,
    pub longest_wait_s: f64,
    /// From submission to first start, now or end. Services and notebooks started on demand do not count.
    #[serde(default)]
    pub mean_start_wait_s: f64,
    #[serde(default)]
    pub longest_start_wait_s: f64,
    pub fairness_loss: f64,
    /// Use ÷ due by the policy's memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balance: Option<f64>,
    /// Factor of the weight by the balance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetRow>,
    pub reason: String,
}

/// A tenant's budget and its use in the present period.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BudgetRow {
    pub budget: TenantBudget,
    pub level: BudgetLevel,
    /// The resource with the largest used part.
    pub resource: String,
    pub percent: u64,
    /// Used hours, and those of the period, for a person.
    pub used: String,
    pub hours: String,
    /// The period's end.
    pub until: Option<Timestamp>,
    /// At the present use, if that is before the period's end.
    pub ends_at: Option<Timestamp>,
}

impl BudgetRow {
    /// Returns the row of a tenant's budget at `now`.
    #[must_use]
    pub fn of(spending: &Spending, now: Timestamp) -> Option<Self> {
        let spending = spending.at(now);
        let spent = spending.most_spent()?;
        let ends = spending.spent().filter_map(|it| it.reaches_in_ms(100));
        let ends_at = ends.min().map(|after| now.plus_ms(after));
        let in_period = |at: &Timestamp| spending.until.is_none_or(|until| *at < until);
        Some(Self {
            budget: spending.budget.clone(),
            level: spending.level_now(),
            percent: u64::try_from(spent.percent()).unwrap_or(u64::MAX),
            used: hours(&spent.resource, spent.used),
            hours: hours(&spent.resource, spent.limit),
            resource: spent.resource.name().to_owned(),
            until: spending.until,
            ends_at: ends_at.filter(in_period),
        })
    }
}

/// The query's parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantQuery {
    pub tenant: TenantId,
}

/// A tenant with the head of its queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TenantDetail {
    #[serde(flatten)]
    pub row: TenantRow,
    pub queue: Vec<QueuedJob>,
}

/// A queued job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueuedJob {
    pub position: u64,
    pub job: JobId,
    /// Precedes the priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class: Option<String>,
    pub priority: i32,
    pub needs: Amounts,
    pub waited_s: f64,
}

fn known(queues: &Queues) -> BTreeSet<&TenantId> {
    let configured = queues.cluster.tenants.iter().map(|(name, _)| name);
    let granted = queues.cluster.tenants.grants.iter().map(|(name, _)| name);
    configured
        .chain(granted)
        .chain(queues.tenants.keys())
        .collect()
}

pub(super) fn tenants(model: &ReadModel, now: Timestamp) -> TenantsAnswer {
    let queues = &model.queues;
    let names = known(queues);
    let waits = start_waits(model, None, now);
    let room = Room::new(queues, &model.jobs);
    TenantsAnswer {
        queue: queues.cluster.policy.queue,
        grants: queues.cluster.tenants.grants.rule(),
        tenants: names
            .into_iter()
            .map(|name| row((model, &room), name, &waits, now))
            .collect(),
        unfairness_area: model.fairness.area(now),
    }
}

fn listed_class(model: &ReadModel, id: &JobId) -> Option<String> {
    let class = model.state().job(id)?.precedence.class.as_ref()?;
    Some(class.name.clone())
}

pub(super) fn tenant(
    model: &ReadModel,
    query: &TenantQuery,
    now: Timestamp,
) -> Result<TenantDetail, QueryError> {
    let queues = &model.queues;
    let name = query.tenant.as_str();
    let queue = queues.tenants.get(name);
    let config = &queues.cluster.tenants;
    if queue.is_none() && config.get(name).is_none() && config.grants.get(name).is_none() {
        return Err(QueryError::not_found(format!(
            "there is no tenant {name}; `dormouse tenants` lists those that are known"
        )));
    }
    let order = queue
        .into_iter()
        .flat_map(|queue| &queue.order)
        .take(LISTED);
    let listed = (1..).zip(order).filter_map(|(position, (_, id))| {
        let job = queues.jobs.get(id)?;
        let Stand::Queued { since, .. } = job.stand else {
            return None;
        };
        Some(QueuedJob {
            position,
            job: id.clone(),
            priority_class: listed_class(model, id),
            priority: job.priority,
            needs: queues.needs(id)?,
            waited_s: now.seconds_since(since).max(0.0),
        })
    });
    Ok(TenantDetail {
        row: row(
            (model, &Room::new(queues, &model.jobs)),
            &query.tenant,
            &start_waits(model, Some(name), now),
            now,
        ),
        queue: listed.collect(),
    })
}

#[derive(Debug, Clone, Copy, Default)]
struct StartWaits {
    jobs: f64,
    sum_s: f64,
    longest_s: f64,
}

fn start_waits<'a>(
    model: &'a ReadModel,
    only: Option<&str>,
    now: Timestamp,
) -> BTreeMap<&'a str, StartWaits> {
    let mut waits: BTreeMap<&str, StartWaits> = BTreeMap::new();
    for (id, job) in model.jobs.live().chain(model.jobs.ended()) {
        let tenant = id.tenant();
        if only.is_some_and(|only| only != tenant) {
            continue;
        }
        // Started on demand.
        let least = || job.request(id, model.state()).map(|it| it.bounds.min);
        if job.kind.is_served() && least() == Some(0) {
            continue;
        }
        let waited_s = job.waiting_s(now);
        let of = waits.entry(tenant).or_default();
        of.jobs += 1.0;
        of.sum_s += waited_s;
        of.longest_s = of.longest_s.max(waited_s);
    }
    waits
}

fn longest_wait_s(queues: &Queues, tenant: &TenantQueue, now: Timestamp) -> f64 {
    let queued = tenant.order.iter().filter_map(|(_, id)| {
        let job = queues.jobs.get(id)?;
        match job.stand {
            Stand::Queued { since, .. } => Some(now.seconds_since(since)),
            _ => None,
        }
    });
    queued.fold(seconds(tenant.waits.longest_us), f64::max)
}

fn row(
    (model, room): (&ReadModel, &Room<'_>),
    name: &TenantId,
    waits: &BTreeMap<&str, StartWaits>,
    now: Timestamp,
) -> TenantRow {
    let starts = waits.get(name.as_str()).copied().unwrap_or_default();
    let queues = &model.queues;
    let none = TenantQueue::default();
    let tenant = queues.tenants.get(name).unwrap_or(&none);
    let config = queues.cluster.tenants.get(name.as_str());
    let standing = queues.cluster.standings(now).get(name.as_str());
    TenantRow {
        tenant: name.clone(),
        configured: config.is_some(),
        weight: queues.weight(name.as_str()),
        quota: config
            .map(|config| config.quota.clone())
            .unwrap_or_default(),
        max_job_weight: config.and_then(|config| config.max_job_weight),
        priority: config.map_or(0, |config| config.priority),
        grants: queues
            .cluster
            .tenants
            .grants
            .get(name.as_str())
            .cloned()
            .unwrap_or_default(),
        entitled: entitled(queues, name),
        share: queues.share(tenant).as_f64(),
        demand_share: queues.demand_share(tenant).as_f64(),
        runs: tenant.runs.amounts(),
        queued: tenant.queued.amounts(),
        released_jobs: tenant.released,
        queued_jobs: tenant.order.len() as u64,
        held_jobs: tenant.held,
        mean_wait_s: tenant.waits.mean_s(now),
        longest_wait_s: longest_wait_s(queues, tenant, now),
        mean_start_wait_s: starts.sum_s / starts.jobs.max(1.0),
        longest_start_wait_s: starts.longest_s,
        fairness_loss: model.fairness.loss(name.as_str()),
        balance: standing.map(|it| fraction(it.balance)),
        factor: standing.map(|it| fraction(it.factor)),
        budget: queues
            .cluster
            .budgets
            .get(name.as_str())
            .and_then(|spending| BudgetRow::of(spending, now)),
        reason: waits_for(room, (name, tenant), now),
    }
}

fn waits_for(room: &Room<'_>, (name, tenant): (&TenantId, &TenantQueue), now: Timestamp) -> String {
    let queues = room.queues();
    let within = queues.first_within(tenant).map(|(_, first)| first);
    // Released, and above lowered limits.
    let above = || {
        let mut unschedulable = queues.unschedulable.iter();
        unschedulable.find_map(|id| {
            let own = id.tenant() == name.as_str();
            let above = own.then(|| queues.above(id)).flatten()?;
            Some(format!("{}: {}", id.name(), above.waits(name.as_str())))
        })
    };
    match within.or(tenant.order.first()) {
        None if let Some(above) = above() => above,
        Some((_, head)) => format!("{}: {}", head.name(), turn::head(room, head, now)),
        None if tenant.held > 0 => "its jobs wait for others to complete".to_owned(),
        None => "nothing queued".to_owned(),
    }
}

/// w / W, with W over the active tenants and this one, or over all.
fn entitled(queues: &Queues, name: &TenantId) -> f64 {
    let is_active = |tenant: &TenantQueue| tenant.released > 0 || !tenant.order.is_empty();
    let active = queues
        .tenants
        .iter()
        .filter(|(_, tenant)| is_active(tenant));
    let mut sharing: BTreeSet<&TenantId> = active.map(|(name, _)| name).collect();
    if sharing.is_empty() {
        sharing = known(queues);
    }
    sharing.insert(name);
    let weight = |name: &TenantId| f64::from(queues.weight(name.as_str()));
    weight(name) / sharing.into_iter().map(weight).sum::<f64>()
}

#[expect(clippy::cast_precision_loss, reason = "a figure to read")]
fn fraction(permille: u64) -> f64 {
    permille as f64 / 1000.0
}

#[expect(clippy::cast_precision_loss, reason = "a figure to read")]
fn seconds(us: i64) -> f64 {
    us as f64 / 1e6
}
