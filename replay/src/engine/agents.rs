//! Model agents: what a node agent would report, from a model of each job.
//!
//! A started gang works at speed(n); asked to save it makes no progress for the time an
//! adjustment takes, then saves and (mode `exit`) ends. Stopped containers end at once. A gang
//! that is killed goes on from the work of its last checkpoint.

use std::collections::BTreeMap;

use dormouse_messages::events::{CheckpointSaved, ContainerExited, ContainerStarted};
use dormouse_messages::ids::{ContainerId, Incarnation, Rank};
use dormouse_messages::job::CheckpointMode;
use dormouse_messages::{Event, Fold, JobId, NodeId, Recorded, Timestamp};
use dormouse_projections::shared::{ClusterState, Life};

/// How fast a gang of n containers works, in seconds of one container's work per second.
#[derive(Debug, Clone, PartialEq)]
pub enum Scaling {
    /// n.
    Linear,
    /// The speed of 1, 2, … containers; the last holds beyond.
    Table(Vec<f64>),
    /// n · e^(log2 n), e the efficiency of one doubling.
    Efficiency(f64),
}

impl Scaling {
    /// The speed of `containers` containers.
    #[must_use]
    pub fn speed(&self, containers: u32) -> f64 {
        let n = f64::from(containers);
        match self {
            Self::Linear => n,
            Self::Table(speeds) => {
                let index = usize::try_from(containers)
                    .unwrap_or(usize::MAX)
                    .saturating_sub(1);
                speeds.get(index).or(speeds.last()).copied().unwrap_or(n)
            }
            Self::Efficiency(per_doubling) if containers > 0 => n * per_doubling.powf(n.log2()),
            Self::Efficiency(_) => 0.0,
        }
    }
}

/// How a job behaves when it runs.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelJob {
    /// Its work, in seconds of one container.
    pub work_container_s: f64,
    /// How it scales.
    pub scaling: Scaling,
    /// Without progress, from the request of an adjustment until it is saved.
    pub adjustment_s: f64,
    /// From the start request until its containers run.
    pub start_s: f64,
    /// Each life that ends, whatever was asked, with this exit code, after so many seconds.
    pub fails_after_s: Option<f64>,
}

impl ModelJob {
    /// Linear, without costs.
    #[must_use]
    pub fn linear(work_container_s: f64) -> Self {
        Self {
            work_container_s,
            scaling: Scaling::Linear,
            adjustment_s: 0.0,
            start_s: 0.0,
            fails_after_s: None,
        }
    }
}

/// What an agent is due to report.
#[derive(Debug, Clone, PartialEq)]
enum Due {
    Started,
    Saved,
    Ended(i32),
}

/// The progress of a job's work.
#[derive(Debug, Clone, Default)]
struct Work {
    saved: f64,
    done: f64,
    working_since: Option<Timestamp>,
    speed: f64,
}

impl Work {
    fn pause(&mut self, now: Timestamp) {
        if let Some(since) = self.working_since.take() {
            self.done += now.seconds_since(since) * self.speed;
        }
    }
}

/// All agents of a simulated cluster.
#[derive(Default)]
pub struct ModelAgents {
    state: ClusterState,
    models: BTreeMap<JobId, ModelJob>,
    work: BTreeMap<JobId, Work>,
    due: BTreeMap<(Timestamp, u64), (JobId, Incarnation, Due)>,
    counter: u64,
}

impl ModelAgents {
    /// How the job `id` behaves.
    pub fn model(&mut self, id: JobId, model: ModelJob) {
        self.models.insert(id, model);
    }

