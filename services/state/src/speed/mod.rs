//! The speeds of jobs, folded from their progress.
//!
//! - [`samples`]: times of a step by number of containers.
//! - [`curve_fit`]: the curve through these times.
//!
//! [`Speeds`] holds the samples of live jobs, and of families: the tenant's jobs of the same name without its
//! last number and with the same demand. A new job of a family begins with the family's curve. The optimizer
//! fits, and states a curve on the log before it decides by it.

pub mod curve_fit;
mod samples;

use dormouse_messages::events::{JobSpeedFitted, Progress};
use dormouse_messages::speed::{Curve, CurveSource, SpeedPoint};
use dormouse_messages::{Amounts, Incarnation, JobId, Sequence, Timestamp};
use serde::{Deserialize, Serialize};

use crate::shared_map::SharedMap;
use samples::Samples;
pub(crate) use samples::Workers;

/// A forgotten family is measured again.
const MOST_FAMILIES: usize = 1_000;

/// A curve is fitted again when a step takes this much longer or shorter than it says.
const STALE: f64 = 0.1;

/// As fast as the fastest.
const NEARLY: f64 = 0.998;

/// A job that has had this many times the service that it says is left is not believed further.
const MOST_BELIEVED: f64 = 20.0;

/// A stated curve holds until the job is measured at this number of counts.
const OVERRULED_BY: usize = 2;

/// The job's newest report, from which the next interval begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    incarnation: Incarnation,
    workers: Workers,
    step: u64,
    /// 0: unknown.
    steps_total: u64,
    at: Timestamp,
}

/// A curve on the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fitted {
    pub curve: Curve,
    /// Root mean square of the relative residuals.
    pub error: f64,
    pub source: CurveSource,
    /// By ascending number of containers.
    pub points: Vec<SpeedPoint>,
    /// Part of the speed that is lost on several nodes, where that was measured.
    pub crossing: Option<f64>,
}

impl Fitted {
    /// Returns the speed of `containers` in speeds of one: the curve's, times what the measurements around say
    /// that it is wrong by. Between two measured counts the factor changes linearly, beyond them it stays.
    #[must_use]
    pub fn useful(&self, containers: u32) -> f64 {
        let factor = |point: &SpeedPoint| self.curve.step_s(point.containers) / point.step_s;
        let next = self
            .points
            .partition_point(|point| point.containers < containers);
        let after = self.points.get(next);
        let before = next.checked_sub(1).and_then(|at| self.points.get(at));
        let factor = match (before, after) {
            (Some(before), Some(after)) => {
                let part = f64::from(containers - before.containers)
                    / f64::from(after.containers - before.containers);
                factor(before) * (1.0 - part) + factor(after) * part
            }
            (Some(only), None) | (None, Some(only)) => factor(only),
            (None, None) => 1.0,
        };
        self.curve.useful(containers) * factor
    }

    /// Returns the fastest number of containers up to `most`, if that was measured or lies between measured
    /// numbers: the smallest within a part of a per cent of the best.
    #[must_use]
    pub fn peak(&self, most: u32) -> Option<u32> {
        let (first, last) = (self.points.first()?.containers, self.most().min(most));
        let best = (first..=last)
            .map(|count| self.useful(count))
            .fold(0.0, f64::max);
        let peak = (first..=last).find(|count| self.useful(*count) >= best * NEARLY)?;
        let falls = self.curve.peak(most) <= last || self.useful(last) < best;
        falls.then_some(peak)
    }

    /// Returns the fastest number of containers up to `most`, by the curve alone where it was not measured.
    #[must_use]
    pub fn fastest(&self, most: u32) -> u32 {
        self.peak(most).unwrap_or_else(|| self.curve.peak(most))
    }

    /// Returns the speed of one more than `containers`, as a part of theirs; `None` without containers.
    #[must_use]
    pub fn further(&self, containers: u32) -> Option<f64> {
        let speed = || self.useful(containers + 1) / self.useful(containers) - 1.0;
        (containers > 0).then(speed)
    }

    /// Returns the largest measured number of containers.
    #[must_use]
    pub fn most(&self) -> u32 {
        self.points.last().map_or(0, |point| point.containers)
    }
}

/// The progress and the service of a live job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobSpeed {
    samples: Samples,
    mark: Option<Mark>,
    pub fitted: Option<Fitted>,
    /// Container milliseconds of ended incarnations and sizes.
    served_ms: u64,
    /// Containers that run, and since when.
    runs: Option<(u32, Timestamp)>,
}

