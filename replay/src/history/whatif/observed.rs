//! Extracts from a log how its jobs run: step times, and the costs of starts, saves and stops.

use std::collections::BTreeMap;

use dormouse_messages::job::{CheckpointMode, Executor, JobSpec};
use dormouse_messages::{Amounts, Event, Fact, Incarnation, JobId, Rank, Timestamp};
use dormouse_state::{ClusterState, PartitionPhase};

use super::incarnation::{IncarnationTimes, Member, number};
use crate::random::Random;
use dormouse_messages::speed::SpeedPoint;
use dormouse_state::speed::curve_fit::median;

const MOST_ENDS: usize = 2_000;
const NEAREST_ENDS: usize = 30;

/// The observations of a job.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Jobs with equal kinds count as similar.
    pub kind: (String, Executor, Vec<String>, Amounts),
    pub tasks: Option<u32>,
    pub served: bool,
    mode: CheckpointMode,
    pub incarnations: BTreeMap<Incarnation, IncarnationTimes>,
    saved_step: u64,
    task_s: Vec<f64>,
    busy: BTreeMap<(Incarnation, Rank), (u64, Timestamp)>,
    pub steps_total: Option<u64>,
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
            incarnations: BTreeMap::new(),
            saved_step: 0,
            task_s: Vec::new(),
            busy: BTreeMap::new(),
            steps_total: None,
        }
    }

    pub fn task_s(&self) -> Option<f64> {
        median(self.task_s.clone())
    }

    fn given(&mut self, of: (Incarnation, Rank), tasks: u64, at: Timestamp) {
        let (has, since) = self.busy.entry(of).or_insert((0, at));
        if *has == 0 {
            *since = at;
        }
        *has += tasks;
    }

    fn ended(&mut self, of: (Incarnation, Rank), tasks: u64, at: Timestamp) {
        if let Some((has, since)) = self.busy.get_mut(&of).filter(|_| tasks > 0) {
            self.task_s.push(at.seconds_since(*since) / number(tasks));
            *has = has.saturating_sub(tasks);
            *since = at;
        }
    }

    pub fn points(&self) -> Vec<SpeedPoint> {
        self.incarnations
            .values()
            .flat_map(IncarnationTimes::points)
            .collect()
    }

    pub fn containers(&self) -> Option<u32> {
        let reports = self.incarnations.values().next_back()?.reports.last();
        reports.map(|(.., containers)| *containers)
    }

    pub fn reports(&self) -> bool {
        self.incarnations.values().any(|it| !it.reports.is_empty())
    }

    /// Returns the median of a cost over the incarnations.
    pub fn usual(&self, of: impl Fn(&IncarnationTimes) -> Option<f64>) -> Option<f64> {
        median(self.incarnations.values().filter_map(of).collect())
    }

    pub fn ready_s(&self) -> Option<f64> {
        let members = self
            .incarnations
            .values()
            .flat_map(|it| it.members.values());
        let ready = members.filter_map(Member::ready_s);
        median(ready.collect())
    }

    fn times(&mut self, incarnation: Incarnation) -> &mut IncarnationTimes {
        self.incarnations.entry(incarnation).or_default()
    }
}

/// The observations of all jobs.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    pub jobs: BTreeMap<JobId, Seen>,
    /// Predicted and real remaining seconds of completed jobs.
    ends: Vec<(f64, f64)>,
}

