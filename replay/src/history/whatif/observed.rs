//! What a log shows of how its jobs run: the time of their steps, and what starting, saving and
//! stopping cost.

use std::collections::BTreeMap;

use dormouse_messages::job::{CheckpointMode, Executor, JobSpec};
use dormouse_messages::{Amounts, Event, Incarnation, JobId, Rank, Recorded, Timestamp};
use dormouse_state::{ClusterState, LifePhase};

use super::fit::{Point, median};

/// What did not happen while it could have: longer than anything waits.
const NEVER_S: f64 = 1e9;

/// A life.
#[derive(Debug, Clone, Default)]
pub struct Life {
    /// When it was asked to start.
    pub requested: Option<Timestamp>,
    /// When the last of its first containers ran.
    pub started: Option<Timestamp>,
    /// Containers that it was asked to start.
    containers: u32,
    running: u32,
    /// The step it began with.
    pub from_step: u64,
    /// What it reported: when, the step, with how many containers.
    pub reports: Vec<(Timestamp, u64, u32)>,
    save_asked: Option<Timestamp>,
    saved: Option<Timestamp>,
    stop_asked: Option<Timestamp>,
    exited: Option<Timestamp>,
    ready_ms: Vec<u64>,
}

/// A job.
#[derive(Debug, Clone)]
pub struct Seen {
    /// What makes jobs alike.
    pub kind: (String, Executor, Vec<String>, Amounts),
    /// Tasks, of a task set.
    pub tasks: Option<u32>,
    /// Whether it is a service or a notebook.
    pub served: bool,
    mode: CheckpointMode,
    /// Its lives.
    pub lives: BTreeMap<Incarnation, Life>,
    saved_step: u64,
    /// Seconds a task, of each report of tasks that ended.
    task_s: Vec<f64>,
    /// Tasks that containers have, and since when they run them.
    busy: BTreeMap<(Incarnation, Rank), (u64, Timestamp)>,
    /// The steps it has in all, where it says so.
    pub steps_total: Option<u64>,
}

impl Life {
    fn between(from: Option<Timestamp>, to: Option<Timestamp>) -> Option<f64> {
        Some(to?.seconds_since(from?).max(0.0))
    }

    /// From the start request until its containers ran.
    pub fn start_s(&self) -> Option<f64> {
        Self::between(self.requested, self.started)
    }

    /// From the request to save until it was saved.
    pub fn save_s(&self) -> Option<f64> {
        Self::between(self.save_asked, self.saved)
    }

    /// The same of this very life: one that was stopped before it had saved would not have.
    pub fn saved_after_s(&self) -> Option<f64> {
        let given_up = self.save_asked.is_some() && self.saved.is_none() && self.exited.is_some();
        self.save_s().or(given_up.then_some(NEVER_S))
    }

    /// From its start request until its containers ran: one that ended before would not have.
    pub fn started_after_s(&self) -> Option<f64> {
        let given_up = self.started.is_none() && self.exited.is_some();
        self.start_s().or(given_up.then_some(NEVER_S))
    }

    /// From the request to stop until it had ended.
    pub fn stop_s(&self) -> Option<f64> {
        Self::between(self.stop_asked, self.exited)
    }

    /// From its start until it first reported progress.
    pub fn first_report_s(&self) -> Option<f64> {
        let (at, ..) = self.reports.first()?;
        Self::between(self.started, Some(*at))
    }

    /// From its start until it worked, where a step takes so long with `n` containers: what the
    /// steps before the first report do not explain.
    pub fn pause_s(&self, step_s: impl Fn(u32) -> f64) -> Option<f64> {
        let (at, step, containers) = self.reports.first()?;
        let started = self.started?;
        let steps = step.saturating_sub(self.from_step);
        let worked_s = number(steps) * step_s(*containers);
        Some((at.seconds_since(started) - worked_s).max(0.0))
    }