impl JobSpeed {
    /// Returns the container seconds that the job has had.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "285,000 years of milliseconds are exact"
    )]
    pub fn served_s(&self, now: Timestamp) -> f64 {
        (self.served_ms + self.running_ms(now)) as f64 / 1000.0
    }

    /// Returns the seconds that one container would need for the steps left, by the newest report and the
    /// curve. A job cannot look shorter than a part of the service that it has had.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "the agents bound the steps")]
    pub fn left_s(&self, now: Timestamp) -> Option<f64> {
        let mark = self.mark.as_ref().filter(|mark| mark.steps_total > 0)?;
        let left = mark.steps_total.saturating_sub(mark.step) as f64;
        Some((left * self.step_one_s()?).max(self.served_s(now) / MOST_BELIEVED))
    }

    /// Returns the seconds of a step with one container: by the job's own measurement with most containers, or
    /// by its family's curve.
    fn step_one_s(&self) -> Option<f64> {
        let fitted = self.fitted.as_ref()?;
        match self.samples.points().last() {
            Some(point) => Some(point.step_s * fitted.useful(point.containers)),
            None if fitted.source == CurveSource::Document => None,
            None => Some(fitted.curve.step_s(1)),
        }
    }

    /// Reports whether the job reports progress.
    #[must_use]
    pub const fn reports(&self) -> bool {
        self.mark.is_some()
    }

    fn running_ms(&self, now: Timestamp) -> u64 {
        self.runs.map_or(0, |(containers, since)| {
            now.ms_since(since).saturating_mul(u64::from(containers))
        })
    }
}

/// A family's samples.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Family {
    samples: Samples,
    newest: Sequence,
}

/// The speeds of live jobs and of families.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Speeds {
    jobs: SharedMap<JobId, JobSpeed>,
    families: SharedMap<String, Family>,
}

impl Speeds {
    /// Returns a job's progress and curve.
    #[must_use]
    pub fn job(&self, job: &JobId) -> Option<&JobSpeed> {
        self.jobs.get(job)
    }

    /// Notes that `containers` containers of the job run from now on; 0 if it stopped.
    pub(crate) fn runs(&mut self, id: &JobId, containers: u32, now: Timestamp) {
        if !self.jobs.contains_key(id) {
            if containers == 0 {
                return;
            }
            self.jobs.insert(id.clone(), JobSpeed::default());
        }
        if let Some(job) = self.jobs.get_mut(id) {
            job.served_ms = job.served_ms.saturating_add(job.running_ms(now));
            job.runs = (containers > 0).then_some((containers, now));
        }
    }

    /// Takes an interval between two reports of an incarnation with the same `workers`. The first report of
    /// a size only begins one: the time before belongs to the start. Returns true if a number of containers
    /// is known from now on.
    pub(crate) fn progressed(
        &mut self,
        event: &Progress,
        (workers, demand): (Workers, &Amounts),
        sequence: Sequence,
        now: Timestamp,
    ) -> bool {
        let Some(job) = self.jobs.get_mut(&event.job) else {
            return false;
        };
        let mark = Mark {
            incarnation: event.incarnation,
            workers,
            step: event.step,
            steps_total: event.steps_total,
            at: now,
        };
        let last = job.mark.as_ref().filter(|last| {
            last.incarnation == mark.incarnation && last.workers == workers && last.step < mark.step
        });
        let Some(last) = last else {
            job.mark = Some(mark);
            return false;
        };
        let (steps, ms) = (mark.step - last.step, now.ms_since(last.at));
        if ms < samples::LEAST_MS {
            return false;
        }
        let is_known = job.samples.add(workers, steps, ms);
        job.mark = Some(mark);
        let family = family(&event.job, demand);
        if !self.families.contains_key(&family) {
            self.forget_one();
            self.families.insert(family.clone(), Family::default());
        }
        if let Some(family) = self.families.get_mut(&family) {
            family.samples.add(workers, steps, ms);
            family.newest = sequence;
        }
        is_known
    }

    fn forget_one(&mut self) {
        if self.families.len() >= MOST_FAMILIES {
            let oldest = self.families.iter().min_by_key(|(_, it)| it.newest);
            if let Some(name) = oldest.map(|(name, _)| name.clone()) {
                self.families.remove(&name);
            }
        }
    }

    pub(crate) fn fitted(&mut self, event: &JobSpeedFitted) {
        if !self.jobs.contains_key(&event.job) {
            self.jobs.insert(event.job.clone(), JobSpeed::default());
        }
        if let Some(job) = self.jobs.get_mut(&event.job) {
            job.fitted = Some(Fitted {
                curve: event.curve,
                error: event.error,
                source: event.source,
                points: event.points.clone(),
                crossing: event.crossing,
            });
        }
    }

