//! Forks a log: collects the state that services, agents and measures need to continue there.
//!
//! 1. The log is read for the jobs' costs ([`super::observed`]), then leads the model agents
//!    ([`crate::engine::ModelAgents::observe`]), which the fork copies.
//! 2. At the end of the log the agents know the work of each completed job. An unfinished job's work
//!    follows from its total steps; without a total its end is unknown.
//! 3. An incarnation that failed on the log fails on the fork after the same work.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dormouse_admission::AdmissionState;
use dormouse_messages::policy::Value;
use dormouse_messages::{Event, JobId, KeptFact, LogClock, Recorded, Sequence, Timestamp};
use dormouse_state::ClusterState;

use super::incarnation::number;
use super::models::Models;
use super::observed::Observed;
use super::work_estimate::{Course, Work};
use crate::audit::Audit;
use crate::engine::{Faults, Ground, ModelAgents};
use crate::history::changes::Changes;
use crate::history::fork::Fork;
use crate::history::slice::States;
use crate::simulate::Measures;

/// The delay of reports that are overdue at the head.
const OVERDUE_MS: u64 = 1_000;

/// The position of a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForkAt {
    Sequence(Sequence),
    /// After the last event of this time.
    Time(Timestamp),
}

impl ForkAt {
    fn is_behind(self, kept: &KeptFact) -> bool {
        match self {
            Self::Sequence(at) => kept.fact().sequence <= at,
            Self::Time(at) => kept.at() <= at,
        }
    }
}

/// A whole log, or a log that begins with states.
#[derive(Debug, Default)]
pub struct History {
    begun: Option<States>,
    events: Vec<KeptFact>,
    clock: LogClock,
    observed: Observed,
    values_speed: bool,
}

/// The reason for a job's exclusion from comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unknown {
    /// Unfinished, without progress reports.
    NoProgress,
    /// Unfinished, without a total number of steps.
    NoStepsTotal,
}

/// A fork of a log.
pub struct Forked<'a> {
    pub sequence: Sequence,
    pub now: Timestamp,
    pub span: (Timestamp, Timestamp),
    pub before: &'a [KeptFact],
    pub after: &'a [KeptFact],
    pub unknown: BTreeMap<JobId, Unknown>,
    pub models: Models,
    ground: Ground,
    nothing_until: Option<Timestamp>,
    pub(super) measures: Measures,
    work: Work,
    observed: &'a Observed,
}

impl History {
    /// Begins with the states of a slice.
    #[must_use]
    pub fn starting_from(states: States) -> Self {
        let mut history = Self::default();
        history.observed.starting_from(&states.fork.cluster);
        history.clock = states.fork.cluster.clock.clone();
        history.begun = Some(states);
        history
    }

    /// Reads the next event.
    pub fn read(&mut self, recorded: &Arc<Recorded>) {
        let kept = self.clock.keep(recorded);
        self.observed.read(&kept.fact());
        self.events.push(kept);
    }

    /// Notes the changes that will be compared: if a policy values speed, jobs report progress.
    pub fn compares(&mut self, variants: &[Changes]) {
        self.values_speed |= variants.iter().any(Changes::values_speed);
    }

    /// Returns the log's time for a wall-clock time.
    #[must_use]
    pub fn time_at(&self, wall: Timestamp) -> Timestamp {
        self.clock.time_at(wall)
    }

    /// Drops all later events.
    #[must_use]
    pub fn up_to(self, at: ForkAt) -> Self {
        let mut history = self.begun.map_or_else(Self::default, Self::starting_from);
        history.values_speed = self.values_speed;
        let events = self.events.iter().take_while(|kept| at.is_behind(kept));
        events.for_each(|kept| history.read(kept.recorded()));
        history
    }

