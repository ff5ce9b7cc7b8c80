//! Step functions over the log's time: allocations and running containers. Each series is bounded with an
//! exact mean; old ended jobs are dropped.
//!
//! `metric.rs` names the metrics; `gpus.rs` holds the use of shared GPUs.

mod gpus;
mod metric;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use dormouse_messages::events::{AllocationDecided, Outcome};
use dormouse_messages::{Amounts, Event, Fact, JobId, Timestamp};
use serde::{Deserialize, Serialize};

use gpus::GpuSteps;
pub use metric::Metric;

use crate::jobs::{Phase, PhaseCounts};
use crate::steps::{JOB_POINTS, Point, Steps, Summary, fraction, summarise, thin};

/// Every decision of some days, 16 bytes each.
const CLUSTER_POINTS: usize = 20_000;
const ENDED_JOBS: usize = 10_000;

/// A metric over time, ready to draw.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    pub metric: String,
    pub unit: String,
    #[serde(default)]
    pub title: String,
    pub from: Timestamp,
    /// The last values hold until here.
    pub to: Timestamp,
    pub series: Vec<Series>,
    #[serde(default, skip_serializing_if = "dormouse_messages::is_default")]
    pub omitted: usize,
}

/// One step function of a timeline.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    pub name: String,
    pub points: Vec<Point>,
    /// Exact.
    #[serde(default)]
    pub summary: Summary,
}

impl Timeline {
    /// Thins each series to `limit` points.
    #[must_use]
    pub fn bounded(mut self, limit: usize) -> Self {
        for series in &mut self.series {
            series.points = thin(&series.points, limit);
        }
        self
    }
}

/// A window of time, possibly open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Window {
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
}

