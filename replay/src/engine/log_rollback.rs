//! Rolls the log back: the broker's host lost power before the last events were on disk.
//!
//! 1. Services and agents restart from the remaining log; a service ignores a snapshot that is ahead.
//! 2. Unrequested containers run on until their agent is back or their supervisor ends them. Meanwhile
//!    another incarnation of the job may run elsewhere, and an id may be given again.
//! 3. Commands and submissions come again, with the former numbers if the ingress kept them.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_agent_core::Exit;
use dormouse_agent_core::state::{AgentState, Place};
use dormouse_messages::ids::{ContainerId, Rank};
use dormouse_messages::job::JobSpec;
use dormouse_messages::{Event, Fold as _, JobId, NodeId, Recorded, Sequence, Timestamp, Writer};

use super::agent_link::Cut;
use super::agents::ModelAgents;
use super::incarnation::{IncarnationId, container_id, incarnation_of};
use super::model::ModelJob;
use super::model_node::Note;
use super::routes::Routes;
use super::simulated::Simulated;
use super::{Action, Engine};
use crate::audit::Audit;

/// Time until the last agent is back.
const AGENTS_MS: u64 = 20_000;

/// The extent of a rollback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Back {
    /// Number of lost events.
    pub events: usize,
    pub ingress: bool,
    pub until: Timestamp,
}

impl Engine {
    pub(super) fn go_back(&mut self, back: Back) {
        let lost = self.log.go_back(back.events);
        let log = self.log.events().to_vec();
        self.stopped = back.until;
        for service in &mut self.services {
            service.goes_back(&self.log, back.until);
        }
        for node in self.agents.up() {
            self.cut(&node, Cut::Killed);
            let again = back.until.plus_ms(self.faults.up_to(AGENTS_MS));
            self.at(again, Action::Mend(node));
        }
        self.agents.go_back(&log, back.until.plus_ms(AGENTS_MS));
        self.audit = Audit::default();
        (self.agent_incarnations, self.lost) = Default::default();
        for recorded in &log {
            self.audit.read(recorded);
            self.notes_incarnations(recorded);
        }
        if back.ingress {
            self.ingress = log.iter().filter_map(|it| number(it)).max().unwrap_or(0);
        }
        for recorded in &lost {
            match again(recorded, back.ingress) {
                // Before any later command.
                Some(action @ Action::Operator(_)) => self.at(self.now, action),
                Some(action) => self.at(back.until, action),
                None => {}
            }
        }
    }
}

fn number(recorded: &Recorded) -> Option<u64> {
    match recorded.event()? {
        Event::SubmissionReceived(event) => Some(event.ingress_sequence),
        _ => None,
    }
}

fn again(recorded: &Recorded, ingress: bool) -> Option<Action> {
    let event = recorded.event()?;
    match event {
        Event::SubmissionReceived(_) if !ingress => {
            Some(Action::Recorded(Writer::Admission, event.clone()))
        }
        Event::SubmissionReceived(it) => Some(Action::Submit {
            tenant: it.tenant.clone(),
            verb: it.verb.clone(),
            payload: dormouse_admission::document(it)?.to_string().into_bytes(),
        }),
        _ if recorded.writer == Writer::Operator => Some(Action::Operator(event.clone())),
        _ => None,
    }
}

impl ModelAgents {
    pub(super) fn up(&self) -> Vec<NodeId> {
        let up = self.nodes.keys().filter(|node| self.is_up(node));
        up.cloned().collect()
    }

    fn go_back(&mut self, log: &[Arc<Recorded>], until: Timestamp) {
        self.aside.is_needed = true;
        self.routes = Routes::default();
        log.iter().for_each(|recorded| self.route(recorded, None));
        let mut states: BTreeMap<NodeId, AgentState> = BTreeMap::new();
        for (node, note) in self.notes.drain(..) {
            let state = states.entry(node.clone());
            let state = state.or_insert_with(|| AgentState::new(node));
            if let Note::Heard(recorded) = note {
                state.evolve(&recorded);
            }
        }
        let mut forgotten = Vec::new();
        for (node, it) in &mut self.nodes {
            let state = states.remove(node);
            let state = state.unwrap_or_else(|| AgentState::new(node.clone()));
            forgotten.extend(it.forgotten(&state).map(|id| (id, node.clone())));
            it.restart_from(state);
        }
        for (id, node) in forgotten {
            self.world.forgets(&id, &node, until);
        }
        self.jobs_go_back(log);
    }

    fn jobs_go_back(&mut self, log: &[Arc<Recorded>]) {
        let mut open: BTreeMap<&JobId, &JobSpec> = BTreeMap::new();
        for recorded in log {
            match recorded.event() {
                Some(Event::JobAdmitted(event)) => {
                    open.insert(&event.job, &event.spec);
                }
                Some(Event::JobCompleted(event)) => drop(open.remove(&event.job)),
                Some(Event::JobFailed(event)) => drop(open.remove(&event.job)),
                Some(Event::JobCancelled(event)) => drop(open.remove(&event.job)),
                _ => {}
            }
        }
        for (id, spec) in open {
            let readmitted = || Simulated::admitted(ModelJob::linear(60.0), spec);
            self.jobs.entry(id.clone()).or_insert_with(readmitted);
        }
    }

    /// Before a container starts, sets aside those that run under the same incarnation of a rolled-back
    /// log.
    pub(super) fn set_aside(
        &mut self,
        incarnation: &IncarnationId,
        places: &BTreeMap<Rank, Place>,
        request: Sequence,
    ) {
        let Some(gang) = self
            .gangs
            .get_mut(incarnation)
            .filter(|_| self.aside.is_needed)
        else {
            return;
        };
        let is_same = gang.request == request;
        let is_part =
            |rank: &Rank, at: &NodeId| is_same && places.get(rank).is_some_and(|it| it.node == *at);
        let containers = gang.containers.iter();
        let others = containers.filter(|(rank, (at, _))| !is_part(rank, at));
        let others: Vec<(Rank, NodeId)> =
            others.map(|(rank, (at, _))| (*rank, at.clone())).collect();
        if others.is_empty() && is_same {
            return;
        }
        let size = u32::try_from(places.len()).unwrap_or(u32::MAX);
        if is_same {
            gang.replace(others.iter().map(|(rank, _)| *rank), size)
        } else {
            drop(self.gangs.remove(incarnation))
        }
        for (rank, at) in others {
            let container = container_id(incarnation, rank);
            self.aside.containers.insert((at, container));
        }
        if let Some(job) = self.jobs.get_mut(&incarnation.0) {
            job.die();
        }
    }

    pub(super) fn evict_on(&mut self, node: &NodeId, id: &ContainerId, exit: Exit, now: Timestamp) {
        let key = (node.clone(), id.clone());
        let gang = self.gangs.get(&incarnation_of(id));
        let is_here = gang.and_then(|gang| gang.containers.get(&id.rank));
        let is_here = is_here.is_some_and(|(at, _)| at == node);
        let is_aside = self.aside.containers.remove(&key);
        if is_here && !is_aside || !self.aside.is_needed {
            return self.evict(id, exit, now);
        }
        self.world.ends_forgotten(id);
        self.notes.push_back((key.0, Note::Ended(key.1, exit)));
    }
}
