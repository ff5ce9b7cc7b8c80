//! Model agents: what the node agents would report, from a model of each job.
//!
//! 1. A gang that is asked to start runs on every node of it that lives, and works at speed(n);
//!    a life that resumes from a checkpoint works only after the time that a resume costs.
//! 2. Asked to save it makes no progress, saves, and (mode `exit`) ends. It may fail or hang.
//! 3. Asked to stop it ends at once. What it did since its last checkpoint is lost.
//! 4. A node that dies takes its containers with it. What was asked of it until it came back is
//!    void. One that is cut off does what [`super::ties`] says.
//! 5. A container of a task set runs what it is given ([`super::tasks`]) and leaves when asked.
//! 6. Of a partition that is resized in place, containers come and go ([`super::elastic`]).
//!
//! What is due is kept by time. Work that is interrupted makes a new plan, and what was due under
//! an older plan is void.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{
    CheckpointFailed, CheckpointSaved, ContainerExited, ContainerStarted, FailedTask,
    PlacementDecided, TasksAssigned, TasksEnded,
};
use dormouse_messages::ids::{ContainerId, Incarnation, Rank};
use dormouse_messages::job::CheckpointMode;
use dormouse_messages::{Event, JobId, NodeId, Recorded, TaskRanges, Timestamp};

use super::faults::{Faults, Saving};
use super::model::ModelJob;
use super::tasks::{Queue, fail_one};
use super::ties::{Missed, Ties};
use super::work::whole;
use super::world::World;

/// One life of a job.
pub(super) type LifeId = (JobId, Incarnation);

/// What an agent is due to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Due {
    Started,
    Joined(Rank),
    Ready(Rank),
    Left(Rank),
    Ended {
        code: i32,
        plan: u64,
    },
    Saved,
    SaveFailed,
    Stopped,
    TasksEnded(Rank),
    Drained,
    /// Under this plan.
    Progress(u64),
}

/// A container, as its node knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Container {
    Asked,
    Runs,
}

/// The containers of a life that have not ended.
#[derive(Debug, Clone, Default)]
pub(super) struct Gang {
    pub(super) containers: BTreeMap<Rank, (NodeId, Container)>,
    /// How many it was started with.
    pub(super) size: u32,
    pub(super) resumes: bool,
    pub(super) stopping: bool,
    /// Whether its containers come and go.
    pub(super) in_place: bool,
    /// Whether they are replicas, which work on no end.
    pub(super) served: bool,
    /// A task set's: it takes nothing more.
    pub(super) draining: bool,
    pub(super) tasks: BTreeMap<Rank, Queue>,
    /// Whether all of it ran once, on a log.
    pub(super) begun: bool,
}

/// A job that runs.
#[derive(Debug, Clone)]
pub(super) struct Simulated {
    pub(super) model: ModelJob,
    mode: CheckpointMode,
    pub(super) in_place: bool,
    pub(super) served: bool,
    /// How long one task takes, of a task set.
    pub(super) task_s: Option<f64>,
    /// Work done, and how much of it a checkpoint holds, in seconds of one container.
    pub(super) done: f64,
    pub(super) saved: f64,
    /// Since when, and how fast, it works.
    pub(super) working: Option<(Timestamp, f64)>,
    /// What is due under an older plan is void.
    pub(super) plan: u64,
    /// How many of its failures have happened.
    pub(super) failed: usize,
    /// Its work when its program succeeded, on a log.
    pub(super) ended: Option<f64>,
}

impl Simulated {
    /// A job that has done nothing yet.
    #[expect(clippy::cast_precision_loss, reason = "at most a million tasks")]
    pub(super) fn of(
        model: ModelJob,
        mode: CheckpointMode,
        in_place: bool,
        served: bool,
        tasks: Option<u64>,
    ) -> Self {
        Self {
            task_s: tasks.map(|tasks| model.work_container_s / tasks.max(1) as f64),
            model,
            mode,
            in_place,
            served,
            done: 0.0,
            saved: 0.0,
            working: None,
            plan: 0,
            failed: 0,
            ended: None,
        }
    }

