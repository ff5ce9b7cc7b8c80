//! Measures services next to training.
//!
//! A service counts from the first training job's submission to the end of its clients' table. A
//! training job waits until its first work, so a lone member of a gang of two also waits.

use std::collections::BTreeMap;

use dormouse_messages::{Event, JobId, Recorded, Timestamp};
use serde::{Deserialize, Serialize};

use super::record::{End, JobRecord, Percentiles, Point, count, mean};
use crate::engine::{Engine, Sample};
use crate::scenario::Scenario;

/// The clients' view of one service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceFigures {
    pub job: String,
    pub objective_ms: Option<f64>,
    pub response_ms: Percentiles,
    /// The fraction of time within the objective.
    pub in_time: f64,
    /// The fractions of time above 128, 512 and 1,024 ms.
    pub above: [f64; 3],
    /// Seconds without an answering replica.
    pub unanswered_s: u64,
    pub replicas: f64,
    pub most_replicas: u32,
}

/// Figures of training next to services.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainingFigures {
    pub jobs: u64,
    /// From the first submission to the last end.
    pub makespan_s: f64,
    pub waiting_s: f64,
    pub working_s: f64,
    pub total_s: f64,
    pub longest_s: f64,
    pub few: [f64; 2],
}

/// Figures of services next to training.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MixedFigures {
    pub services: Vec<ServiceFigures>,
    pub training: TrainingFigures,
}

/// The clients' view of a service over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ServiceCourse {
    pub response_ms: Vec<Point>,
    pub replicas: Vec<Point>,
    pub asked: Vec<Point>,
}

/// Services and training over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Course {
    pub services: BTreeMap<JobId, ServiceCourse>,
    /// The sum of the training jobs' speeds in container seconds per second.
    pub speed: Vec<Point>,
}

/// Bounds of the response time classes in milliseconds.
pub const CLASSES_MS: [f64; 3] = [128.0, 512.0, 1024.0];

#[derive(Debug, Clone, Default)]
struct Speed {
    working: Option<(Timestamp, f64)>,
    points: Vec<Point>,
}

#[derive(Debug, Clone)]
pub(crate) struct Mixed {
    start: Timestamp,
    until_s: BTreeMap<JobId, f64>,
    from_s: f64,
    objectives_ms: BTreeMap<JobId, f64>,
    samples: Vec<Sample>,
    speeds: BTreeMap<JobId, Speed>,
}

impl Mixed {
    /// Returns `None` for a scenario without clients.
    pub fn of(scenario: &Scenario, start: Timestamp) -> Option<Self> {
        let mut until_s = BTreeMap::new();
        for submission in &scenario.submissions {
            if let Some(clients) = &submission.clients {
                let ends_s = submission.at_s + clients.lasts_s();
                until_s.insert(submission.job.clone(), ends_s);
            }
        }
        let training = scenario
            .submissions
            .iter()
            .filter(|it| !it.kind.is_served());
        let from_s = training.map(|it| it.at_s).reduce(f64::min);
        (!until_s.is_empty()).then(|| Self {
            start,
            until_s,
            from_s: from_s.unwrap_or(0.0),
            objectives_ms: BTreeMap::new(),
            samples: Vec::new(),
            speeds: BTreeMap::new(),
        })
    }

    /// Returns the end of the last service's load, in seconds from the start.
    pub fn until_s(&self) -> f64 {
        self.until_s.values().copied().fold(0.0, f64::max)
    }

    /// Notes the objectives of admitted services.
    pub fn read(&mut self, recorded: &Recorded) {
        if let Some(Event::JobAdmitted(event)) = recorded.event() {
            let service = event.spec.service.as_ref();
            let objective = service.and_then(|service| service.objective);
            if let Some(objective) = objective {
                let latency_ms = f64::from(objective.latency_ms);
                self.objectives_ms.insert(event.job.clone(), latency_ms);
            }
        }
    }

    /// Samples services and training at the engine's time.
    pub fn look(&mut self, engine: &mut Engine) {
        self.samples.extend(engine.take_samples());
        let now_s = engine.now().seconds_since(self.start);
        let mut working: BTreeMap<&JobId, Option<(Timestamp, f64)>> =
            self.speeds.keys().map(|job| (job, None)).collect();
        let mut changed: Vec<(JobId, Option<(Timestamp, f64)>)> = Vec::new();
        let speeds: Vec<(JobId, Option<(Timestamp, f64)>)> = engine
            .agents()
            .speeds()
            .map(|(job, working)| (job.clone(), working))
            .collect();
        for (job, now) in &speeds {
            working.remove(job);
            if self.speeds.get(job).and_then(|known| known.working) != *now {
                changed.push((job.clone(), *now));
            }
        }
        // The agents no longer list ended jobs.
        let ended = working
            .into_keys()
            .filter(|job| self.speeds[*job].working.is_some());
        changed.extend(ended.map(|job| (job.clone(), None)));
        for (job, now) in changed {
            let known = self.speeds.entry(job).or_default();
            known.working = now;
            known.points.push((now_s, 0.0));
            if let Some((since, speed)) = now {
                let since_s = since.seconds_since(self.start).max(now_s);
                known.points.push((since_s, speed));
            }
        }
    }

