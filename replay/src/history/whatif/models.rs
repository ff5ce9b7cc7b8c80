//! Models how each job of a log would run with other containers.
//!
//! 1. Progress at two or more numbers of containers gives a curve of the job's own ([`dormouse_state::speed::curve_fit`]). A
//!    job with one or none is pooled with similar jobs; without other numbers, speed is assumed linear.
//! 2. Costs are each incarnation's own; by default the median over the job, else over jobs with the same
//!    save mode.
//! 3. A draw ([`Models::draw`]) refits to points perturbed by the residuals, or draws from the fitted
//!    curves.
//!
//! The same curves give the work on the log ([`super::fork`]), so a job with its real containers takes
//! its real time.

use std::collections::BTreeMap;

use dormouse_messages::JobId;

use dormouse_messages::speed::{Curve, SpeedPoint};
use dormouse_state::speed::curve_fit::{distinct, fit, left_out_error, residual};
use serde::{Deserialize, Serialize};

use super::incarnation::IncarnationTimes;
use super::observed::{Observed, Seen};
use crate::engine::{IncarnationCosts, ModelJob, Scaling};
use crate::random::Random;

/// Seconds per task of a set without an ended task.
const TASK_S: f64 = 60.0;

/// Seconds between progress reports, where they matter.
const REPORT_S: f64 = 30.0;

/// The quality of a job's curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// a, b and c, from three or more numbers of containers.
    Fitted,
    /// a and b, from two numbers of containers.
    FittedTwo,
    /// From the job and jobs of the same tenant, executor, command and demand.
    Pooled,
    /// From one number of containers; assumes linear speed.
    LinearAssumed,
    /// Without progress reports; work counts in container seconds.
    NoProgress,
}

/// The fitted behaviour of one job.
#[derive(Debug, Clone)]
pub struct Known {
    pub form: Form,
    /// `None` without progress reports.
    pub curve: Option<Curve>,
    pub points: Vec<SpeedPoint>,
    /// Median relative error at an omitted number of containers.
    pub error: Option<f64>,
    /// The least and the most containers seen.
    pub seen: (u32, u32),
}

/// The fitted behaviour of all jobs.
#[derive(Debug, Clone, Default)]
pub struct Models {
    pub jobs: BTreeMap<JobId, Known>,
    /// Root mean square of the relative residuals of all curves.
    pub residual: f64,
    /// True if decisions depend on all progress, as under `objective.value: speed`.
    pub report: bool,
}

impl Models {
    /// Fits the models.
    #[must_use]
    pub fn of(observed: &Observed) -> Self {
        let mut pools: BTreeMap<_, Vec<SpeedPoint>> = BTreeMap::new();
        let own: BTreeMap<&JobId, Vec<SpeedPoint>> = observed
            .jobs
            .iter()
            .map(|(id, seen)| (id, seen.points()))
            .collect();
        for (id, seen) in &observed.jobs {
            let points = own.get(id).into_iter().flatten().copied();
            pools.entry(&seen.kind).or_default().extend(points);
        }
        let mut jobs = BTreeMap::new();
        for (id, seen) in &observed.jobs {
            let own = own.get(id).cloned().unwrap_or_default();
            let pool = pools.get(&seen.kind).cloned().unwrap_or_default();
            jobs.insert(id.clone(), known(own, pool));
        }
        let mut models = Self {
            jobs,
            ..Self::default()
        };
        let fitted = models.jobs.values().filter(|it| distinct(&it.points) > 1);
        let each: Vec<(f64, f64)> = fitted
            .filter_map(|it| {
                let off = residual(&it.points, it.curve.as_ref()?);
                Some((off * off, 1.0))
            })
            .collect();
        let count: f64 = each.iter().map(|(_, one)| one).sum();
        if count > 0.0 {
            models.residual = (each.iter().map(|(off, _)| off).sum::<f64>() / count).sqrt();
        }
        models
    }