    /// The median time of a step with each number of containers.
    fn points(&self) -> Vec<Point> {
        let mut by_count: BTreeMap<u32, (Vec<f64>, f64)> = BTreeMap::new();
        for pair in self.reports.windows(2) {
            let [(from, first, containers), (to, last, same)] = pair else {
                continue;
            };
            let (steps, seconds) = (last.saturating_sub(*first), to.seconds_since(*from));
            if steps > 0 && seconds > 0.0 && containers == same && *containers > 0 {
                let (times, all_s) = by_count.entry(*containers).or_default();
                times.push(seconds / number(steps));
                *all_s += seconds;
            }
        }
        let points = by_count
            .into_iter()
            .filter_map(|(containers, (times, weight_s))| {
                Some(Point {
                    containers,
                    step_s: median(times)?,
                    weight_s,
                })
            });
        points.collect()
    }
}

impl Seen {
    fn new(job: &JobId, spec: &JobSpec) -> Self {
        Self {
            kind: (
                job.tenant().to_owned(),
                spec.executor,
                spec.command.start.clone(),
                spec.demand.clone(),
            ),
            tasks: spec.tasks.map(|tasks| tasks.count),
            served: spec.service.is_some(),
            mode: spec.checkpoint.mode,
            lives: BTreeMap::new(),
            saved_step: 0,
            task_s: Vec::new(),
            busy: BTreeMap::new(),
            steps_total: None,
        }
    }

    /// The median time of a task.
    pub fn task_s(&self) -> Option<f64> {
        median(self.task_s.clone())
    }

    /// Tasks are given to a container.
    fn given(&mut self, of: (Incarnation, Rank), tasks: u64, at: Timestamp) {
        let (has, since) = self.busy.entry(of).or_insert((0, at));
        if *has == 0 {
            *since = at;
        }
        *has += tasks;
    }

    /// Tasks have ended in a container.
    fn ended(&mut self, of: (Incarnation, Rank), tasks: u64, at: Timestamp) {
        if let Some((has, since)) = self.busy.get_mut(&of).filter(|_| tasks > 0) {
            self.task_s.push(at.seconds_since(*since) / number(tasks));
            *has = has.saturating_sub(tasks);
            *since = at;
        }
    }

    /// The time of a step, by life and containers.
    pub fn points(&self) -> Vec<Point> {
        self.lives.values().flat_map(Life::points).collect()
    }

    /// Whether it ever said how far it is.
    pub fn reports(&self) -> bool {
        self.lives.values().any(|life| !life.reports.is_empty())
    }

    /// The median of a cost over its lives.
    pub fn usual(&self, of: impl Fn(&Life) -> Option<f64>) -> Option<f64> {
        median(self.lives.values().filter_map(of).collect())
    }

    /// The median time of a replica from its start until it was ready.
    pub fn ready_s(&self) -> Option<f64> {
        let all = self.lives.values().flat_map(|life| &life.ready_ms);
        median(all.map(|ms| number(*ms) / 1e3).collect())
    }

    fn life(&mut self, incarnation: Incarnation) -> &mut Life {
        self.lives.entry(incarnation).or_default()
    }
}

/// All jobs of a log.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// By name.
    pub jobs: BTreeMap<JobId, Seen>,
}

impl Observed {
    /// Begins with a state: jobs that were there before the log began.
    pub fn starting_from(&mut self, cluster: &ClusterState) {
        for (id, job) in cluster.queued.iter().chain(&cluster.jobs) {
            let mut seen = Seen {
                kind: (
                    id.tenant().to_owned(),
                    Executor::default(),
                    Vec::new(),
                    job.demand.clone(),
                ),
                tasks: job
                    .tasks
                    .as_ref()
                    .map(|it| u32::try_from(it.remaining()).unwrap_or(u32::MAX)),
                served: job.serving.is_some(),
                mode: job.mode,
                lives: BTreeMap::new(),
                saved_step: job.checkpoint.as_ref().map_or(0, |it| it.step),
                task_s: Vec::new(),
                busy: BTreeMap::new(),
                steps_total: None,
            };
            if let Some(life) = &job.life {
                let known = seen.life(life.incarnation);
                let starting = life.phase == LifePhase::Starting;
                known.requested = starting.then_some(life.requested_at);
                known.containers = u32::try_from(life.containers.len()).unwrap_or(u32::MAX);
            }
            self.jobs.insert(id.clone(), seen);
        }
    }