    /// Forks the log.
    #[must_use]
    pub fn fork(&self, at: ForkAt) -> Forked<'_> {
        let split = self.events.partition_point(|kept| at.is_behind(kept));
        let (before, after) = self.events.split_at(split);
        let first = self.events.first().map(KeptFact::at);
        let begin = self.begun.as_ref().map(|states| states.fork.now);
        let start = begin.or(first).unwrap_or_default();
        let end = self.events.last().map_or(start, KeptFact::at);
        let mut measures = Measures::new(f64::MAX, start);
        let mut fork = Fork::default();
        let mut audit = Some(Audit::default());
        if let Some(states) = &self.begun {
            measures.starting_from(&states.fork.cluster);
            fork = states.fork.clone();
            audit = None;
        }
        let mut own = BTreeMap::new();
        for kept in before {
            let recorded = kept.recorded();
            fork.read(recorded);
            measures.read(&kept.fact());
            own.insert(recorded.writer, recorded.sequence);
            if let Some(audit) = &mut audit {
                audit.read(recorded);
            }
        }
        let now = fork.now.max(start);
        let submissions = self.events.iter().filter_map(|it| match it.event() {
            Some(Event::SubmissionReceived(event)) => Some(event.ingress_sequence),
            Some(Event::ServiceMeasured(event)) => event.ingress_sequence,
            _ => None,
        });
        let known = fork.admission.intake.values().map(|stand| stand.last);
        let ingress = submissions.chain(known).max().unwrap_or(0);
        let mut models = Models::of(&self.observed);
        let own_value = fork.cluster.policy.objective.value;
        models.report = self.values_speed || own_value == Value::Speed;
        let work = self.lead(&models, split);
        let ground = Ground {
            sequence: fork.sequence,
            now,
            admission: fork.admission,
            cluster: fork.cluster,
            autoscaler: fork.autoscaler,
            own,
            agents: ModelAgents::default(),
            ingress,
            audit,
        };
        Forked {
            sequence: ground.sequence,
            now,
            span: (start, end),
            before,
            after,
            unknown: self.unknown(&work),
            models,
            ground,
            nothing_until: None,
            measures,
            work,
            observed: &self.observed,
        }
    }

    fn unknown(&self, work: &Work) -> BTreeMap<JobId, Unknown> {
        let jobs = self.observed.jobs.iter();
        let unknown = jobs.filter(|(id, seen)| !seen.served && !work.all.contains_key(*id));
        let why = unknown.map(|(id, seen)| {
            if seen.reports() {
                (id.clone(), Unknown::NoStepsTotal)
            } else {
                (id.clone(), Unknown::NoProgress)
            }
        });
        why.collect()
    }

    fn lead(&self, models: &Models, split: usize) -> Work {
        let mut work = Work::default();
        let mut agents = ModelAgents::default();
        let begun = self.begun.as_ref().map(|states| &states.fork);
        for id in self.observed.jobs.keys() {
            agents.model(id.clone(), models.model(id, &self.observed));
        }
        if let Some(fork) = begun {
            agents.starting_from(&fork.cluster, fork.now);
        }
        let mut left: BTreeMap<JobId, f64> = BTreeMap::new();
        for (index, kept) in self.events.iter().enumerate() {
            if index == split {
                work.agents = agents.clone();
            }
            let (now, recorded) = (kept.at(), kept.recorded());
            if let Some(died) = agents.observe(recorded, now) {
                work.failures.entry(died.job).or_default().push(died.done);
            }
            match recorded.event() {
                Some(Event::Progress(event)) if event.steps_total > 0 => {
                    let done = agents.done(&event.job, now).unwrap_or(0.0);
                    let steps = event.steps_total.saturating_sub(event.step);
                    left.insert(event.job.clone(), done + number(steps));
                }
                Some(Event::JobCompleted(event)) => {
                    if let Some(done) = agents.done(&event.job, now) {
                        work.all.insert(event.job.clone(), done);
                    }
                }
                _ => {}
            }
            agents.fold(recorded, now, &mut Faults::none());
        }
        if split >= self.events.len() {
            work.agents = agents;
        }
        for (job, all) in left {
            work.all.entry(job).or_insert(all);
        }
        for (id, seen) in &self.observed.jobs {
            if seen.tasks.is_some() {
                work.all.insert(
                    id.clone(),
                    models.model(id, &self.observed).work_container_s,
                );
            }
        }
        work
    }
}

impl<'a> Forked<'a> {
    /// Moves the fork to a later time without events; overdue reports are still to come.
    #[must_use]
    pub fn later(mut self, now: Timestamp) -> Self {
        self.now = self.now.max(now);
        self.ground.now = self.now;
        self.nothing_until = Some(self.now.plus_ms(OVERDUE_MS));
        self
    }

    /// Returns the cluster's state at the fork.
    #[must_use]
    pub fn cluster(&self) -> &ClusterState {
        &self.ground.cluster
    }

    /// Returns admission's state at the fork.
    #[must_use]
    pub fn admission(&self) -> &AdmissionState {
        &self.ground.admission
    }

    /// Returns the number of the next submission.
    #[must_use]
    pub fn next_ingress(&self) -> u64 {
        self.ground.ingress + 1
    }

    /// Counts the jobs that completed on the log.
    #[must_use]
    pub fn completed(&self) -> u64 {
        let all = self.before.iter().chain(self.after);
        let completed = all.filter(|it| matches!(it.event(), Some(Event::JobCompleted(_))));
        completed.count() as u64
    }

    /// Returns the course by other curves.
    #[must_use]
    pub fn with(&self, history: &History, models: Models) -> Course<'a> {
        let work = history.lead(&models, self.before.len());
        Course {
            models,
            work,
            observed: self.observed,
            imagined: BTreeMap::new(),
        }
    }

    /// Returns the course by the most likely curves.
    #[must_use]
    pub fn likely(&self) -> Course<'a> {
        Course {
            models: self.models.clone(),
            work: self.work.clone(),
            observed: self.observed,
            imagined: BTreeMap::new(),
        }
    }

    /// Returns the state for the engine, with the agents of a course.
    #[must_use]
    pub fn ground(&self, by: &Course<'_>) -> Ground {
        let mut ground = self.ground.clone();
        ground.agents = by.agents();
        if let Some(until) = self.nothing_until {
            ground.agents.postpone(until);
        }
        ground
    }

    /// Returns the jobs that live at the fork or come later.
    #[must_use]
    pub fn live(&self) -> BTreeSet<&JobId> {
        let there = self.ground.cluster.queued.keys();
        let there = there.chain(self.ground.cluster.jobs.keys());
        let later = self.after.iter().filter_map(|it| match it.event() {
            Some(Event::JobAdmitted(event)) => Some(&event.job),
            _ => None,
        });
        there.chain(later).collect()
    }

    /// Returns the tenants of operators' settings and of jobs, at the fork, before it and after it.
    #[must_use]
    pub fn tenants(&self) -> BTreeSet<&str> {
        let cluster = &self.ground.cluster;
        let configured = cluster.tenants.iter().map(|(name, _)| name.as_str());
        let granted = cluster.tenants.grants.iter().map(|(name, _)| name.as_str());
        let jobs = cluster.queued.keys().chain(cluster.jobs.keys());
        let events = self.before.iter().chain(self.after);
        let named = events.filter_map(|it| match it.event()? {
            Event::JobAdmitted(event) => Some(event.job.tenant()),
            Event::TenantConfigured(event) => Some(event.tenant.as_str()),
            Event::TenantGranted(event) => Some(event.tenant.as_str()),
            _ => None,
        });
        let settings = configured.chain(granted);
        settings
            .chain(jobs.map(JobId::tenant))
            .chain(named)
            .collect()
    }
}