impl Observed {
    pub fn starting_from(&mut self, cluster: &ClusterState) {
        for (id, job) in cluster.live() {
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
                incarnations: BTreeMap::new(),
                saved_step: job.checkpoint.as_ref().map_or(0, |it| it.step),
                task_s: Vec::new(),
                busy: BTreeMap::new(),
                steps_total: None,
            };
            if let Some(partition) = &job.partition {
                let known = seen.times(partition.incarnation);
                let starting = partition.phase == PartitionPhase::Starting;
                known.requested = starting.then_some(partition.requested_at);
                known.containers = u32::try_from(partition.containers.len()).unwrap_or(u32::MAX);
            }
            self.jobs.insert(id.clone(), seen);
        }
    }

    pub fn read(&mut self, fact: &Fact<'_>) {
        let at = fact.at;
        match fact.event() {
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
                    *seen.times(event.incarnation) = IncarnationTimes {
                        requested: Some(at),
                        containers: event.containers,
                        from_step,
                        ..IncarnationTimes::default()
                    };
                });
            }
            Some(Event::ContainerStarted(event)) => {
                self.on(&event.container.job, |seen| {
                    let times = seen.times(event.container.incarnation);
                    times.member(event.container.rank).started = Some(at);
                    times.ran += 1;
                    if times.ran == times.containers {
                        times.started.get_or_insert(at);
                    }
                });
            }
            Some(Event::ContainerReady(event)) => self.on(&event.container.job, |seen| {
                let member = seen
                    .times(event.container.incarnation)
                    .member(event.container.rank);
                member.ready.get_or_insert(at);
            }),
            Some(Event::ContainerExited(event)) => {
                self.on(&event.container.job, |seen| {
                    let times = seen.times(event.container.incarnation);
                    times.member(event.container.rank).exited = Some(at);
                    if !times.over {
                        times.exited = Some(at);
                    }
                    if times.stop_asked.is_none() && event.exit_code.or(event.signal).is_some() {
                        times.ended_itself.get_or_insert(at);
                    }
                });
            }
            Some(Event::PartitionResizeRequested(event)) => {
                self.on(&event.job, |seen| {
                    let times = seen.times(event.incarnation);
                    for rank in &event.join {
                        times.member(*rank).asked = Some(at);
                    }
                    for rank in &event.leave {
                        times.member(*rank).leave_asked = Some(at);
                    }
                });
            }
            // Late reports of a returned node are no costs of the incarnation.
            Some(Event::PartitionStopped(event)) => {
                self.on(&event.job, |seen| seen.times(event.incarnation).over = true);
            }
            Some(Event::JobCompleted(event)) => self.ended(&event.job, at),
            _ => self.work(fact),
        }
    }

    fn ended(&mut self, job: &JobId, at: Timestamp) {
        let seen = self.jobs.get(job);
        let last =
            seen.and_then(|seen| seen.incarnations.values().next_back().zip(seen.steps_total));
        if let Some((times, total)) = last {
            times.ends(total, at, &mut self.ends);
        }
        let old = self.ends.len().saturating_sub(MOST_ENDS);
        self.ends.drain(..old);
    }

    /// Draws the ratio of real to predicted time from the most similar predictions; `None` if too few
    /// are known.
    pub fn late(&self, expected_s: f64, random: &mut Random) -> Option<f64> {
        let off = |case: &(f64, f64)| libm::log(case.0 / expected_s.max(1e-3)).abs();
        let mut near: Vec<&(f64, f64)> = self.ends.iter().collect();
        near.sort_by(|a, b| off(a).total_cmp(&off(b)));
        near.truncate(NEAREST_ENDS);
        (near.len() == NEAREST_ENDS).then(|| {
            let (said_s, was_s) = random.choose(&near);
            was_s / said_s
        })
    }

    fn work(&mut self, fact: &Fact<'_>) {
        let at = fact.at;
        match fact.event() {
            Some(Event::CheckpointRequested(event)) => self.on(&event.job, |seen| {
                seen.times(event.incarnation).save_asked = Some(at);
            }),
            Some(Event::CheckpointSaved(event)) => self.on(&event.job, |seen| {
                seen.saved_step = event.step;
                let times = seen.times(event.incarnation);
                if times.save_asked.is_some() {
                    times.saved.get_or_insert(at);
                }
            }),
            Some(Event::PartitionStopRequested(event)) => self.on(&event.job, |seen| {
                seen.times(event.incarnation).stop_asked = Some(at);
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
                let times = seen.times(event.incarnation);
                times.reports.push((at, event.step, event.containers));
            }),
            _ => {}
        }
    }

    fn on(&mut self, job: &JobId, note: impl FnOnce(&mut Seen)) {
        if let Some(seen) = self.jobs.get_mut(job) {
            note(seen);
        }
    }

    pub fn usual(&self, like: &Seen, of: impl Fn(&IncarnationTimes) -> Option<f64>) -> Option<f64> {
        let jobs = self.jobs.values();
        let alike = jobs.filter(|seen| seen.mode == like.mode && seen.served == like.served);
        median(
            alike
                .flat_map(|seen| seen.incarnations.values())
                .filter_map(of)
                .collect(),
        )
    }
}