    /// The next event.
    pub fn read(&mut self, recorded: &Recorded) {
        let at = recorded.stored_at;
        match recorded.event() {
            Some(Event::JobAdmitted(event)) => {
                let seen = Seen::new(&event.job, &event.spec);
                self.jobs.insert(event.job.clone(), seen);
            }
            Some(Event::PartitionStartRequested(event)) => {
                self.on(&event.job, |seen| {
                    let from_step = match event.resumed_from {
                        Some(_) => seen.saved_step,
                        None => 0,
                    };
                    *seen.life(event.incarnation) = Life {
                        requested: Some(at),
                        containers: event.containers,
                        from_step,
                        ..Life::default()
                    };
                });
            }
            Some(Event::ContainerStarted(event)) => {
                self.on(&event.job, |seen| {
                    let life = seen.life(event.incarnation);
                    life.running += 1;
                    if life.running == life.containers {
                        life.started.get_or_insert(at);
                    }
                });
            }
            Some(Event::ContainerReady(event)) => self.on(&event.job, |seen| {
                seen.life(event.incarnation).ready_ms.push(event.after_ms);
            }),
            Some(Event::ContainerExited(event)) => {
                self.on(&event.job, |seen| {
                    let life = seen.life(event.incarnation);
                    life.running = life.running.saturating_sub(1);
                    life.exited = Some(at);
                });
            }
            _ => self.work(recorded),
        }
    }

    /// What is said of its work.
    fn work(&mut self, recorded: &Recorded) {
        let at = recorded.stored_at;
        match recorded.event() {
            Some(Event::CheckpointRequested(event)) => self.on(&event.job, |seen| {
                seen.life(event.incarnation).save_asked = Some(at);
            }),
            Some(Event::CheckpointSaved(event)) => self.on(&event.job, |seen| {
                seen.saved_step = event.step;
                let life = seen.life(event.incarnation);
                if life.save_asked.is_some() {
                    life.saved.get_or_insert(at);
                }
            }),
            Some(Event::PartitionStopRequested(event)) => self.on(&event.job, |seen| {
                seen.life(event.incarnation).stop_asked = Some(at);
            }),
            Some(Event::TasksAssigned(event)) => self.on(&event.job, |seen| {
                for it in &event.assigned {
                    seen.given((event.incarnation, it.rank), it.tasks.len(), at);
                }
            }),
            Some(Event::TasksEnded(event)) => self.on(&event.job, |seen| {
                let tasks = event.completed.len() + event.failed.len() as u64;
                seen.ended((event.incarnation, event.rank), tasks, at);
            }),
            Some(Event::Progress(event)) => self.on(&event.job, |seen| {
                seen.steps_total = Some(event.steps_total).filter(|total| *total > 0);
                let life = seen.life(event.incarnation);
                life.reports.push((at, event.step, event.containers));
            }),
            _ => {}
        }
    }

    fn on(&mut self, job: &JobId, note: impl FnOnce(&mut Seen)) {
        if let Some(seen) = self.jobs.get_mut(job) {
            note(seen);
        }
    }

    /// The median of a cost over all lives of jobs that save as this one does.
    pub fn usual(&self, like: &Seen, of: impl Fn(&Life) -> Option<f64>) -> Option<f64> {
        let jobs = self.jobs.values();
        let alike = jobs.filter(|seen| seen.mode == like.mode && seen.served == like.served);
        median(
            alike
                .flat_map(|seen| seen.lives.values())
                .filter_map(of)
                .collect(),
        )
    }
}

/// Counts below 2^53 are exact.
#[expect(clippy::cast_precision_loss, reason = "steps and milliseconds")]
pub fn number(value: u64) -> f64 {
    value as f64
}