    /// When something is due to be reported.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.due.keys().next().map(|(at, _)| *at)
    }

    /// A node dies: what it ran works no more.
    pub fn lose(&mut self, node: &NodeId) {
        let on_node = |life: &Life| life.containers.values().any(|c| c.place.node == *node);
        let jobs = self.state.jobs.iter();
        let hit = jobs.filter(|(_, job)| job.life.as_ref().is_some_and(on_node));
        for (id, _) in hit {
            if let Some(work) = self.work.get_mut(id) {
                work.working_since = None;
                work.done = work.saved;
            }
        }
    }

    fn schedule(&mut self, at: Timestamp, id: &JobId, incarnation: Incarnation, due: Due) {
        self.counter += 1;
        self.due
            .insert((at, self.counter), (id.clone(), incarnation, due));
    }

    fn model_of(&self, id: &JobId) -> ModelJob {
        // A job without a model works for a minute.
        self.models
            .get(id)
            .cloned()
            .unwrap_or_else(|| ModelJob::linear(60.0))
    }

    /// Takes note of what is asked.
    pub fn fold(&mut self, recorded: &Recorded, now: Timestamp) {
        self.state.evolve(recorded);
        match recorded.event() {
            Some(Event::PartitionStartRequested(event)) => {
                let model = self.model_of(&event.job);
                let at = after(now, model.start_s);
                self.schedule(at, &event.job, event.incarnation, Due::Started);
            }
            Some(Event::CheckpointRequested(event)) => {
                let model = self.model_of(&event.job);
                let work = self.work.entry(event.job.clone()).or_default();
                work.pause(now);
                let at = after(now, model.adjustment_s);
                self.schedule(at, &event.job, event.incarnation, Due::Saved);
            }
            Some(Event::PartitionStopRequested(event)) => {
                self.schedule(now, &event.job, event.incarnation, Due::Ended(143));
            }
            Some(Event::JobCompleted(event)) => {
                self.work.remove(&event.job);
            }
            _ => {}
        }
    }

    /// What is due at `now`, as events of the nodes.
    pub fn due(&mut self, now: Timestamp) -> Vec<(NodeId, Event)> {
        let mut events = Vec::new();
        while let Some(entry) = self.due.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let (id, incarnation, due) = entry.remove();
            let life = self.state.jobs.get(&id).and_then(|job| job.life.clone());
            let Some(life) = life.filter(|life| life.incarnation == incarnation) else {
                continue;
            };
            match due {
                Due::Started => self.started(&id, &life, now, &mut events),
                Due::Saved => self.saved(&id, &life, now, &mut events),
                Due::Ended(code) => self.ended(&id, &life, code, now, &mut events),
            }
        }
        events
    }

    fn started(
        &mut self,
        id: &JobId,
        life: &Life,
        now: Timestamp,
        events: &mut Vec<(NodeId, Event)>,
    ) {
        for (rank, container) in &life.containers {
            if !container.holds_room() {
                continue;
            }
            let event = ContainerStarted {
                container: container_id(id, life, *rank),
                job: id.clone(),
                incarnation: life.incarnation,
                rank: *rank,
                node: container.place.node.clone(),
                pid: 0,
            };
            events.push((container.place.node.clone(), Event::from(event)));
        }
        let model = self.model_of(id);
        let containers = u32::try_from(life.containers.len()).unwrap_or(u32::MAX);
        let work = self.work.entry(id.clone()).or_default();
        work.speed = model.scaling.speed(containers);
        work.working_since = Some(now);
        let left_s = (model.work_container_s - work.done).max(0.0) / work.speed;
        match model.fails_after_s.filter(|fails| *fails < left_s) {
            Some(fails) => self.schedule(after(now, fails), id, life.incarnation, Due::Ended(1)),
            None => self.schedule(after(now, left_s), id, life.incarnation, Due::Ended(0)),
        }
    }

    fn saved(
        &mut self,
        id: &JobId,
        life: &Life,
        now: Timestamp,
        events: &mut Vec<(NodeId, Event)>,
    ) {
        let work = self.work.entry(id.clone()).or_default();
        work.pause(now);
        work.saved = work.done;
        let Some(chief) = life.containers.values().next() else {
            return;
        };
        let event = CheckpointSaved {
            job: id.clone(),
            incarnation: life.incarnation,
            node: chief.place.node.clone(),
            uri: format!("model:{id}/{}", life.incarnation),
            step: 0,
            bytes: 0,
            duration_ms: 0,
        };
        events.push((chief.place.node.clone(), Event::from(event)));
        let mode = self.state.jobs.get(id).map(|job| job.mode);
        if mode == Some(CheckpointMode::Exit) {
            self.ended(id, life, 0, now, events);
        }
    }

    fn ended(
        &mut self,
        id: &JobId,
        life: &Life,
        code: i32,
        now: Timestamp,
        events: &mut Vec<(NodeId, Event)>,
    ) {
        // A gang that was asked to save does not end by itself: it works no more.
        if code != 143
            && matches!(
                life.phase,
                dormouse_projections::shared::LifePhase::Saving { saved: None, .. }
            )
            && self
                .work
                .get(id)
                .is_some_and(|work| work.working_since.is_none())
            && !events.iter().any(
                |(_, event)| matches!(event, Event::CheckpointSaved(saved) if saved.job == *id),
            )
        {
            return;
        }
        let work = self.work.entry(id.clone()).or_default();
        work.pause(now);
        if code != 0 {
            work.done = work.saved;
        }
        for (rank, container) in &life.containers {
            if !container.holds_room() {
                continue;
            }
            let event = ContainerExited {
                container: container_id(id, life, *rank),
                job: id.clone(),
                incarnation: life.incarnation,
                rank: *rank,
                node: container.place.node.clone(),
                exit_code: Some(code),
                signal: None,
                out_of_memory: false,
                reason: None,
                evicted: false,
            };
            events.push((container.place.node.clone(), Event::from(event)));
        }
    }
}

fn container_id(id: &JobId, life: &Life, rank: Rank) -> ContainerId {
    ContainerId {
        job: id.clone(),
        incarnation: life.incarnation,
        rank,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a simulated time stays far below 285 years"
)]
fn after(now: Timestamp, seconds: f64) -> Timestamp {
    Timestamp::from_micros(now.as_micros() + (seconds * 1e6).ceil() as i64)
}
