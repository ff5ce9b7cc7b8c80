//! The result of a simulation, and its figures for tables and `-o json`.
//!
//! Time averages run from the first submission to the last job's end, at most to the horizon. Completion
//! time (JCT) counts completed jobs only.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::measure::Measures;
use super::mixed::{Course, MixedFigures};
use super::record::{End, JobRecord, Percentiles, Point};

/// One tenant's jobs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TenantFigures {
    pub jobs: u64,
    /// Seconds from submission to the first containers.
    pub waiting_s: Percentiles,
    pub jct_s: Percentiles,
    pub container_h: f64,
}

/// The figures of a simulation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    pub jobs: u64,
    pub completed: u64,
    pub failed: u64,
    pub refused: u64,
    /// Mean of the sum over the resources.
    pub utilization: f64,
    pub loss: f64,
    /// As `loss`, including waiting jobs with a share of 0.
    pub loss_all: f64,
    pub largest_loss: f64,
    pub jct_s: Percentiles,
    /// Seconds from submission to the first containers.
    pub waiting_s: Percentiles,
    pub makespan_s: f64,
    pub adjustments: u64,
    pub most_adjusted: u32,
    pub decisions: u64,
    pub events: u64,
    pub tenants: BTreeMap<String, TenantFigures>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mixed: Option<MixedFigures>,
}

/// The result of a simulation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    pub figures: Figures,
    /// In order of submission.
    pub jobs: Vec<JobRecord>,
    pub utilization: Vec<Point>,
    /// By tenant; the sum is the cluster's utilization.
    #[serde(skip)]
    pub utilization_by: BTreeMap<String, Vec<Point>>,
    pub loss: Vec<Point>,
    pub adjustments: Vec<Point>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mixed: Option<Course>,
}

impl Measures {
    /// Computes the figures of the whole run.
    pub fn outcome(mut self) -> Outcome {
        self.jobs.sort_by(|a, b| {
            a.submitted_s
                .total_cmp(&b.submitted_s)
                .then_with(|| a.job.cmp(&b.job))
        });
        Outcome {
            figures: figures(&self),
            jobs: self.jobs,
            utilization: self.utilization.points,
            utilization_by: self
                .used_by
                .into_iter()
                .map(|(tenant, (_, series))| (tenant, series.points))
                .collect(),
            loss: self.loss.points,
            adjustments: self.adjustments.points,
            mixed: None,
        }
    }
}

fn completion_s(job: &JobRecord) -> Option<f64> {
    (job.end == End::Completed).then_some(job.ended_s - job.submitted_s)
}

fn waiting_s(job: &JobRecord) -> f64 {
    job.started_s.unwrap_or(job.ended_s) - job.submitted_s
}

fn figures(measures: &Measures) -> Figures {
    let jobs = &measures.jobs;
    let makespan_s = jobs.iter().map(|job| job.ended_s).fold(0.0, f64::max);
    let from_s = jobs.first().map_or(0.0, |job| job.submitted_s);
    let to_s = makespan_s.min(measures.horizon_s).max(from_s);
    let ended = |end: End| jobs.iter().filter(|job| job.end == end).count() as u64;
    let mut tenants: BTreeMap<&str, Vec<&JobRecord>> = BTreeMap::new();
    for job in jobs {
        tenants.entry(job.job.tenant()).or_default().push(job);
    }
    let tenants = tenants
        .into_iter()
        .map(|(name, jobs)| (name.to_owned(), tenant(&jobs)));
    Figures {
        jobs: jobs.len() as u64,
        completed: ended(End::Completed),
        failed: ended(End::Failed),
        refused: measures.refused,
        utilization: measures.utilization.mean(from_s, to_s),
        loss: measures.loss.mean(from_s, to_s),
        loss_all: measures.loss_all.mean(from_s, to_s),
        largest_loss: measures.loss.largest(),
        jct_s: Percentiles::of(jobs.iter().filter_map(completion_s).collect()),
        waiting_s: Percentiles::of(jobs.iter().map(waiting_s).collect()),
        makespan_s,
        adjustments: measures.adjusted,
        most_adjusted: measures.most_adjusted,
        decisions: measures.decisions,
        events: measures.events,
        tenants: tenants.collect(),
        mixed: None,
    }
}

fn tenant(jobs: &[&JobRecord]) -> TenantFigures {
    let hours = jobs.iter().flat_map(|job| &job.bars);
    let hours = hours.map(|bar| (bar.to_s - bar.from_s) * f64::from(bar.containers) / 3600.0);
    TenantFigures {
        jobs: jobs.len() as u64,
        waiting_s: Percentiles::of(jobs.iter().map(|job| waiting_s(job)).collect()),
        jct_s: Percentiles::of(jobs.iter().filter_map(|job| completion_s(job)).collect()),
        container_h: hours.sum(),
    }
}
