//! A node of the simulation: the shipped agent machine ([`dormouse_agent_core`]), its containers, its unheard
//! events and its unsent reports.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use dormouse_agent_core::state::AgentState;
use dormouse_agent_core::{Adopted, Agent, Exit, Offer};
use dormouse_messages::events::NodeFault;
use dormouse_messages::{ContainerId, Event, Recorded, Sequence};

use super::outlet::Outlet;

/// A fault that keeps a node from starting containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ailment {
    /// Every start fails at once.
    Starts(NodeFault),
    /// The engine starts a container, but answers too late.
    Answers,
}

#[derive(Debug, Clone)]
pub(super) enum Note {
    Heard(Arc<Recorded>),
    Running(ContainerId),
    Ended(ContainerId, Exit),
    Said(Event),
}

#[derive(Debug, Clone)]
pub(super) enum Present {
    Asked,
    Runs,
    Ended(Exit),
}

#[derive(Debug, Clone)]
pub(super) struct ModelNode {
    pub(super) agent: Agent,
    pub(super) is_up: bool,
    pub(super) unheard: VecDeque<Arc<Recorded>>,
    pub(super) unsent: Option<Event>,
    pub(super) outlet: Outlet,
    /// Reports of containers from the time without an agent.
    pub(super) left: Vec<Event>,
    pub(super) containers: BTreeMap<ContainerId, (Sequence, Present)>,
    pub(super) ails: Option<Ailment>,
}

impl ModelNode {
    pub(super) fn new(offer: Offer, state: AgentState) -> Self {
        Self {
            agent: Agent::new(offer, state, false),
            is_up: false,
            unheard: VecDeque::new(),
            unsent: None,
            outlet: Outlet::new(),
            left: Vec::new(),
            containers: BTreeMap::new(),
            ails: None,
        }
    }

    /// Returns the node on another host, without containers; its agent starts from `state`.
    pub(super) fn second(first: &Self, state: AgentState) -> Self {
        let mut outlet = first.outlet.clone();
        outlet.renew();
        Self {
            outlet,
            ..Self::new(first.agent.offer().clone(), state)
        }
    }

    pub(super) fn has_heard_all(&self) -> bool {
        self.is_up && self.unheard.is_empty()
    }

    pub(super) fn renew(&mut self, offer: Option<Offer>) {
        let node = self.agent.node().clone();
        let offer = offer.unwrap_or_else(|| self.agent.offer().clone());
        let empty = Agent::new(offer.clone(), AgentState::new(node), false);
        let state = std::mem::replace(&mut self.agent, empty).into_state();
        self.agent = Agent::new(offer, state, false);
        self.is_up = false;
        self.unsent = None;
        self.outlet.renew();
    }

    pub(super) fn take(&mut self, note: Note, hears: bool) {
        match note {
            Note::Heard(recorded) if self.is_up && hears => drop(self.agent.hear(&recorded)),
            Note::Heard(recorded) => self.unheard.push_back(recorded),
            Note::Running(id) => {
                self.agent.running(&id, 0);
                if let Some((_, present)) = self.containers.get_mut(&id) {
                    *present = Present::Runs;
                }
            }
            Note::Ended(id, exit) => {
                self.agent.ended(&id, exit.clone());
                if let Some((_, present)) = self.containers.get_mut(&id) {
                    *present = Present::Ended(exit);
                }
            }
            Note::Said(Event::Progress(_)) if !self.agent.takes_progress() => {}
            Note::Said(event) if self.is_up => self.agent.say(event, Vec::new()),
            Note::Said(event) => self.left.push(event),
        }
    }

    pub(super) fn catch_up(&mut self) {
        self.hear(self.unheard.len());
    }

    pub(super) fn hear(&mut self, events: usize) {
        for recorded in self.unheard.drain(..events) {
            self.agent.hear(&recorded);
        }
    }

    pub(super) fn adopt(&mut self) {
        for event in std::mem::take(&mut self.left) {
            self.agent.say(event, Vec::new());
        }
        let found = self.containers.iter().filter_map(|(id, (request, it))| {
            let status = match it {
                Present::Asked => return None,
                Present::Runs => Ok(0),
                Present::Ended(exit) => Err(exit.clone()),
            };
            Some(Adopted {
                container: id.clone(),
                request: *request,
                status,
                evicting: false,
            })
        });
        self.agent.listed(found.collect::<Vec<_>>());
    }
}

impl ModelNode {
    pub(super) fn forgotten(&self, state: &AgentState) -> impl Iterator<Item = ContainerId> {
        let wanted = state.wanted();
        let runs = self.containers.iter();
        let runs = runs.filter(|(_, (_, present))| matches!(present, Present::Runs));
        runs.filter(move |(id, (request, _))| {
            wanted.get(id).is_none_or(|want| want.request != *request)
        })
        .map(|(id, _)| id.clone())
    }

    pub(super) fn restart_from(&mut self, state: AgentState) {
        let offer = self.agent.offer().clone();
        let former = self.agent.heard().clone();
        self.agent = Agent::new(offer, state, false).after(Some(former));
        self.unheard.clear();
        self.unsent = None;
    }
}