    pub(super) fn pause(&mut self, now: Timestamp) {
        self.plan += 1;
        self.done = self.done_at(now);
        self.working = None;
    }

    /// Work done by then.
    pub(super) fn done_at(&self, now: Timestamp) -> f64 {
        let since = self.working;
        let more = since.map(|(since, speed)| now.seconds_since(since).max(0.0) * speed);
        self.done + more.unwrap_or(0.0)
    }

    /// Work done by then, less that of half a microsecond: when it will have been done is rounded
    /// up.
    pub(super) fn just_below(&self, now: Timestamp) -> f64 {
        let speed = self.working.map_or(0.0, |(_, speed)| speed);
        (self.done_at(now) - speed * 5e-7).max(0.0)
    }

    pub(super) fn die(&mut self) {
        self.plan += 1;
        self.working = None;
        self.done = self.saved;
    }
}

/// All agents of a simulated cluster.
#[derive(Debug, Clone, Default)]
pub struct ModelAgents {
    pub(super) models: BTreeMap<JobId, ModelJob>,
    pub(super) jobs: BTreeMap<JobId, Simulated>,
    pub(super) placed: BTreeMap<LifeId, Vec<(Rank, NodeId)>>,
    pub(super) gangs: BTreeMap<LifeId, Gang>,
    pub(super) due: BTreeMap<(Timestamp, u64), (LifeId, Due)>,
    scheduled: u64,
    pub(super) dead: BTreeSet<NodeId>,
    /// How often the model itself gave each job a reason to fail.
    blame: BTreeMap<JobId, u32>,
    pub(super) ties: Ties,
    pub(super) world: World,
}

/// A start that takes so long may be given up: the checkpointer waits for two minutes.
const SLOW_START_S: f64 = 100.0;

impl ModelAgents {
    /// How often the model itself gave a job a reason to fail: a life that died, a start that took too
    /// long. What fails more often was failed by the platform.
    pub fn blame(&self, id: &JobId) -> u32 {
        self.blame.get(id).copied().unwrap_or(0)
    }

    fn note_blame(&mut self, id: &JobId, times: usize) {
        let times = u32::try_from(times).unwrap_or(u32::MAX);
        if times > 0 {
            *self.blame.entry(id.clone()).or_default() += times;
        }
    }

    /// How the job `id` behaves.
    pub fn model(&mut self, id: JobId, model: ModelJob) {
        self.models.insert(id, model);
    }