    pub(crate) fn ended(&mut self, job: &JobId) {
        self.jobs.remove(job);
    }

    /// Returns a curve that the log does not have yet: for another source, another number of counts, or if
    /// the newest samples contradict the curve on the log.
    #[must_use]
    pub fn to_fit(
        &self,
        id: &JobId,
        demand: &Amounts,
        stated_milli: &[u32],
    ) -> Option<JobSpeedFitted> {
        let job = self.jobs.get(id);
        let own = job.map(|job| job.samples.points()).unwrap_or_default();
        let family = || self.families.get(&family(id, demand));
        let of_family = || family().map(|it| it.samples.points()).unwrap_or_default();
        let (source, points) = if own.len() >= OVERRULED_BY {
            (CurveSource::Measured, own)
        } else if !stated_milli.is_empty() {
            (CurveSource::Document, stated(stated_milli))
        } else {
            (CurveSource::Family, of_family())
        };
        let own = job.and_then(|job| job.samples.crossing());
        let crossing = own.or_else(|| family()?.samples.crossing());
        let known = job.and_then(|job| job.fitted.as_ref());
        let is_new = known.is_none_or(|known| {
            known.source != source
                || known.points.len() != points.len()
                || contradict(known, &points)
                || apart(known.crossing, crossing) > STALE
        });
        if points.is_empty() || !is_new {
            return None;
        }
        let curve = curve_fit::fit(&points)?;
        Some(JobSpeedFitted {
            job: id.clone(),
            curve: curve_fit::rounded(&curve),
            error: curve_fit::residual(&points, &curve),
            source,
            points,
            crossing: crossing.map(|lost| (lost * 1000.0).round() / 1000.0),
            basis: None,
        })
    }
}

fn contradict(known: &Fitted, points: &[SpeedPoint]) -> bool {
    points.iter().any(|point| {
        let old = known.points.iter();
        let old = old.copied().find(|old| old.containers == point.containers);
        old.is_none_or(|old| (point.step_s / old.step_s - 1.0).abs() > STALE)
    })
}

fn apart(known: Option<f64>, now: Option<f64>) -> f64 {
    match (known, now) {
        (Some(known), Some(now)) => (known - now).abs(),
        (None, Some(_)) => 1.0,
        (_, None) => 0.0,
    }
}

/// Steps of one container's second.
fn stated(milli: &[u32]) -> Vec<SpeedPoint> {
    let point = |(containers, speed): (u32, &u32)| SpeedPoint {
        containers,
        step_s: 1000.0 / f64::from((*speed).max(1)),
        seconds: 1.0,
    };
    (1..).zip(milli).map(point).collect()
}