/// Draws named step functions within a window.
#[must_use]
pub fn draw(
    metric: Metric,
    named: &[(String, &Steps)],
    window: Window,
    now: Timestamp,
) -> Timeline {
    let (unit, title) = metric.words();
    let first = named.iter().filter_map(|(_, steps)| steps.first()).min();
    let from = window.from.or(first).unwrap_or(now);
    let to = window.to.unwrap_or(now).max(from);
    let series = named.iter().map(|(name, steps)| {
        let points = steps.within(window.from, window.to);
        let whole = window.from.is_none() && steps.ends_by(to);
        let summary = if whole {
            steps.summary(to)
        } else {
            summarise(&points, to)
        };
        Series {
            name: name.clone(),
            points,
            summary,
        }
    });
    Timeline {
        metric: metric.as_str().to_owned(),
        unit: unit.to_owned(),
        title: title.to_owned(),
        from,
        to,
        series: series.collect(),
        omitted: 0,
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct JobSteps {
    containers: Steps,
    loss: Steps,
    gpus: Option<Box<GpuSteps>>,
    ended: bool,
}

/// Every step function.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timelines {
    utilization: BTreeMap<String, Steps>,
    utilization_total: Steps,
    running_utilization: BTreeMap<String, Steps>,
    running_total: Steps,
    fairness_loss: Steps,
    fairness_loss_all: Steps,
    fairness_loss_bound: Steps,
    /// By decision: holds until the next.
    adjusted: Steps,
    adjusted_total: Steps,
    forced_total: Steps,
    containers: Steps,
    jobs: BTreeMap<JobId, JobSteps>,
    ended: VecDeque<JobId>,
    queued: Steps,
    waiting: Steps,
    running: Steps,
    in_transit: Steps,
    now: Timestamp,
}

impl Timelines {
    /// Records jobs by phase.
    pub fn count(&mut self, at: Timestamp, counts: &PhaseCounts) {
        let sum = |phases: &[Phase]| {
            let jobs: u64 = phases.iter().map(|phase| counts.get(*phase)).sum();
            f64::from(u32::try_from(jobs).unwrap_or(u32::MAX))
        };
        let transit = [
            Phase::Placed,
            Phase::Starting,
            Phase::Checkpointing,
            Phase::Stopping,
        ];
        self.queued.push(at, sum(&[Phase::Queued]), CLUSTER_POINTS);
        self.waiting
            .push(at, sum(&[Phase::Waiting]), CLUSTER_POINTS);
        self.running
            .push(at, sum(&[Phase::Running]), CLUSTER_POINTS);
        self.in_transit.push(at, sum(&transit), CLUSTER_POINTS);
    }

    /// Records the use by running partitions.
    pub fn run(&mut self, at: Timestamp, running: &Amounts, capacity: &Amounts) {
        let mut total = 0.0;
        for (resource, capacity) in capacity.iter().filter(|(_, capacity)| *capacity > 0) {
            let part = fraction(running.get(resource), capacity);
            total += part;
            let name = resource.name();
            if let Some(steps) = self.running_utilization.get_mut(name) {
                steps.push(at, part, CLUSTER_POINTS);
            } else {
                let steps = self.running_utilization.entry(name.to_owned()).or_default();
                steps.push(at, part, CLUSTER_POINTS);
            }
        }
        self.running_total.push(at, total, CLUSTER_POINTS);
    }

    /// Returns resource (or `total`), allocated and running fraction.
    pub fn utilization(&self) -> impl Iterator<Item = (&str, f64, f64)> {
        let resources = self.utilization.iter().map(|(name, allocated)| {
            let running = self.running_utilization.get(name).map_or(0.0, Steps::last);
            (name.as_str(), allocated.last(), running)
        });
        let total = (self.utilization_total.last(), self.running_total.last());
        resources.chain(std::iter::once(("total", total.0, total.1)))
    }

    /// Returns the jobs adjusted by choice and by force.
    #[must_use]
    pub const fn adjustments(&self) -> (f64, f64) {
        (self.adjusted_total.last(), self.forced_total.last())
    }

    /// Returns last points, without ended jobs.
    #[must_use]
    pub fn tails(&self) -> Self {
        let by_name = |series: &BTreeMap<String, Steps>| {
            let tails = series
                .iter()
                .map(|(name, steps)| (name.clone(), steps.tail()));
            tails.collect()
        };
        let live = self.jobs.iter().filter(|(_, steps)| !steps.ended);
        let jobs = live.map(|(id, steps)| {
            let tail = JobSteps {
                containers: steps.containers.tail(),
                loss: steps.loss.tail(),
                gpus: steps.gpus.as_ref().map(|it| Box::new(it.tail())),
                ended: false,
            };
            (id.clone(), tail)
        });
        Self {
            utilization: by_name(&self.utilization),
            utilization_total: self.utilization_total.tail(),
            running_utilization: by_name(&self.running_utilization),
            running_total: self.running_total.tail(),
            fairness_loss: self.fairness_loss.tail(),
            fairness_loss_all: self.fairness_loss_all.tail(),
            fairness_loss_bound: self.fairness_loss_bound.tail(),
            adjusted: self.adjusted.tail(),
            adjusted_total: self.adjusted_total.tail(),
            forced_total: self.forced_total.tail(),
            containers: self.containers.tail(),
            jobs: jobs.collect(),
            ended: VecDeque::new(),
            queued: self.queued.tail(),
            waiting: self.waiting.tail(),
            running: self.running.tail(),
            in_transit: self.in_transit.tail(),
            now: self.now,
        }
    }

    /// Returns the containers of one job over time.
    #[must_use]
    pub fn job(&self, job: &JobId) -> Option<&Steps> {
        Some(&self.jobs.get(job)?.containers)
    }

    /// Draws `metric`: for `job`, or for the `busiest` jobs and the sum.
    #[must_use]
    pub fn timeline(
        &self,
        metric: Metric,
        job: Option<&JobId>,
        window: Window,
        busiest: usize,
    ) -> Timeline {
        let of: fn(&JobSteps) -> Option<&Steps> = match metric {
            Metric::FairnessLossByJob => |steps| Some(&steps.loss),
            Metric::GpuUse => |steps| steps.gpus.as_ref().map(|it| &it.used),
            it if it.is_of_services() => |_| None,
            _ => |steps| Some(&steps.containers),
        };
        let (named, omitted): (Vec<(String, &Steps)>, usize) = match (metric.is_of_jobs(), job) {
            (true, Some(job)) => {
                let steps = self.jobs.get(job).and_then(of);
                let named = steps.into_iter().map(|steps| (job.to_string(), steps));
                (named.collect(), 0)
            }
            (true, None) => self.busiest(metric, busiest, of),
            _ => (self.cluster(metric), 0),
        };
        Timeline {
            omitted,
            ..draw(metric, &named, window, self.now)
        }
    }

    fn cluster(&self, metric: Metric) -> Vec<(String, &Steps)> {
        let list: Vec<(&str, &Steps)> = match metric {
            Metric::Utilization => {
                return self.utilization_by_name();
            }
            Metric::FairnessLoss => vec![
                ("running jobs", &self.fairness_loss),
                ("with waiting jobs", &self.fairness_loss_all),
                ("bound", &self.fairness_loss_bound),
            ],
            Metric::Adjustments => vec![
                ("by decision", &self.adjusted),
                ("cumulative", &self.adjusted_total),
                ("forced", &self.forced_total),
            ],
            Metric::Jobs => vec![
                ("running", &self.running),
                ("in transit", &self.in_transit),
                ("waiting", &self.waiting),
                ("queued", &self.queued),
            ],
            _ => Vec::new(),
        };
        list.into_iter()
            .map(|(name, steps)| (name.to_owned(), steps))
            .collect()
    }

    fn utilization_by_name(&self) -> Vec<(String, &Steps)> {
        let mut list = vec![
            ("total".to_owned(), &self.utilization_total),
            ("total running".to_owned(), &self.running_total),
        ];
        for (name, allocated) in &self.utilization {
            list.push((name.clone(), allocated));
            if let Some(running) = self.running_utilization.get(name) {
                list.push((format!("{name} running"), running));
            }
        }
        list
    }

    /// With the sum for containers, and the number of other jobs.
    fn busiest(
        &self,
        metric: Metric,
        limit: usize,
        of: fn(&JobSteps) -> Option<&Steps>,
    ) -> (Vec<(String, &Steps)>, usize) {
        let all = self.jobs.iter();
        let mut jobs: Vec<_> = all.filter(|(_, steps)| of(steps).is_some()).collect();
        let work = |steps: &JobSteps| steps.containers.integral(self.now);
        jobs.sort_by(|a, b| work(b.1).total_cmp(&work(a.1)).then_with(|| a.0.cmp(b.0)));
        let omitted = jobs.len().saturating_sub(limit);
        jobs.truncate(limit);
        let all = (metric == Metric::Containers).then(|| ("all jobs".to_owned(), &self.containers));
        let jobs = jobs
            .into_iter()
            .filter_map(|(id, steps)| Some((id.to_string(), of(steps)?)));
        (all.into_iter().chain(jobs).collect(), omitted)
    }

    fn lost(&mut self, event: &AllocationDecided, at: Timestamp) {
        for job in &event.jobs {
            let steps = match self.jobs.get_mut(&job.job) {
                Some(steps) => steps,
                None if job.containers == 0 => continue,
                None => self.jobs.entry(job.job.clone()).or_default(),
            };
            let loss = (job.share - job.fair_share).abs();
            steps.loss.push(at, loss, JOB_POINTS);
        }
    }

    fn decided(&mut self, outcome: &Outcome, kept: bool, at: Timestamp) {
        for (resource, value) in &outcome.utilization.resources {
            if let Some(steps) = self.utilization.get_mut(resource) {
                steps.push(at, *value, CLUSTER_POINTS);
            } else {
                let steps = self.utilization.entry(resource.clone()).or_default();
                steps.push(at, *value, CLUSTER_POINTS);
            }
        }
        let push = |steps: &mut Steps, value| steps.push(at, value, CLUSTER_POINTS);
        push(&mut self.utilization_total, outcome.utilization.total);
        push(&mut self.fairness_loss, outcome.fairness_loss);
        push(&mut self.fairness_loss_all, outcome.fairness_loss_all);
        push(&mut self.fairness_loss_bound, outcome.fairness_loss_bound);
        // An unchanged allocation adjusts nothing, whatever its figures repeat.
        let (adjusted, forced) = if kept {
            (0.0, 0.0)
        } else {
            (
                f64::from(outcome.adjusted_jobs),
                f64::from(outcome.forced_jobs),
            )
        };
        push(&mut self.adjusted, adjusted);
        let total = self.adjusted_total.last() + adjusted;
        push(&mut self.adjusted_total, total);
        let total = self.forced_total.last() + forced;
        push(&mut self.forced_total, total);
    }

    fn runs(&mut self, job: &JobId, containers: u32, at: Timestamp) {
        let value = f64::from(containers);
        let steps = match self.jobs.get_mut(job) {
            Some(steps) => steps,
            None if containers == 0 => return,
            None => self.jobs.entry(job.clone()).or_default(),
        };
        let all = self.containers.last() - steps.containers.last() + value;
        steps.containers.push(at, value, JOB_POINTS);
        steps.ended = false;
        self.containers.push(at, all, CLUSTER_POINTS);
    }

    fn stops(&mut self, job: &JobId, at: Timestamp) {
        self.runs(job, 0, at);
        if let Some(gpus) = self.gpus(job) {
            gpus.end_all(at);
        }
    }

    fn gpus(&mut self, job: &JobId) -> Option<&mut GpuSteps> {
        self.jobs.get_mut(job)?.gpus.as_deref_mut()
    }

    /// The lines of an ended job of the name are not the new job's.
    fn begin(&mut self, job: &JobId) {
        if self.jobs.get(job).is_some_and(|steps| steps.ended) {
            self.jobs.remove(job);
            self.ended.retain(|ended| ended != job);
        }
    }

    fn end(&mut self, job: &JobId, at: Timestamp) {
        self.stops(job, at);
        let Some(steps) = self.jobs.get_mut(job) else {
            return;
        };
        steps.ended = true;
        steps.loss.push(at, 0.0, JOB_POINTS);
        self.ended.push_back(job.clone());
        if self.ended.len() > ENDED_JOBS
            && let Some(oldest) = self.ended.pop_front()
            && self.jobs.get(&oldest).is_some_and(|steps| steps.ended)
        {
            self.jobs.remove(&oldest);
        }
    }
}

impl Timelines {
    /// Folds one event.
    pub fn evolve(&mut self, fact: &Fact<'_>) {
        let at = fact.at;
        self.now = at;
        let Some(event) = fact.event() else {
            return;
        };
        match event {
            Event::AllocationDecided(e) => {
                self.decided(&e.outcome, false, at);
                self.lost(e, at);
            }
            Event::AllocationUnchanged(e) => self.decided(&e.outcome, true, at),
            Event::JobAdmitted(e) => self.begin(&e.job),
            Event::PartitionStarted(e) => self.runs(&e.job, e.containers, at),
            Event::PartitionResized(e) => self.runs(&e.job, e.containers, at),
            Event::PartitionStopped(e) => self.stops(&e.job, at),
            Event::ContainerGpuUsed(e) => {
                let steps = self.jobs.entry(e.container.job.clone()).or_default();
                steps.gpus.get_or_insert_default().add(e, at);
            }
            Event::ContainerExited(e) => {
                if let Some(gpus) = self.gpus(&e.container.job) {
                    gpus.end(&e.container, at);
                }
            }
            Event::JobCompleted(e) => self.end(&e.job, at),
            Event::JobFailed(e) => self.end(&e.job, at),
            Event::JobCancelled(e) => self.end(&e.job, at),
            _ => {}
        }
    }
}
