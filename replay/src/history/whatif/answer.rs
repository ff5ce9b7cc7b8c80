//! The answer to `whatif`.

use dormouse_messages::{JobId, Sequence, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use super::models::Form;
use crate::history::redact::{ANOTHER_JOB, SeenError, seen_by};

/// The first difference of two courses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Place {
    pub epoch: u64,
    /// The allocation's event in the unchanged course.
    pub sequence: Sequence,
    pub at: Timestamp,
    pub jobs: Vec<Differs>,
}

/// A job with different containers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Differs {
    pub job: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right: Option<u32>,
}

/// The error of the unchanged model against the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelError {
    pub decisions_equal: u64,
    pub decisions: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_difference: Option<Place>,
    pub jobs: u64,
    /// The median of |modelled − real| / real over the completion times.
    pub jct_p50: f64,
    /// The 90th percentile.
    pub jct_p90: f64,
    pub loss: f64,
}

/// Fewer completed jobs say little about the error of completion times.
const FEW_JOBS: u64 = 10;

/// A median error of completion times from which differences say little.
const LARGE_ERROR: f64 = 0.2;

impl ModelError {
    /// Returns the reasons for which the model's answers are weak.
    #[must_use]
    pub fn weaknesses(&self) -> Vec<String> {
        let mut weaknesses = Vec::new();
        if self.decisions_equal.saturating_mul(2) < self.decisions {
            weaknesses.push(format!(
                "only {} of {} allocations come out again",
                self.decisions_equal, self.decisions
            ));
        }
        if self.jobs < FEW_JOBS {
            weaknesses.push(format!("only {} completed jobs can be compared", self.jobs));
        }
        if self.jct_p50 > LARGE_ERROR {
            let percent = self.jct_p50 * 100.0;
            weaknesses.push(format!(
                "completion times are off by {percent:.0} % (median)"
            ));
        }
        weaknesses
    }
}

/// A figure without and with the changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    pub metric: String,
    pub identity: f64,
    pub changed: f64,
    pub difference: f64,
    /// 80 % of the draws of the unknown curves lie between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// 80 % of the bootstrap samples of the jobs lie between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_jobs: Option<[f64; 2]>,
}

/// A tenant's figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TenantLine {
    pub tenant: String,
    pub jobs: u64,
    /// `jct_s`, `waiting_s`, `container_h`, `adjustments` of the compared jobs; `utilization` of all the
    /// tenant's jobs as a part of the cluster's, from the fork to the end of the log.
    pub metrics: Vec<Metric>,
}

/// A job's times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobLine {
    pub job: JobId,
    pub metrics: Vec<Metric>,
}

/// A job outside the comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excluded {
    pub job: String,
    /// `no_progress`, `no_steps_total`: unknown end; `not_ended`: no end in one of the courses;
    /// `refused`; `left_out`; `new`.
    pub why: String,
}

/// The number of curves with a quality.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FormLine {
    pub form: Form,
    pub jobs: u64,
    /// The median relative error at an omitted number of containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
}

/// One combination of changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    pub label: String,
    pub changes: Vec<String>,
    pub mode: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_difference: Option<Place>,
    pub cluster: Vec<Metric>,
    pub by_tenant: Vec<TenantLine>,
    pub by_job: Vec<JobLine>,
    pub excluded_jobs: Vec<Excluded>,
    /// Jobs whose containers exceed those of their measured curves.
    pub extrapolated_jobs: u64,
}

/// The answer to a question about changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    pub fork: Sequence,
    pub at: Timestamp,
    /// The last event of the log, up to which the model is compared with reality.
    pub end: Sequence,
    pub identity: ModelError,
    pub forms: Vec<FormLine>,
    pub draws: u64,
    pub variants: Vec<Variant>,
}

impl Answer {
    /// Hides other tenants' names.
    ///
    /// # Errors
    /// A name cannot be removed.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weak_model_says_why() {
        let good = ModelError {
            decisions_equal: 20,
            decisions: 24,
            first_difference: None,
            jobs: 40,
            jct_p50: 0.016,
            jct_p90: 0.22,
            loss: 0.0,
        };
        assert!(good.weaknesses().is_empty());
        let weak = ModelError {
            decisions_equal: 1,
            jobs: 6,
            jct_p50: 0.4,
            ..good
        };
        let said = [
            "only 1 of 24 allocations come out again",
            "only 6 completed jobs can be compared",
            "completion times are off by 40 % (median)",
        ];
        assert_eq!(weak.weaknesses(), said);
    }
}