/// `tenant/name` without the name's last number, and the demand.
fn family(job: &JobId, demand: &Amounts) -> String {
    let id = job.as_str();
    let stem = id.trim_end_matches(|it: char| it.is_ascii_digit());
    let stem = stem.strip_suffix('-').unwrap_or(stem);
    let stem = if stem.ends_with('/') { id } else { stem };
    let amounts = demand
        .iter()
        .map(|(resource, amount)| format!(" {}={amount}", resource.name()));
    std::iter::once(stem.to_owned()).chain(amounts).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use dormouse_messages::NodeId;

    fn progress(job: &JobId, incarnation: u32, step: u64) -> Progress {
        Progress {
            job: job.clone(),
            incarnation: Incarnation(incarnation),
            node: NodeId::new("n0").expect("a name"),
            step,
            steps_total: 0,
            containers: 0,
            metrics: BTreeMap::new(),
        }
    }

    struct Told {
        speeds: Speeds,
        at: Timestamp,
        demand: Amounts,
    }

    impl Told {
        fn new() -> Self {
            Self {
                speeds: Speeds::default(),
                at: Timestamp::default(),
                demand: Amounts::new(),
            }
        }

        /// Ten reports, one every ten seconds of `step_s` each.
        fn report(&mut self, job: &JobId, incarnation: u32, containers: u32, step_s: f64) {
            self.speeds.runs(job, containers, self.at);
            // The first seconds belong to the start.
            self.at = self.at.plus_ms(30_000);
            for report in 0..10 {
                let step = (10.0 * f64::from(report) / step_s) as u64;
                let event = progress(job, incarnation, step);
                let workers = Workers {
                    containers,
                    apart: false,
                };
                let of = (workers, &self.demand);
                self.speeds.progressed(&event, of, Sequence(1), self.at);
                self.at = self.at.plus_ms(10_000);
            }
        }

        fn fit(&mut self, job: &JobId, stated: &[u32]) -> Option<JobSpeedFitted> {
            let event = self.speeds.to_fit(job, &self.demand, stated)?;
            self.speeds.fitted(&event);
            Some(event)
        }
    }

    fn id(text: &str) -> JobId {
        text.parse().expect("an id")
    }

    #[test]
    fn a_curve_is_stated_once_and_again_when_it_is_contradicted() {
        let mut told = Told::new();
        let job = id("ads/a-1");
        told.report(&job, 1, 2, 0.05);
        told.report(&job, 2, 4, 0.03);
        let event = told.fit(&job, &[]).expect("two counts");
        assert_eq!(
            (event.source, event.points.len()),
            (CurveSource::Measured, 2)
        );
        assert!((event.curve.step_s(4) - 0.03).abs() < 0.001, "{event:?}");
        assert_eq!(told.fit(&job, &[]), None);
        told.report(&job, 3, 4, 0.06);
        let event = told.fit(&job, &[]).expect("contradicted");
        assert!((event.curve.step_s(4) - 0.06).abs() < 0.002, "{event:?}");
    }

    #[test]
    fn a_new_job_begins_with_its_family_and_others_do_not() {
        let mut told = Told::new();
        told.report(&id("ads/a-1"), 1, 2, 0.05);
        told.report(&id("ads/a-2"), 1, 4, 0.03);
        let event = told.fit(&id("ads/a-3"), &[]).expect("a family");
        assert_eq!((event.source, event.points.len()), (CurveSource::Family, 2));
        assert_eq!(told.fit(&id("ads/b-3"), &[]), None);
        assert_eq!(told.fit(&id("web/a-3"), &[]), None);
        assert_eq!(told.fit(&id("ads/7"), &[]), None);
    }

    #[test]
    fn a_wrong_stated_curve_is_overruled_by_two_measured_counts() {
        let mut told = Told::new();
        let (job, stated) = (id("ads/a-1"), [1000, 1000, 1000, 1000]);
        let event = told.fit(&job, &stated).expect("stated");
        assert_eq!(event.source, CurveSource::Document);
        assert!((event.curve.useful(4) - 1.0).abs() < 0.01);
        told.report(&job, 1, 1, 0.8);
        assert_eq!(told.fit(&job, &stated), None);
        told.report(&job, 2, 4, 0.2);
        let event = told.fit(&job, &stated).expect("measured");
        assert_eq!(event.source, CurveSource::Measured);
        assert!((event.curve.useful(4) - 4.0).abs() < 0.1, "{event:?}");
    }

    #[test]
    fn service_is_counted_over_sizes() {
        let (mut speeds, job) = (Speeds::default(), id("ads/a"));
        let at = |s: u64| Timestamp::default().plus_ms(1000 * s);
        speeds.runs(&job, 2, at(0));
        speeds.runs(&job, 4, at(10));
        speeds.runs(&job, 0, at(20));
        let served = |now: u64| speeds.job(&job).map(|it| it.served_s(at(now)));
        assert_eq!(served(20), Some(60.0));
        assert_eq!(served(50), Some(60.0));
    }

    #[test]
    fn work_left_is_believed_down_to_a_part_of_the_service() {
        let mut told = Told::new();
        let job = id("ads/a-1");
        told.report(&job, 1, 2, 0.5);
        told.report(&job, 2, 4, 0.25);
        told.fit(&job, &[]).expect("two counts");
        let left = |told: &Told| told.speeds.job(&job).and_then(|it| it.left_s(told.at));
        assert_eq!(left(&told), None, "no report says a total");
        let mut says = |step, steps_total| {
            told.at = told.at.plus_ms(10_000);
            let mut event = progress(&job, 2, step);
            event.steps_total = steps_total;
            let workers = Workers {
                containers: 4,
                apart: false,
            };
            let of = (workers, &told.demand);
            told.speeds.progressed(&event, of, Sequence(1), told.at);
            left(&told).expect("a total")
        };
        // A step takes one container a second.
        assert!((says(1_000, 3_000) - 2_000.0).abs() < 20.0);
        let least = says(2_999, 3_000);
        let served_s = 2.0 * 130.0 + 4.0 * 150.0;
        assert!((least - served_s / MOST_BELIEVED).abs() < 1.0, "{least}");
    }
}
