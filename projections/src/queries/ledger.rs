//! The query `ledger`: use and cost of each job and tenant.

use std::collections::BTreeMap;

use dormouse_messages::{JobId, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::ReadModel;
use crate::jobs::{Job, Phase};

/// The query's parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LedgerQuery {
    pub tenant: Option<TenantId>,
}

/// The figures of jobs and tenants.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LedgerAnswer {
    /// Ordered by admission.
    pub jobs: Vec<LedgerRow>,
    pub tenants: BTreeMap<String, TenantLedger>,
}

/// One job's figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LedgerRow {
    pub job: JobId,
    pub phase: Phase,
    pub jct_s: Option<f64>,
    pub waiting_s: f64,
    pub container_s: f64,
    pub resizes: u32,
    pub resize_lost_s: f64,
    pub restarts: u32,
    /// From a metric whose name is or ends in `accuracy`.
    pub accuracy: Option<f64>,
    /// From a metric whose name is or ends in `loss`.
    pub loss: Option<f64>,
}

/// One tenant's sums.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TenantLedger {
    pub jobs: u64,
    pub completed: u64,
    pub container_s: f64,
    pub mean_jct_s: Option<f64>,
    pub resizes: u32,
    pub resize_lost_s: f64,
}

pub(super) fn ledger(model: &ReadModel, query: &LedgerQuery, now: Timestamp) -> LedgerAnswer {
    let wanted = |id: &JobId| {
        query
            .tenant
            .as_ref()
            .is_none_or(|t| t.as_str() == id.tenant())
    };
    let jobs = model.jobs.live().chain(model.jobs.ended());
    let mut jobs: Vec<(&JobId, &Job)> = jobs.filter(|(id, _)| wanted(id)).collect();
    jobs.sort_unstable_by_key(|(_, job)| job.admitted_sequence);
    let mut answer = LedgerAnswer::default();
    let mut completed_s: BTreeMap<String, f64> = BTreeMap::new();
    for (id, job) in jobs {
        let row = row(id, job, now);
        let tenant = answer.tenants.entry(id.tenant().to_owned()).or_default();
        tenant.jobs += 1;
        tenant.container_s += row.container_s;
        tenant.resizes += row.resizes;
        tenant.resize_lost_s += row.resize_lost_s;
        if let (Phase::Completed, Some(jct_s)) = (row.phase, row.jct_s) {
            tenant.completed += 1;
            *completed_s.entry(id.tenant().to_owned()).or_default() += jct_s;
        }
        answer.jobs.push(row);
    }
    for (name, tenant) in &mut answer.tenants {
        let count = u32::try_from(tenant.completed).unwrap_or(u32::MAX);
        tenant.mean_jct_s = completed_s.get(name).map(|sum| sum / f64::from(count));
    }
    answer
}

fn row(id: &JobId, job: &Job, now: Timestamp) -> LedgerRow {
    LedgerRow {
        job: id.clone(),
        phase: job.phase,
        jct_s: job.jct_s(),
        waiting_s: job.waiting_s(now),
        container_s: job.container_s(now),
        resizes: job.resizes,
        resize_lost_s: std::time::Duration::from_millis(job.resize_ms).as_secs_f64(),
        restarts: job.restarts,
        accuracy: metric(job, "accuracy"),
        loss: metric(job, "loss"),
    }
}

/// Prefers the exact name to an ending (`test_accuracy`).
fn metric(job: &Job, name: &str) -> Option<f64> {
    let metrics = &job.progress.as_ref()?.metrics;
    let exact = metrics.iter().find(|(metric, _)| metric == name);
    let found = exact.or_else(|| metrics.iter().find(|(metric, _)| metric.ends_with(name)));
    found.map(|(_, value)| *value)
}