    /// When something is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.due.keys().next().map(|(at, _)| *at)
    }

    /// A node dies, with all that it runs or was asked to run: its agent ends what is left of
    /// that when it comes back, before it does anything else.
    pub fn lose(&mut self, node: &NodeId, now: Timestamp) {
        self.dead.insert(node.clone());
        self.ties.die(node);
        drop(self.end_all(node, |_| true, now));
    }

    /// The node's lease has ended: what was asked of it and did not start is void.
    pub fn lease_ends(&mut self, node: &NodeId, void: bool, now: Timestamp) {
        self.dead.insert(node.clone());
        if void {
            drop(self.end_all(node, |container| container == Container::Asked, now));
        }
    }

    /// Containers of a node end, whatever their jobs do; what would be told of them.
    pub(super) fn end_all(
        &mut self,
        node: &NodeId,
        which: impl Fn(Container) -> bool,
        now: Timestamp,
    ) -> Vec<Event> {
        let mut told = Vec::new();
        for (life, gang) in &mut self.gangs {
            let goes = |(at, container): &(NodeId, Container)| at == node && which(*container);
            let ranks = gang.containers.iter().filter(|(_, it)| goes(it));
            let ranks: Vec<Rank> = ranks.map(|(rank, _)| *rank).collect();
            for rank in &ranks {
                gang.containers.remove(rank);
                told.push(evicted(life, *rank, node.clone()));
            }
            if let Some(job) = self.jobs.get_mut(&life.0).filter(|_| !ranks.is_empty()) {
                let goes_on = gang.in_place && gang.containers.contains_key(&Rank(0));
                match goes_on {
                    // The others wait for the change of the members.
                    true => job.pause(now),
                    false => job.die(),
                }
            }
        }
        self.gangs
            .retain(|_, gang| gang.in_place || !gang.containers.is_empty());
        told.iter().for_each(|event| self.world.happens(event));
        told
    }

    /// A node's agent starts.
    pub fn join(&mut self, node: &NodeId) {
        self.dead.remove(node);
    }

    /// The training jobs that have begun, each with the time from which it works and how fast, where it
    /// does.
    pub fn speeds(&self) -> impl Iterator<Item = (&JobId, Option<(Timestamp, f64)>)> {
        let training = self.jobs.iter().filter(|(_, job)| !job.served);
        training.map(|(id, job)| (id, job.working))
    }

    pub(super) fn schedule(&mut self, at: Timestamp, life: LifeId, due: Due) {
        self.scheduled += 1;
        self.due.insert((at, self.scheduled), (life, due));
    }

    /// Takes note of what is asked.
    pub fn fold(&mut self, recorded: &Recorded, now: Timestamp, faults: &mut Faults) {
        self.world.fold(recorded);
        match recorded.event() {
            Some(Event::JobAdmitted(event)) => {
                // A job without a model works for a minute.
                let model = self.models.remove(&event.job);
                let model = model.unwrap_or_else(|| ModelJob::linear(60.0));
                let tasks = event.spec.tasks.map(|tasks| u64::from(tasks.count));
                let spec = &event.spec;
                let (in_place, served) = (spec.is_in_place(), spec.service.is_some());
                let job = Simulated::of(model, spec.checkpoint.mode, in_place, served, tasks);
                self.jobs.insert(event.job.clone(), job);
            }
            Some(Event::PlacementDecided(event)) => self.place(event),
            Some(Event::PartitionStartRequested(event)) => {
                let life = (event.job.clone(), event.incarnation);
                self.start(life, event.resumed_from.is_some(), now, faults);
            }
            Some(Event::CheckpointRequested(event)) => {
                let life = (event.job.clone(), event.incarnation);
                self.save(life, now, faults);
            }
            Some(Event::PartitionKept(event)) => {
                self.work((event.job.clone(), event.incarnation), 0.0, now, faults);
            }
            Some(Event::PartitionStopRequested(event)) => {
                let life = (event.job.clone(), event.incarnation);
                let job = self.jobs.get(&life.0);
                let stop_s = job.map_or(0.0, |job| job.model.stop_s(life.1));
                if let Some(gang) = self.gangs.get_mut(&life) {
                    gang.stopping = true;
                    self.schedule(after(now, stop_s), life, Due::Stopped);
                }
            }
            Some(Event::PartitionResizeRequested(event)) => self.resize(event, now, faults),
            Some(Event::PartitionLeaveRequested(event)) => self.leave(event, now),
            Some(Event::PartitionResized(event)) => self.resized(event, now, faults),
            Some(Event::TasksAssigned(event)) => self.give(event, now),
            Some(Event::JobCompleted(event)) => self.forget(&event.job),
            Some(Event::JobFailed(event)) => self.forget(&event.job),
            Some(Event::JobCancelled(event)) => self.forget(&event.job),
            _ => {}
        }
    }

    fn place(&mut self, event: &PlacementDecided) {
        for container in &event.create {
            let life = (container.job.clone(), container.incarnation);
            let places = self.placed.entry(life).or_default();
            places.push((container.rank, container.node.clone()));
        }
    }

    /// The job has ended; what it still runs is left for the audit to find.
    fn forget(&mut self, id: &JobId) {
        self.jobs.remove(id);
        let lives = (id.clone(), Incarnation(0))..=(id.clone(), Incarnation(u32::MAX));
        let placed: Vec<LifeId> = self
            .placed
            .range(lives)
            .map(|(life, _)| life.clone())
            .collect();
        for life in placed {
            self.placed.remove(&life);
        }
        self.gangs
            .retain(|(job, _), gang| job != id || !gang.containers.is_empty());
    }

    fn start(&mut self, life: LifeId, resumes: bool, now: Timestamp, faults: &mut Faults) {
        let earlier = (life.0.clone(), Incarnation(0))..life.clone();
        let earlier: Vec<LifeId> = self
            .placed
            .range(earlier)
            .map(|(life, _)| life.clone())
            .collect();
        for life in earlier {
            self.placed.remove(&life);
        }
        let (in_place, served) = self
            .jobs
            .get(&life.0)
            .map_or((false, false), |job| (job.in_place, job.served));
        let places = self.placed.remove(&life).unwrap_or_default();
        let containers = places
            .into_iter()
            .map(|(rank, node)| (rank, (node, Container::Asked)));
        let mut containers: BTreeMap<_, _> = containers.collect();
        let size = u32::try_from(containers.len()).unwrap_or(u32::MAX);
        containers.retain(|_, (node, _)| !self.dead.contains(node));
        let gang = Gang {
            containers,
            size,
            resumes,
            in_place,
            served,
            ..Gang::default()
        };
        self.gangs.insert(life.clone(), gang);
        let job = self.jobs.get(&life.0);
        let start_s = job.map_or(0.0, |job| job.model.start_s(life.1));
        let start_s = start_s + faults.start_delay_s();
        self.note_blame(&life.0, usize::from(start_s > SLOW_START_S));
        self.schedule(after(now, start_s), life, Due::Started);
    }

    fn save(&mut self, life: LifeId, now: Timestamp, faults: &mut Faults) {
        let Some(job) = self.jobs.get_mut(&life.0) else {
            return;
        };
        if job.task_s.is_some() {
            // Nothing is saved, so nothing fails; a task may take longer than the grace.
            let leaves = faults.saving() != Saving::Hangs;
            let at = after(now, job.model.save_s(life.1));
            if let Some(gang) = self.gangs.get_mut(&life).filter(|_| leaves) {
                gang.draining = true;
                self.schedule(at, life, Due::Drained);
            }
            return;
        }
        let chief = self
            .gangs
            .get(&life)
            .and_then(|it| it.containers.get(&Rank(0)));
        if chief.is_some_and(|(node, _)| !self.ties.hears(node)) {
            return;
        }
        let Some(job) = self.jobs.get_mut(&life.0) else {
            return;
        };
        job.pause(now);
        let saved_at = after(now, job.model.save_s(life.1));
        match faults.saving() {
            Saving::Saves => self.schedule(saved_at, life, Due::Saved),
            Saving::Fails => self.schedule(saved_at, life, Due::SaveFailed),
            Saving::Hangs => {}
        }
    }

    /// Containers that idle begin what they are given.
    fn give(&mut self, event: &TasksAssigned, now: Timestamp) {
        let life = (event.job.clone(), event.incarnation);
        let task_s = self.jobs.get(&life.0).and_then(|job| job.task_s);
        let (Some(task_s), Some(gang)) = (task_s, self.gangs.get_mut(&life)) else {
            return;
        };
        let mut begun = Vec::new();
        for assigned in &event.assigned {
            let place = gang.containers.get(&assigned.rank);
            if let Some((node, _)) = place.filter(|(node, _)| !self.ties.hears(node)) {
                let tasks = assigned.tasks.clone();
                let missed = Missed::Tasks(life.clone(), assigned.rank, tasks);
                self.ties.misses(node, missed);
                continue;
            }
            let queue = gang.tasks.entry(assigned.rank).or_default();
            begun.extend(queue.give(&assigned.tasks, now).map(|n| (assigned.rank, n)));
        }
        for (rank, tasks) in begun {
            self.run_tasks(&life, rank, tasks, task_s, now);
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "at most a million tasks")]
    pub(super) fn run_tasks(
        &mut self,
        life: &LifeId,
        rank: Rank,
        tasks: u64,
        task_s: f64,
        now: Timestamp,
    ) {
        let at = after(now, task_s * tasks as f64);
        self.schedule(at, life.clone(), Due::TasksEnded(rank));
    }

    /// A batch has ended in one container; it begins what waits, unless it is to leave.
    fn tasks_ended(
        &mut self,
        life: &LifeId,
        rank: Rank,
        now: Timestamp,
        faults: &mut Faults,
        events: &mut Vec<Event>,
    ) {
        let task_s = self.jobs.get(&life.0).and_then(|job| job.task_s);
        let gang = self.gangs.get_mut(life).filter(|gang| !gang.stopping);
        let (Some(task_s), Some(gang)) = (task_s, gang) else {
            return;
        };
        let (Some((node, _)), Some(queue)) =
            (gang.containers.get(&rank), gang.tasks.get_mut(&rank))
        else {
            return;
        };
        let mut completed = queue.ended();
        let failed = match faults.task_fails() {
            true => fail_one(&mut completed),
            false => Vec::new(),
        };
        let failures = failed.len();
        events.extend(tasks_report(life, rank, node, completed, failed));
        let next = match gang.draining {
            true => None,
            false => queue.begin(now),
        };
        if let Some(tasks) = next {
            self.run_tasks(life, rank, tasks, task_s, now);
        }
        self.note_blame(&life.0, failures);
    }

    /// Every container of a task set leaves; what it was about to run never ends there.
    fn drained(&mut self, life: &LifeId, now: Timestamp, events: &mut Vec<Event>) {
        let task_s = self.jobs.get(&life.0).and_then(|job| job.task_s);
        if let (Some(task_s), Some(gang)) = (task_s, self.gangs.get_mut(life)) {
            for (rank, queue) in &mut gang.tasks {
                let completed = queue.cut_short(task_s, now);
                if let Some((node, _)) = gang.containers.get(rank) {
                    events.extend(tasks_report(life, *rank, node, completed, Vec::new()));
                }
            }
        }
        self.exit(life, 0, events);
    }

    /// What is due at `now`, as events of the nodes.
    pub fn due(&mut self, now: Timestamp, faults: &mut Faults) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(entry) = self.due.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let (life, due) = entry.remove();
            if !self.gangs.contains_key(&life) {
                continue;
            }
            match due {
                Due::Started => self.started(life, now, faults, &mut events),
                Due::Ended { code, plan } => self.ended(&life, code, plan, now, &mut events),
                Due::Joined(rank) => events.extend(self.joined(&life, rank, now)),
                Due::Ready(rank) => events.extend(self.ready(&life, rank)),
                Due::Left(rank) => events.extend(self.left(&life, rank, 0)),
                Due::Saved => self.saved(&life, &mut events),
                Due::SaveFailed => self.save_failed(&life, &mut events),
                Due::TasksEnded(rank) => {
                    self.tasks_ended(&life, rank, now, faults, &mut events);
                }
                Due::Drained => self.drained(&life, now, &mut events),
                Due::Progress(plan) => events.extend(self.progress(life, plan, now)),
                Due::Stopped => {
                    if let Some(job) = self.jobs.get_mut(&life.0) {
                        job.die();
                    }
                    self.stopped(&life, &mut events);
                }
            }
        }
        events.iter().for_each(|event| self.world.happens(event));
        self.ties.said(events)
    }

    /// Every container of the life ends that hears of it; the others end when they do.
    fn stopped(&mut self, life: &LifeId, events: &mut Vec<Event>) {
        let mut deaf = BTreeMap::new();
        if let Some(gang) = self.gangs.get_mut(life) {
            let ties = &self.ties;
            let (hear, others) = std::mem::take(&mut gang.containers)
                .into_iter()
                .partition(|(_, (node, _))| ties.hears(node));
            gang.containers = hear;
            deaf = others;
        }
        let gang = self.gangs.get(life).cloned();
        self.exit(life, 143, events);
        if let Some(mut gang) = gang.filter(|_| !deaf.is_empty()) {
            gang.containers = deaf;
            self.gangs.insert(life.clone(), gang);
        }
    }

    /// An agent hears again: it does what it has missed.
    pub fn catches_up(&mut self, node: &NodeId, missed: Vec<Missed>, now: Timestamp) {
        let (mut due, mut late) = (Vec::new(), Vec::new());
        for (life, gang) in &self.gangs {
            let here = gang.containers.iter().filter(|(_, (at, _))| at == node);
            let here: Vec<(Rank, Container)> = here.map(|(rank, (_, it))| (*rank, *it)).collect();
            if here.is_empty() {
                continue;
            }
            if gang.stopping {
                due.push((life.clone(), Due::Stopped));
                continue;
            }
            let runs = |(_, it): &(NodeId, Container)| *it == Container::Runs;
            let newcomers = gang.in_place && gang.containers.values().any(runs);
            let asked = here.iter().filter(|(_, it)| *it == Container::Asked);
            let begun = self
                .jobs
                .get(&life.0)
                .is_some_and(|job| job.working.is_some());
            for (rank, _) in asked {
                late.push(life.0.clone());
                if newcomers {
                    due.push((life.clone(), Due::Joined(*rank)));
                }
                // The last of a gang that has not begun begins the work.
                if !newcomers || !begun {
                    due.push((life.clone(), Due::Started));
                }
            }
        }
        for missed in missed {
            match missed {
                Missed::Leave(life, rank) => due.push((life, Due::Left(rank))),
                Missed::Tasks(life, rank, tasks) => self.hand(&life, rank, &tasks, now),
            }
        }
        // It may be too late for them.
        late.iter().for_each(|job| self.note_blame(job, 1));
        for (life, what) in due {
            self.schedule(now, life, what);
        }
    }

    fn hand(&mut self, life: &LifeId, rank: Rank, tasks: &TaskRanges, now: Timestamp) {
        let task_s = self.jobs.get(&life.0).and_then(|job| job.task_s);
        let (Some(task_s), Some(gang)) = (task_s, self.gangs.get_mut(life)) else {
            return;
        };
        if gang.containers.contains_key(&rank) {
            let begun = gang.tasks.entry(rank).or_default().give(tasks, now);
            if let Some(tasks) = begun {
                self.run_tasks(life, rank, tasks, task_s, now);
            }
        }
    }

    fn started(
        &mut self,
        life: LifeId,
        now: Timestamp,
        faults: &mut Faults,
        events: &mut Vec<Event>,
    ) {
        let Some(gang) = self.gangs.get_mut(&life).filter(|gang| !gang.stopping) else {
            return;
        };
        for (rank, (node, container)) in &mut gang.containers {
            if *container == Container::Asked && self.ties.hears(node) {
                *container = Container::Runs;
                events.push(Event::from(ContainerStarted {
                    container: container_id(&life, *rank),
                    job: life.0.clone(),
                    incarnation: life.1,
                    rank: *rank,
                    node: node.clone(),
                    pid: 0,
                }));
            }
        }
        let runs = gang
            .containers
            .values()
            .filter(|(_, container)| *container == Container::Runs);
        let whole = u32::try_from(runs.count()).unwrap_or(u32::MAX) == gang.size;
        let resumes = gang.resumes;
        let replicas: Vec<Rank> = match gang.served {
            true => gang.containers.keys().copied().collect(),
            false => Vec::new(),
        };
        let model = self.jobs.get(&life.0).map(|job| &job.model);
        let pause_s = model.map_or(0.0, |it| it.pause_s(life.1, resumes));
        for rank in replicas {
            let ready_s = self.ready_s(&life, rank);
            self.schedule(after(now, ready_s), life.clone(), Due::Ready(rank));
        }
        if whole {
            self.work(life, pause_s, now, faults);
        }
    }

    /// The containers end by themselves, unless the plan has changed since.
    fn ended(
        &mut self,
        life: &LifeId,
        code: i32,
        plan: u64,
        now: Timestamp,
        events: &mut Vec<Event>,
    ) {
        let dies = usize::from(code != 0);
        let Some(job) = self.jobs.get_mut(&life.0).filter(|job| job.plan == plan) else {
            return;
        };
        if code != 0 && job.in_place {
            self.note_blame(&life.0, dies);
            events.extend(self.one_dies(life, now));
            return;
        }
        job.pause(now);
        if code != 0 {
            let due = job.model.failures.get(job.failed);
            // To a millionth: it was due by time.
            job.failed += usize::from(due.is_some_and(|at| *at <= job.done * (1.0 + 1e-6)));
            job.die();
        }
        self.note_blame(&life.0, dies);
        self.exit(life, code, events);
    }

    fn saved(&mut self, life: &LifeId, events: &mut Vec<Event>) {
        let (Some(node), Some(job)) = (self.chief(life), self.jobs.get_mut(&life.0)) else {
            return;
        };
        job.saved = job.done;
        let step = job.model.progress_s.map_or(0, |_| whole(job.done));
        events.push(Event::from(CheckpointSaved {
            job: life.0.clone(),
            incarnation: life.1,
            node,
            uri: format!("model:{}/{}", life.0, life.1),
            step,
            bytes: 0,
            duration_ms: 0,
        }));
        if job.mode == CheckpointMode::Exit {
            self.exit(life, 0, events);
        }
    }

    fn save_failed(&mut self, life: &LifeId, events: &mut Vec<Event>) {
        if let Some(node) = self.chief(life) {
            events.push(Event::from(CheckpointFailed {
                job: life.0.clone(),
                incarnation: life.1,
                node,
                reason: "the model's disk is full".to_owned(),
            }));
        }
    }

    /// The node of rank 0, if the whole gang still runs: half a gang saves nothing.
    fn chief(&self, life: &LifeId) -> Option<NodeId> {
        let gang = self.gangs.get(life)?;
        let containers = u32::try_from(gang.containers.len()).unwrap_or(u32::MAX);
        let chief = gang
            .containers
            .get(&Rank(0))
            .filter(|_| containers == gang.size);
        chief.map(|(node, _)| node.clone())
    }

    /// Every container of the life ends, or will not start any more.
    fn exit(&mut self, life: &LifeId, code: i32, events: &mut Vec<Event>) {
        let containers = match self.gangs.get_mut(life) {
            // Newcomers may be asked for that were decided before its end was known.
            Some(gang) if gang.in_place => std::mem::take(&mut gang.containers),
            _ => self.gangs.remove(life).unwrap_or_default().containers,
        };
        for (rank, (node, _)) in containers {
            events.push(exited(life, rank, node, code));
        }
    }
}