    /// True if a draw would change nothing.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        let fitted = |it: &Known| distinct(&it.points) > 1;
        !self.jobs.values().any(fitted)
    }

    /// Draws other plausible curves.
    #[must_use]
    pub fn draw(&self, random: &mut Random) -> Self {
        let fitted = self.jobs.values().filter(|it| distinct(&it.points) > 1);
        let shapes: Vec<Curve> = fitted.filter_map(|it| it.curve).collect();
        let mut drawn = self.clone();
        for known in drawn.jobs.values_mut() {
            let mut random = random.split();
            if known.points.is_empty() {
                continue;
            }
            for point in &mut known.points {
                point.step_s *= libm::exp(self.residual * normal(&mut random));
            }
            known.curve = fit(&known.points);
            if known.form == Form::LinearAssumed && !shapes.is_empty() {
                let shape = random.choose(&shapes);
                let scale = known.points.first().map_or(1.0, |point| {
                    point.step_s / shape.step_s(point.containers).max(f64::MIN_POSITIVE)
                });
                known.curve = Some(Curve {
                    a: shape.a * scale,
                    b: shape.b * scale,
                    c: shape.c * scale,
                });
            }
        }
        drawn
    }

    /// Returns the model of a job with endless work.
    #[must_use]
    pub fn model(&self, id: &JobId, observed: &Observed) -> ModelJob {
        let mut model = ModelJob::linear(f64::INFINITY);
        let (Some(seen), Some(known)) = (observed.jobs.get(id), self.jobs.get(id)) else {
            return model;
        };
        if let Some(curve) = known.curve {
            model.scaling = Scaling::Steps {
                a: curve.a,
                b: curve.b,
                c: curve.c,
            };
        }
        costs(&mut model, (seen, known, self.report), observed);
        if let Some(tasks) = seen.tasks {
            model.work_container_s = seen.task_s().unwrap_or(TASK_S) * f64::from(tasks);
            model.scaling = Scaling::Linear;
        }
        model
    }
}

fn known(own: Vec<SpeedPoint>, pool: Vec<SpeedPoint>) -> Known {
    let (form, points) = match (distinct(&own), distinct(&pool)) {
        (0, 0) => (Form::NoProgress, own),
        (0, 1) => (Form::LinearAssumed, pool),
        (0 | 1, 2..) => (Form::Pooled, pool),
        (1, _) => (Form::LinearAssumed, own),
        (2, _) => (Form::FittedTwo, own),
        (_, _) => (Form::Fitted, own),
    };
    let counts = || points.iter().map(|it| it.containers);
    Known {
        form,
        curve: fit(&points),
        error: left_out_error(&points),
        seen: (counts().min().unwrap_or(0), counts().max().unwrap_or(0)),
        points,
    }
}

fn costs(model: &mut ModelJob, (seen, known, report): (&Seen, &Known, bool), observed: &Observed) {
    let usual = |of: &dyn Fn(&IncarnationTimes) -> Option<f64>| {
        let own = seen.usual(of);
        own.or_else(|| observed.usual(seen, of)).unwrap_or(0.0)
    };
    model.start_s = usual(&IncarnationTimes::start_s);
    model.save_s = match seen.tasks {
        Some(_) => seen.usual(IncarnationTimes::drained_s).unwrap_or(0.0),
        None => usual(&IncarnationTimes::save_s),
    };
    model.stop_s = usual(&IncarnationTimes::stop_s);
    model.ready_s = seen.ready_s().unwrap_or(0.0);
    let reports = seen.reports();
    let curve = known.curve;
    let pause_s =
        |times: &IncarnationTimes| curve.and_then(|curve| times.pause_s(|n| curve.step_s(n)));
    let first_s = |times: &IncarnationTimes| {
        Some((times.first_report_s()? - pause_s(times).unwrap_or(0.0)).max(0.0))
    };
    if curve.is_some() {
        let of = |resumes: bool| {
            seen.usual(move |times: &IncarnationTimes| {
                pause_s(times).filter(|_| (times.from_step > 0) == resumes)
            })
        };
        let (first, resumed) = (of(false), of(true));
        model.warm_up_s = first.or(resumed).unwrap_or(0.0);
        model.resume_s = resumed.or(first).unwrap_or(0.0);
    }
    if reports {
        // Otherwise decisions depend only on an incarnation's first report.
        let every_s = if report {
            REPORT_S
        } else {
            f64::from(u32::MAX)
        };
        model.progress_s = Some(every_s);
        model.first_report_s = seen.usual(first_s);
    }
    for (incarnation, times) in &seen.incarnations {
        let costs = IncarnationCosts {
            start_s: times.started_after_s(),
            pause_s: pause_s(times),
            save_s: match seen.tasks {
                Some(_) => times.drained_s().or_else(|| times.saved_after_s()),
                None => times.saved_after_s(),
            },
            stop_s: times.stopped_after_s(),
            pace: None,
            first_report_s: first_s(times),
            members: times.members(),
        };
        model.incarnations.insert(*incarnation, costs);
    }
}

/// Draws a standard normal number (Box and Muller).
fn normal(random: &mut Random) -> f64 {
    let (radius, angle) = (random.unit().max(1e-12), random.unit());
    (-2.0 * libm::log(radius)).sqrt() * libm::cos(std::f64::consts::TAU * angle)
}
