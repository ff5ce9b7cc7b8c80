//! The answer to `whatif`.

use dormouse_messages::{JobId, Sequence, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use super::fit::Form;
use crate::history::seen::{ANOTHER_JOB, SeenError, seen_by};

/// A place where two courses differ.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// The allocation.
    pub epoch: u64,
    /// Its event, in the course without changes.
    pub sequence: Sequence,
    /// When.
    pub at: Timestamp,
    /// Jobs that got something else: with how many containers in either course.
    pub jobs: Vec<Differs>,
}

/// A job that got something else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Differs {
    /// The job.
    pub job: String,
    /// Containers in the first course; nothing where that decision does not name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<u32>,
    /// In the second one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right: Option<u32>,
}

/// How far the model, without any change, is off what was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelError {
    /// Allocations that came out the same.
    pub decisions_equal: u64,
    /// Of so many.
    pub decisions: u64,
    /// The first that did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_difference: Option<Place>,
    /// Completed jobs that were compared.
    pub jobs: u64,
    /// |modelled − real| / real of their completion times: the median.
    pub jct_p50: f64,
    /// Nine in ten are below.
    pub jct_p90: f64,
    /// Mean fairness loss of the model less that of the log.
    pub loss: f64,
}

/// A figure without and with the changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// Which.
    pub metric: String,
    /// Without changes, by the model.
    pub identity: f64,
    /// With them.
    pub changed: f64,
    /// What the changes make of it.
    pub difference: f64,
    /// 80 % of the draws of what is not known of the curves lie between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// 80 % of samples of the jobs (bootstrap) lie between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_jobs: Option<[f64; 2]>,
}

/// A tenant's figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TenantLine {
    /// The tenant.
    pub tenant: String,
    /// Jobs that are compared.
    pub jobs: u64,
    /// `jct_s`, `waiting_s`, `container_h`, `adjustments` of those; `utilization` of all its jobs, from the
    /// fork to the end of the log: its part of the cluster's.
    pub metrics: Vec<Metric>,
}

/// A job's times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobLine {
    /// The job.
    pub job: JobId,
    /// `jct_s`, `waiting_s`, `adjustments`.
    pub metrics: Vec<Metric>,
}

/// A job that is not compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excluded {
    /// The job.
    pub job: String,
    /// `no_progress`, `no_steps_total`: nobody knows its end; `not_ended`: it has none in one of the
    /// courses; `refused`; `left_out`; `new`.
    pub why: String,
}

/// The curves of the jobs: how many are known how well.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FormLine {
    /// How well.
    pub form: Form,
    /// How many jobs.
    pub jobs: u64,
    /// The median relative error of a number of containers that was left out of the fit, where three
    /// were seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
}

/// One combination of changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// What distinguishes it.
    pub label: String,
    /// The changes, as they were written.
    pub changes: Vec<String>,
    /// `change`.
    pub mode: String,
    /// The first allocation that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_difference: Option<Place>,
    /// The cluster's figures.
    pub cluster: Vec<Metric>,
    /// The tenants'.
    pub by_tenant: Vec<TenantLine>,
    /// The jobs'.
    pub by_job: Vec<JobLine>,
    /// Jobs that are not compared.
    pub excluded_jobs: Vec<Excluded>,
    /// Containers, seen or asked for, beyond those with which a curve was measured: of so many jobs.
    pub extrapolated_jobs: u64,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The last event that counts.
    pub fork: Sequence,
    /// When that was.
    pub at: Timestamp,
    /// The last event of the log, up to which the model is held against what was.
    pub end: Sequence,
    /// The course without changes, held against the log.
    pub identity: ModelError,
    /// The curves.
    pub forms: Vec<FormLine>,
    /// Draws of what is not known of the curves.
    pub draws: u64,
    /// With changes; empty where none were named.
    pub variants: Vec<Variant>,
}

impl Answer {
    /// What a tenant may see: its own names, others as amounts.
    ///
    /// # Errors
    /// When a name cannot be taken out.
    pub fn seen_by(mut self, tenant: &TenantId) -> Result<Self, SeenError> {
        let own = |job: &str| job.starts_with(&format!("{tenant}/"));
        let hide = |place: &mut Option<Place>| {
            for it in place.iter_mut().flat_map(|place| &mut place.jobs) {
                if !own(&it.job) {
                    ANOTHER_JOB.clone_into(&mut it.job);
                }
            }
        };
        hide(&mut self.identity.first_difference);
        for variant in &mut self.variants {
            hide(&mut variant.first_difference);
            variant.by_job.retain(|it| own(&it.job.to_string()));
            variant.by_tenant.retain(|it| it.tenant == tenant.as_str());
            variant.excluded_jobs.retain(|it| own(&it.job));
        }
        seen_by(self, Some(tenant))
    }
}