/// A container was ended by its node.
fn evicted(life: &LifeId, rank: Rank, node: NodeId) -> Event {
    Event::from(ContainerExited {
        exit_code: None,
        signal: Some(9),
        reason: Some("fenced".to_owned()),
        evicted: true,
        ..ended(life, rank, node, 0)
    })
}

/// A container has ended by itself.
pub(super) fn exited(life: &LifeId, rank: Rank, node: NodeId, code: i32) -> Event {
    Event::from(ended(life, rank, node, code))
}

fn ended(life: &LifeId, rank: Rank, node: NodeId, code: i32) -> ContainerExited {
    ContainerExited {
        container: container_id(life, rank),
        job: life.0.clone(),
        incarnation: life.1,
        rank,
        node,
        exit_code: Some(code),
        signal: None,
        out_of_memory: false,
        reason: None,
        evicted: false,
    }
}

/// What a container reports of its tasks, if there is something.
fn tasks_report(
    life: &LifeId,
    rank: Rank,
    node: &NodeId,
    completed: TaskRanges,
    failed: Vec<FailedTask>,
) -> Option<Event> {
    if completed.is_empty() && failed.is_empty() {
        return None;
    }
    Some(Event::from(TasksEnded {
        job: life.0.clone(),
        incarnation: life.1,
        rank,
        node: node.clone(),
        completed,
        failed,
    }))
}

pub(super) fn container_id(life: &LifeId, rank: Rank) -> ContainerId {
    ContainerId {
        job: life.0.clone(),
        incarnation: life.1,
        rank,
    }
}

/// Rounded up: what ends never ends before its work is done.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a simulated time stays far below 285 years"
)]
pub(super) fn after(now: Timestamp, seconds: f64) -> Timestamp {
    Timestamp::from_micros(
        now.as_micros()
            .saturating_add((seconds * 1e6).ceil() as i64),
    )
}