    fn begun_s(&self, job: &JobId) -> Option<f64> {
        let speed = self.speeds.get(job)?;
        let first = speed.points.iter().find(|(_, speed)| *speed > 0.0)?;
        Some(first.0)
    }

    /// Returns the figures of services and training.
    pub fn figures(&self, jobs: &[JobRecord]) -> MixedFigures {
        let services = self.until_s.keys().map(|job| self.service(job));
        MixedFigures {
            services: services.collect(),
            training: self.training(jobs),
        }
    }

    fn seconds<'a>(&'a self, job: &'a JobId) -> impl Iterator<Item = (f64, &'a Sample)> {
        let until_s = self.until_s.get(job).copied().unwrap_or(0.0);
        let of = self.samples.iter().filter(move |sample| sample.job == *job);
        of.map(|sample| (sample.at.seconds_since(self.start), sample))
            .filter(move |(at_s, _)| (self.from_s..until_s).contains(at_s))
    }

    fn service(&self, job: &JobId) -> ServiceFigures {
        let objective_ms = self.objectives_ms.get(job).copied();
        let seconds: Vec<&Sample> = self.seconds(job).map(|(_, sample)| sample).collect();
        let all = count(seconds.len().max(1) as u64);
        let answered = seconds.iter().filter_map(|it| it.latency_ms);
        let answered: Vec<f64> = answered.collect();
        let unanswered_s = (seconds.len() - answered.len()) as u64;
        // A tolerance: 4 ms times clients over replicas may equal the objective.
        let above = |bound_ms: f64| {
            let late = answered.iter().filter(|it| **it > bound_ms + 1e-3);
            (count(late.count() as u64) + count(unanswered_s)) / all
        };
        let replicas = seconds.iter().map(|it| f64::from(it.ready));
        ServiceFigures {
            job: job.to_string(),
            objective_ms,
            in_time: objective_ms.map_or(1.0, |bound_ms| 1.0 - above(bound_ms)),
            above: CLASSES_MS.map(above),
            unanswered_s,
            replicas: replicas.sum::<f64>() / all,
            most_replicas: seconds.iter().map(|it| it.ready).max().unwrap_or(0),
            response_ms: Percentiles::of(answered),
        }
    }

    fn training(&self, jobs: &[JobRecord]) -> TrainingFigures {
        let completed = jobs.iter().filter(|job| job.end == End::Completed);
        let times = completed.filter_map(|job| Some((job, self.begun_s(&job.job)?)));
        let times: Vec<(&JobRecord, f64)> = times.collect();
        let average = |of: &dyn Fn(&(&JobRecord, f64)) -> f64| {
            times.iter().map(of).sum::<f64>() / count(times.len().max(1) as u64)
        };
        let bars = times.iter().flat_map(|(job, _)| &job.bars);
        let ran = |most: u32| -> f64 {
            let bars = bars.clone().filter(|bar| bar.containers <= most);
            bars.map(|bar| bar.to_s - bar.from_s)
                .fold(0.0, |sum, s| sum + s)
        };
        let all = ran(u32::MAX).max(f64::MIN_POSITIVE);
        let ends = times.iter().map(|(job, _)| job.ended_s);
        TrainingFigures {
            jobs: times.len() as u64,
            makespan_s: (ends.fold(0.0, f64::max) - self.from_s).max(0.0),
            waiting_s: average(&|(job, begun_s)| begun_s - job.submitted_s),
            working_s: average(&|(job, begun_s)| job.ended_s - begun_s),
            total_s: average(&|(job, _)| job.ended_s - job.submitted_s),
            longest_s: times
                .iter()
                .map(|(job, begun_s)| job.ended_s - begun_s)
                .fold(0.0, f64::max),
            few: [ran(1) / all, ran(2) / all],
        }
    }

    /// Returns the course from the first training job's submission on.
    pub fn course(&self) -> Course {
        let mut course = Course::default();
        for job in self.until_s.keys() {
            let service = course.services.entry(job.clone()).or_default();
            for (at_s, sample) in self.seconds(job) {
                let at_s = at_s - self.from_s;
                let latency_ms = sample.latency_ms.unwrap_or(0.0);
                push(&mut service.response_ms, at_s, latency_ms);
                push(&mut service.replicas, at_s, f64::from(sample.ready));
                push(&mut service.asked, at_s, sample.number);
            }
        }
        course.speed = self.speed();
        course
    }

    fn speed(&self) -> Vec<Point> {
        let mut changes: Vec<(f64, f64)> = Vec::new();
        for speed in self.speeds.values() {
            let mut before = 0.0;
            for (at_s, now) in &speed.points {
                changes.push((at_s - self.from_s, now - before));
                before = *now;
            }
        }
        changes.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut sum, mut points) = (0.0, Vec::new());
        for (at_s, change) in changes {
            sum += change;
            match points.last_mut() {
                Some((last_s, value)) if *last_s == at_s => *value = sum,
                _ => points.push((at_s, sum)),
            }
        }
        points
    }
}

impl Course {
    /// Returns the mean speed of training.
    #[must_use]
    pub fn mean_speed(&self, from_s: f64, to_s: f64) -> f64 {
        mean(&self.speed, from_s, to_s)
    }
}

fn push(points: &mut Vec<Point>, at_s: f64, value: f64) {
    if points.last().is_none_or(|(_, last)| *last != value) {
        points.push((at_s, value));
    }
}
