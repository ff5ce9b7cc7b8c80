//! The queries `tenants` and `tenant`.

use dormouse_messages::policy::Queue;
use dormouse_messages::{Amounts, JobId, Quota, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use super::QueryError;
use crate::ReadModel;
use crate::jobs::turn;
use dormouse_state::{Queues, Stand, TenantQueue};

/// Queued jobs that the page of a tenant lists.
const LISTED: usize = 50;

/// Every tenant that is configured or ever had a job admitted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TenantsAnswer {
    /// The policy by which the next release is chosen.
    pub queue: Queue,
    /// By name.
    pub tenants: Vec<TenantRow>,
    /// The area under the unfairness curve since the beginning, in share-seconds.
    pub unfairness_area: f64,
}

/// A tenant's line in the list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TenantRow {
    /// The tenant.
    pub tenant: TenantId,
    /// Whether the operator has configured it.
    pub configured: bool,
    /// Its weight beside the others.
    pub weight: u32,
    /// The most it may have at one time; no bound where a resource is absent.
    pub quota: Quota,
    /// The largest weight of a job of it.
    pub max_job_weight: Option<u32>,
    /// The priority of its jobs that ask for none.
    pub priority: i32,
    /// Its share of the weights of all tenants that have or ask for anything.
    pub entitled: f64,
    /// Dominant share of what it has.
    pub share: f64,
    /// Dominant share of what it has queued.
    pub demand_share: f64,
    /// What it has.
    pub runs: Amounts,
    /// What its queued jobs need at the least.
    pub queued: Amounts,
    /// Released jobs that have not ended.
    pub released_jobs: u64,
    /// Queued jobs.
    pub queued_jobs: u64,
    /// Jobs that wait for others.
    pub held_jobs: u64,
    /// Mean waiting time in the queue so far, in seconds.
    pub mean_wait_s: f64,
    /// The longest wait of a released job, in seconds.
    pub longest_wait_s: f64,
    /// Σ |s − ŝ| of its jobs.
    pub fairness_loss: f64,
    /// What its queue waits for, for a person.
    pub reason: String,
}

/// Which tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantQuery {
    /// Its name.
    pub tenant: TenantId,
}

/// A tenant with the head of its queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TenantDetail {
    /// Its line in the list.
    #[serde(flatten)]
    pub row: TenantRow,
    /// The first of its queued jobs.
    pub queue: Vec<QueuedJob>,
}

/// A queued job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueuedJob {
    /// Its place, from 1.
    pub position: u64,
    /// The job.
    pub job: JobId,
    /// Its priority in the queue.
    pub priority: i32,
    /// What its smallest partition needs.
    pub needs: Amounts,
    /// How long it has been queued, in seconds.
    pub waited_s: f64,
}

pub(super) fn tenants(model: &ReadModel, now: Timestamp) -> TenantsAnswer {
    let queues = &model.queues;
    let configured = queues.config.iter().map(|(name, _)| name);
    let mut names: Vec<&TenantId> = configured.chain(queues.tenants.keys()).collect();
    names.sort_unstable();
    names.dedup();
    TenantsAnswer {
        queue: queues.policy.queue,
        tenants: names
            .into_iter()
            .map(|name| row(model, name, now))
            .collect(),
        unfairness_area: model.fairness.area(now),
    }
}

pub(super) fn tenant(
    model: &ReadModel,
    query: &TenantQuery,
    now: Timestamp,
) -> Result<TenantDetail, QueryError> {
    let queues = &model.queues;
    let name = query.tenant.as_str();
    let queue = queues.tenants.get(name);
    if queue.is_none() && queues.config.get(name).is_none() {
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
            priority: job.priority,
            needs: queues.needs(id)?,
            waited_s: now.seconds_since(since).max(0.0),
        })
    });
    Ok(TenantDetail {
        row: row(model, &query.tenant, now),
        queue: listed.collect(),
    })
}

fn row(model: &ReadModel, name: &TenantId, now: Timestamp) -> TenantRow {
    let queues = &model.queues;
    let none = TenantQueue::default();
    let tenant = queues.tenants.get(name).unwrap_or(&none);
    let config = queues.config.get(name.as_str());
    TenantRow {
        tenant: name.clone(),
        configured: config.is_some(),
        weight: queues.weight(name.as_str()),
        quota: config
            .map(|config| config.quota.clone())
            .unwrap_or_default(),
        max_job_weight: config.and_then(|config| config.max_job_weight),
        priority: config.map_or(0, |config| config.priority),
        entitled: entitled(queues, name.as_str()),
        share: queues.share(tenant).as_f64(),
        demand_share: queues.demand_share(tenant).as_f64(),
        runs: tenant.runs.clone(),
        queued: tenant.queued.clone(),
        released_jobs: tenant.released,
        queued_jobs: tenant.order.len() as u64,
        held_jobs: tenant.held,
        mean_wait_s: tenant.waits.mean_s(now),
        longest_wait_s: seconds(tenant.waits.longest_us),
        fairness_loss: model.fairness.loss(name.as_str()),
        reason: waits_for(queues, tenant, now),
    }
}

fn waits_for(queues: &Queues, tenant: &TenantQueue, now: Timestamp) -> String {
    match tenant.order.first() {
        Some((_, head)) => format!("{}: {}", head.name(), turn::head(queues, head, now)),
        None if tenant.held > 0 => "its jobs wait for others to complete".to_owned(),
        None => "nothing queued".to_owned(),
    }
}

/// w / W, W over the tenants that have or ask for anything, itself among them.
fn entitled(queues: &Queues, name: &str) -> f64 {
    let active = queues.tenants.iter().filter(|(other, tenant)| {
        tenant.released > 0 || !tenant.order.is_empty() || other.as_str() == name
    });
    let weights: f64 = active
        .map(|(other, _)| f64::from(queues.weight(other.as_str())))
        .sum();
    let own = f64::from(queues.weight(name));
    own / weights.max(own)
}

#[expect(clippy::cast_precision_loss, reason = "a figure to read")]
fn seconds(us: i64) -> f64 {
    us as f64 / 1e6
}
