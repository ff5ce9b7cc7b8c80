//! Simulates a second agent of the same name on another host: an operator's mistake, or a replacement
//! machine.
//!
//! 1. The second agent leaves if the first one renews the lease ([`Holder`]). Otherwise it waits for the
//!    lease's end and then acts for the node, without containers.
//! 2. The first agent learns that its lease is taken, and ends. Its earlier messages may still arrive.

use std::sync::Arc;

use dormouse_agent_core::lease_holder::{Answer, Duty, Holder, News};
use dormouse_agent_core::state::AgentState;
use dormouse_messages::{Fold as _, NodeId, Recorded, Timestamp};

use super::agent_link::{Lease, at_ms, ms};
use super::agents::ModelAgents;
use super::faults::{Faults, Plant};
use super::model_node::ModelNode;
use super::{Action, Engine, EngineError};

impl Engine {
    pub(super) fn second_starts(&mut self, node: NodeId) -> Result<(), EngineError> {
        let holder = Holder::new(true, self.term);
        self.seconds.insert(node.clone(), holder);
        self.second_asks(&node)
    }

    pub(super) fn second_asks(&mut self, node: &NodeId) -> Result<(), EngineError> {
        let Some(mut holder) = self.seconds.remove(node) else {
            return Ok(());
        };
        let now_ms = ms(self.now);
        holder.woken(now_ms);
        while let Some(duty) = holder.next_duty() {
            match duty {
                Duty::Ask(_) => match self.lease_of(node) {
                    None => return Ok(()),
                    Some(Lease::Free) => holder.answered(now_ms, Answer::Renewed),
                    Some(Lease::Held(revision)) => {
                        let by = node.to_string();
                        holder.answered(now_ms, Answer::Taken { by, revision });
                    }
                },
                Duty::Deadline { .. } | Duty::News(News::Fence) => {}
                Duty::News(News::Superseded(_)) => return Ok(()),
                Duty::News(News::Held) => {
                    let (now, faults) = (self.now, &mut self.faults);
                    let log = self.log.events();
                    self.agents.second_acts(node, log, now, faults);
                    return self.append_said();
                }
            }
        }
        if let Some(at) = holder.wakes_at_ms() {
            self.seconds.insert(node.clone(), holder);
            self.at(at_ms(at), Action::SecondAsks(node.clone()));
        }
        Ok(())
    }

    fn lease_of(&self, node: &NodeId) -> Option<Lease> {
        let agents = &self.agents;
        let is_lost = self.lost.get(node).copied() >= self.agent_incarnations.get(node);
        let lease = agents.ties.lease(node, self.term, self.now, is_lost);
        let stolen = self.faults.plant() == Some(Plant::StolenLeases);
        match agents.ties.is_cut(node) {
            _ if agents.stands_until(node).is_some() => None,
            true if stolen => Some(Lease::Free),
            is_cut => (is_cut || agents.is_up(node)).then_some(lease),
        }
    }
}

impl ModelAgents {
    fn second_acts(
        &mut self,
        node: &NodeId,
        log: &[Arc<Recorded>],
        now: Timestamp,
        faults: &mut Faults,
    ) {
        self.kill(node);
        let Some(first) = self.nodes.get_mut(node) else {
            return;
        };
        let mut state = AgentState::new(node.clone());
        log.iter().for_each(|recorded| state.evolve(recorded));
        **first = ModelNode::second(first, state);
        self.ties.die(node);
        self.start_agent(node, now, faults);
    }
}
