//! All model nodes of a simulated cluster, and the world of containers and programs below them.
//!
//! ```text
//!  log ──► routes ──► nodes: the shipped agents' machines ──► reports
//!                       │ ▲  start, stop, evict, save, give
//!                       ▼ │  runs, ended, said
//!                     programs: what containers do, when, and what that costs
//! ```
//!
//! What is due is kept by time. Work that is interrupted makes a new plan, and what was due under
//! an older plan is void. The judge of what really runs ([`super::world`]) is told by the programs,
//! not by what agents report.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use dormouse_messages::ids::{ContainerId, Incarnation, Rank};
use dormouse_messages::{Event, JobId, NodeId, Recorded, Timestamp};

use super::back::Aside;
use super::faults::Faults;
use super::model::ModelJob;
use super::nodes::{ModelNode, Note};
use super::programs::Gang;
use super::routes::Routes;
use super::simulated::Simulated;
use super::standing::Standing;
use super::ties::Ties;
use super::world::World;

/// One life of a job.
pub(super) type LifeId = (JobId, Incarnation);

/// What is due in the containers of a life.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Due {
    Started,
    Joined(Rank),
    /// The engine has ended what it was slow to start.
    Removed(Rank),
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

/// All agents of a simulated cluster, and what they run.
#[derive(Debug, Clone, Default)]
pub struct ModelAgents {
    pub(super) models: BTreeMap<JobId, ModelJob>,
    pub(super) jobs: BTreeMap<JobId, Simulated>,
    pub(super) gangs: BTreeMap<LifeId, Gang>,
    pub(super) due: BTreeMap<(Timestamp, u64), (LifeId, Due)>,
    scheduled: u64,
    /// How often the model itself gave each job a reason to fail.
    blame: BTreeMap<JobId, u32>,
    /// The lives of each job that a node had no image for.
    pub(super) lacking: BTreeMap<JobId, BTreeSet<Incarnation>>,
    pub(super) nodes: BTreeMap<NodeId, Box<ModelNode>>,
    pub(super) routes: Routes,
    /// What agents are to be told, in order.
    pub(super) notes: VecDeque<(NodeId, Note)>,
    /// What they have reported.
    pub(super) said: Vec<Event>,
    /// When.
    pub(super) clock: Timestamp,
    /// There are several brokers: what agents report takes time.
    pub(super) replicated: bool,
    /// Agents whose reports go on.
    pub(super) talks: VecDeque<NodeId>,
    /// Led along a log: what they report stands there.
    pub(super) led: bool,
    /// An agent hears late what it is asked now.
    pub(super) late: bool,
    pub(super) ties: Ties,
    /// Hosts that stand still.
    pub(super) standing: BTreeMap<NodeId, Standing>,
    /// Lives that worked when a host of theirs began to stand still.
    pub(super) stalled: BTreeSet<LifeId>,
    pub(super) world: World,
    pub(super) aside: Aside,
}

impl ModelAgents {
    /// How often the model itself gave a job a reason to fail: a life that died, a start that took too
    /// long. What fails more often was failed by the platform.
    pub fn blame(&self, id: &JobId) -> u32 {
        self.blame.get(id).copied().unwrap_or(0)
    }

    pub(super) fn note_blame(&mut self, id: &JobId, times: u32) {
        if times > 0 {
            let blame = self.blame.entry(id.clone()).or_default();
            *blame = blame.saturating_add(times);
        }
    }

    /// How the job `id` behaves.
    pub fn model(&mut self, id: JobId, model: ModelJob) {
        self.models.insert(id, model);
    }

    /// When something is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        let due = self.due.keys().next().map(|(at, _)| *at);
        let is_said = !self.said.is_empty() || !self.talks.is_empty();
        let said = is_said.then_some(self.clock);
        due.into_iter().chain(said).min()
    }

    /// What agents have reported since this was asked last.
    pub fn take_said(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.said)
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

    /// What stands on the log now: agents hear of it, and what programs find out by themselves.
    pub fn fold(&mut self, recorded: &Arc<Recorded>, now: Timestamp, faults: &mut Faults) {
        self.world.fold(recorded, now);
        if let Some(Event::JobAdmitted(event)) = recorded.event() {
            // A job without a model works for a minute.
            let model = self.models.remove(&event.job);
            let model = model.unwrap_or_else(|| ModelJob::linear(60.0));
            let job = Simulated::admitted(model, &event.spec);
            // A log that went back admits it once more, and it may run.
            self.jobs.entry(event.job.clone()).or_insert(job);
        }
        self.route(recorded, faults.plant());
        self.pump(now, faults);
        match recorded.event() {
            Some(Event::PartitionKept(event)) => {
                self.work((event.job.clone(), event.incarnation), 0.0, now, faults);
            }
            Some(Event::PartitionResized(event)) => self.resized(event, now, faults),
            Some(Event::JobCompleted(event)) => self.forget(&event.job),
            Some(Event::JobFailed(event)) => self.forget(&event.job),
            Some(Event::JobCancelled(event)) => self.forget(&event.job),
            _ => {}
        }
    }

    /// The job has ended; what it still runs is left for the audit to find.
    fn forget(&mut self, id: &JobId) {
        self.jobs.remove(id);
        self.gangs
            .retain(|(job, _), gang| job != id || !gang.containers.is_empty());
    }

    /// What is due at `now`, as events of the nodes.
    pub fn due(&mut self, now: Timestamp, faults: &mut Faults) -> Vec<Event> {
        while let Some(entry) = self.due.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let (life, due) = entry.remove();
            if !self.gangs.contains_key(&life) || self.is_put_off(&life, due) {
                continue;
            }
            match due {
                Due::Started => self.started(life, now, faults),
                Due::Ended { code, plan } => self.ended(&life, code, plan, now),
                Due::Joined(rank) if self.is_unanswered(&life, rank) => {
                    self.runs_unanswered(&life, rank, due, now, faults);
                }
                Due::Joined(rank) => self.newcomer_runs(&life, rank, now),
                Due::Removed(rank) => self.removed(&life, rank, now),
                Due::Ready(rank) => self.ready(&life, rank),
                Due::Left(rank) => self.left(&life, rank, 0),
                Due::Saved => self.saved(&life),
                Due::SaveFailed => self.save_failed(&life),
                Due::TasksEnded(rank) => self.tasks_ended(&life, rank, now, faults),
                Due::Drained => self.drained(&life, now),
                Due::Progress(plan) => self.progress(life, plan, now),
                Due::Stopped => self.stopped(&life),
            }
            self.pump(now, faults);
        }
        self.take_said()
    }
}

pub(super) fn container_id(life: &LifeId, rank: Rank) -> ContainerId {
    ContainerId {
        job: life.0.clone(),
        incarnation: life.1,
        rank,
    }
}

pub(super) fn life_of(id: &ContainerId) -> LifeId {
    (id.job.clone(), id.incarnation)
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
