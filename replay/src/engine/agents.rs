//! The model nodes of a simulated cluster, and the containers and programs below them.
//!
//! ```text
//!  log ──► routes ──► nodes: the shipped agents' machines ──► reports
//!                       │ ▲  start, stop, evict, save, give
//!                       ▼ │  runs, ended, said
//!                     programs: what containers do, when, and what that costs
//! ```
//!
//! Interrupted work makes a new plan, and due events of an older plan are void. The programs, not the
//! agents' reports, tell the ground truth ([`super::ground_truth`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use dormouse_agent_core::state::AgentState;
use dormouse_messages::ids::{ContainerId, Incarnation};
use dormouse_messages::{Event, Fold as _, JobId, NodeId, Recorded, Timestamp};

use super::agent_link::Ties;
use super::faults::{Faults, Plant};
use super::gang::Gang;
use super::ground_truth::World;
use super::incarnation::{Due, IncarnationId};
use super::model::ModelJob;
use super::model_node::{ModelNode, Note};
use super::routes::Routes;
use super::simulated::Simulated;

/// A suspended host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    pub(super) until: Timestamp,
    /// The supervisor's deadline for the containers.
    pub(super) ends: Timestamp,
}

/// Containers started under ids of the rolled-back log.
#[derive(Debug, Clone, Default)]
pub(super) struct Aside {
    pub(super) is_needed: bool,
    pub(super) containers: BTreeSet<(NodeId, ContainerId)>,
}

/// All agents of a simulated cluster and their containers.
#[derive(Debug, Clone, Default)]
pub struct ModelAgents {
    pub(super) models: BTreeMap<JobId, ModelJob>,
    pub(super) jobs: BTreeMap<JobId, Simulated>,
    pub(super) gangs: BTreeMap<IncarnationId, Gang>,
    pub(super) due: BTreeMap<(Timestamp, u64), (IncarnationId, Due)>,
    scheduled: u64,
    /// Failures per job that the model itself caused.
    blame: BTreeMap<JobId, u32>,
    pub(super) lacking: BTreeMap<JobId, BTreeSet<Incarnation>>,
    pub(super) nodes: BTreeMap<NodeId, Box<ModelNode>>,
    pub(super) routes: Routes,
    pub(super) notes: VecDeque<(NodeId, Note)>,
    pub(super) said: Vec<Event>,
    pub(super) clock: Timestamp,
    /// True if there are several brokers, so that reports take time.
    pub(super) replicated: bool,
    pub(super) talks: VecDeque<NodeId>,
    /// True if the agents follow a log that already holds their reports.
    pub(super) led: bool,
    /// True if the current requests reach the agent late.
    pub(super) late: bool,
    pub(super) ties: Ties,
    pub(super) standing: BTreeMap<NodeId, Standing>,
    pub(super) stalled: BTreeSet<IncarnationId>,
    pub(super) world: World,
    pub(super) aside: Aside,
}

impl ModelAgents {
    /// Returns the number of failures that the model itself caused for a job; the platform caused any
    /// others.
    pub fn blame(&self, id: &JobId) -> u32 {
        self.blame.get(id).copied().unwrap_or(0)
    }

    pub(super) fn note_blame(&mut self, id: &JobId, times: u32) {
        if times > 0 {
            let blame = self.blame.entry(id.clone()).or_default();
            *blame = blame.saturating_add(times);
        }
    }

    /// Sets the behaviour of the job `id`.
    pub fn model(&mut self, id: JobId, model: ModelJob) {
        self.models.insert(id, model);
    }

    /// Returns the time of the next due event.
    pub fn next_due(&self) -> Option<Timestamp> {
        let due = self.due.keys().next().map(|(at, _)| *at);
        let is_said = !self.said.is_empty() || !self.talks.is_empty();
        let said = is_said.then_some(self.clock);
        due.into_iter().chain(said).min()
    }

