//! The report of an import: counts, the waits and completion times as recorded, and the assumptions.

use std::collections::BTreeMap;

use dormouse_messages::{Amounts, Resource};
use serde::{Deserialize, Serialize};

use super::nodes::{Cluster, Group};
use super::shape::Shape;
use super::{Elastic, LeftOut, Options, Past, PastJob};
use crate::simulate::{Percentiles, TenantFigures};

/// The report of an import.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub format: String,
    pub rows: u64,
    pub jobs: u64,
    pub left_out: LeftOut,
    pub nodes: Vec<Group>,
    pub recorded: Recorded,
    pub assumptions: Vec<String>,
}

/// The figures of the cluster as it ran, defined as those of a simulation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// Mean of the sum over the resources.
    pub utilization: f64,
    /// Mean by resource.
    pub resources: BTreeMap<String, f64>,
    pub waiting_s: Percentiles,
    pub jct_s: Percentiles,
    pub makespan_s: f64,
    pub tenants: BTreeMap<String, TenantFigures>,
}

/// A job of the scenario.
#[derive(Debug)]
pub(super) struct Planned {
    pub past: PastJob,
    pub shape: Shape,
    pub name: String,
    pub tenant: String,
}

impl Planned {
    fn waiting_s(&self) -> f64 {
        f64_of(self.past.started_s.abs_diff(self.past.submitted_s))
    }

    fn jct_s(&self) -> f64 {
        self.waiting_s() + f64_of(self.past.run_s)
    }
}

/// The recorded figures of jobs in the order of their submission.
pub(super) fn recorded(jobs: &[Planned], cluster: &Cluster) -> Recorded {
    let first_s = jobs.first().map_or(0, |job| job.past.submitted_s);
    let ends = jobs.iter().map(|job| {
        let end_s = job.past.started_s.saturating_add_unsigned(job.past.run_s);
        f64_of(end_s.abs_diff(first_s))
    });
    let makespan_s = ends.fold(0.0, f64::max);
    let resources = utilization(jobs, &cluster.capacity(), makespan_s);
    let mut tenants: BTreeMap<&str, Vec<&Planned>> = BTreeMap::new();
    for job in jobs {
        tenants.entry(&job.tenant).or_default().push(job);
    }
    let tenants = tenants.into_iter();
    let tenants = tenants.map(|(name, jobs)| (name.to_owned(), tenant(&jobs)));
    Recorded {
        utilization: resources.values().sum(),
        resources,
        waiting_s: Percentiles::of(jobs.iter().map(Planned::waiting_s).collect()),
        jct_s: Percentiles::of(jobs.iter().map(Planned::jct_s).collect()),
        makespan_s,
        tenants: tenants.collect(),
    }
}

fn tenant(jobs: &[&Planned]) -> TenantFigures {
    let hours = jobs
        .iter()
        .map(|job| f64_of(job.past.run_s) * f64::from(job.shape.containers) / 3_600.0);
    TenantFigures {
        jobs: jobs.len() as u64,
        waiting_s: Percentiles::of(jobs.iter().map(|job| job.waiting_s()).collect()),
        jct_s: Percentiles::of(jobs.iter().map(|job| job.jct_s()).collect()),
        container_h: hours.sum(),
    }
}

fn utilization(jobs: &[Planned], capacity: &Amounts, makespan_s: f64) -> BTreeMap<String, f64> {
    let part = |(resource, amount): (&Resource, u64)| {
        let seconds = jobs.iter().map(|job| {
            let held = f64_of(job.shape.demand.get(resource)) * f64::from(job.shape.containers);
            held * f64_of(job.past.run_s)
        });
        let used = seconds.sum::<f64>() / (f64_of(amount) * makespan_s.max(1.0));
        (resource.name().to_owned(), used)
    };
    capacity.iter().map(part).collect()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "amounts and seconds below 2^53 are exact"
)]
pub(super) fn f64_of(value: u64) -> f64 {
    value as f64
}

/// The assumptions that the scenario rests on.
pub(super) fn assumptions(
    options: &Options,
    past: &Past,
    cluster: &Cluster,
    dropped: &[Resource],
) -> Vec<String> {
    let mut all = vec![
        "A job of k nodes is a gang of k equal containers; if its GPUs do not divide by k, one container per GPU.".to_owned(),
        elastic(options),
        "A job that failed, was cancelled or reached its time limit ends after the time that it ran; a run of 0 s takes 1 s.".to_owned(),
        "Every job may run on every node that fits it: partitions, reservations and qualities of service are not read.".to_owned(),
    ];
    if options.elastic == Elastic::Gpu {
        all.push(speed(&options.speed));
    }
    all.extend(past.notes.iter().map(|note| (*note).to_owned()));
    if past.jobs.iter().any(|job| job.limit_s.is_some()) {
        all.push("The time limit of a job is the recorded one, at least a minute above its run time; elastic jobs have none.".to_owned());
    }
    let running = past.jobs.iter().filter(|job| job.is_running).count();
    if running > 0 {
        all.push(format!(
            "{running} jobs had not ended; they end after the time that they had run so far."
        ));
    }
    if cluster.knows_models() && past.jobs.iter().any(|job| !job.gpu_models.is_empty()) {
        all.push(
            "A job that asked for a GPU model runs on nodes of that model (label gpu.model)."
                .to_owned(),
        );
    }
    for resource in dropped {
        all.push(format!(
            "No node has {0}: the jobs' {0} is left out.",
            resource.name()
        ));
    }
    if cluster.is_inferred {
        all.push(format!(
            "The cluster has {} equal nodes, the fewest whose sum holds the peak usage; --nodes, or --node with --count, gives the real ones.",
            cluster.nodes.len()
        ));
    }
    all
}

fn elastic(options: &Options) -> String {
    match options.elastic {
        Elastic::None => {
            "Each job keeps the containers that it had; --elastic gpu lets it shrink and grow."
        }
        Elastic::Gpu => {
            "A job of several GPUs has one container per GPU and may run with one to all of them; each change saves a checkpoint and costs 60 s."
        }
    }
    .to_owned()
}

fn speed(speed: &[f64]) -> String {
    if speed.is_empty() {
        return "An elastic job's speed is its number of containers; --speed states another."
            .to_owned();
    }
    let speeds: Vec<String> = speed.iter().map(f64::to_string).collect();
    format!(
        "The speed of 1, 2, … containers of an elastic job is {}; further ones add nothing.",
        speeds.join(", ")
    )
}