    /// Takes the agents' reports since the last call.
    pub fn take_said(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.said)
    }

    /// Returns the training jobs that have begun, with start and speed of the current work.
    pub fn speeds(&self) -> impl Iterator<Item = (&JobId, Option<(Timestamp, f64)>)> {
        let training = self.jobs.iter().filter(|(_, job)| !job.served);
        training.map(|(id, job)| (id, job.working))
    }

    pub(super) fn schedule(&mut self, at: Timestamp, incarnation: IncarnationId, due: Due) {
        self.scheduled += 1;
        self.due.insert((at, self.scheduled), (incarnation, due));
    }

    /// Delivers a log event to agents and programs.
    pub fn fold(&mut self, recorded: &Arc<Recorded>, now: Timestamp, faults: &mut Faults) {
        self.world.fold(recorded, now);
        if let Some(Event::JobAdmitted(event)) = recorded.event() {
            let model = self.models.remove(&event.job);
            let model = model.unwrap_or_else(|| ModelJob::linear(60.0));
            let job = Simulated::admitted(model, &event.spec);
            // A rolled-back log admits the job again while it may still run.
            self.jobs.entry(event.job.clone()).or_insert(job);
        }
        self.route(recorded, faults.plant());
        self.pump(now, faults);
        match recorded.event() {
            Some(Event::ResizeAbandoned(event)) => {
                self.work((event.job.clone(), event.incarnation), 0.0, now, faults);
            }
            Some(Event::PartitionResized(event)) => self.resized(event, now, faults),
            Some(Event::JobCompleted(event)) => self.forget(&event.job),
            Some(Event::JobFailed(event)) => self.forget(&event.job),
            Some(Event::JobCancelled(event)) => self.forget(&event.job),
            _ => {}
        }
    }

    pub(super) fn route(&mut self, recorded: &Arc<Recorded>, plant: Option<Plant>) {
        let nodes = self.nodes.keys();
        self.routes.route(recorded, plant, nodes, &mut self.notes);
    }

    /// Drops an ended job. Containers that still run stay for the audit to find.
    fn forget(&mut self, id: &JobId) {
        self.jobs.remove(id);
        self.gangs
            .retain(|(job, _), gang| job != id || !gang.containers.is_empty());
    }

    /// Runs the events due at `now`; returns the nodes' reports.
    pub fn due(&mut self, now: Timestamp, faults: &mut Faults) -> Vec<Event> {
        while let Some(entry) = self.due.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let (incarnation, due) = entry.remove();
            if !self.gangs.contains_key(&incarnation) || self.is_put_off(&incarnation, due) {
                continue;
            }
            match due {
                Due::Started => self.started(incarnation, now, faults),
                Due::Ended { code, plan } => self.ended(&incarnation, code, plan, now),
                Due::Joined(rank) if self.is_unanswered(&incarnation, rank) => {
                    self.runs_unanswered(&incarnation, rank, due, now, faults);
                }
                Due::Joined(rank) => self.newcomer_runs(&incarnation, rank, now),
                Due::Removed(rank) => self.removed(&incarnation, rank, now),
                Due::Ready(rank) => self.ready(&incarnation, rank),
                Due::Left(rank) => self.left(&incarnation, rank, 0),
                Due::Saved => self.saved(&incarnation),
                Due::SaveFailed => self.save_failed(&incarnation),
                Due::TasksEnded(rank) => self.tasks_ended(&incarnation, rank, now, faults),
                Due::Drained => self.drained(&incarnation, now),
                Due::Progress(plan) => self.progress(incarnation, plan, now),
                Due::Stopped => self.stopped(&incarnation),
            }
            self.pump(now, faults);
        }
        self.take_said()
    }

    /// Checks that every up-to-date agent wants the same containers as after the whole log, and that its
    /// node's part of every node's view after the first `cut` events goes on to the same state.
    ///
    /// # Errors
    /// The difference.
    pub fn heard_enough(&self, log: &[Arc<Recorded>], cut: usize) -> Result<(), String> {
        let (before, after) = log.split_at(cut);
        let mut every = AgentState::default();
        before.iter().for_each(|recorded| every.evolve(recorded));
        let heard = self.nodes.iter().filter(|(_, it)| it.has_heard_all());
        for (node, it) in heard {
            let mut whole = AgentState::new(node.clone());
            log.iter().for_each(|recorded| whole.evolve(recorded));
            let mut resumed = every.cut(node);
            after.iter().for_each(|recorded| resumed.evolve(recorded));
            if resumed != whole {
                return Err(format!(
                    "{node}, cut after event {cut}, goes on differently"
                ));
            }
            let (wants, would) = (it.agent.state().wanted(), whole.wanted());
            if wants != would {
                return Err(format!(
                    "{node} wants {wants:?}, and after the whole log {would:?}"
                ));
            }
        }
        Ok(())
    }
}
