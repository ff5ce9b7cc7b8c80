//! Agents that are cut off, and come back: what the engine does at each moment of it.

use dormouse_messages::events::NodeLost;
use dormouse_messages::{Event, NodeId, Writer};

use super::agents::Container;
use super::faults::Plant;
use super::ties::Cut;
use super::{Action, Engine, EngineError, joined};

impl Engine {
    pub(super) fn cut(&mut self, node: &NodeId, cut: Cut) {
        if self.agents.dead.contains(node) || !self.lives.contains_key(node) {
            return;
        }
        let ties = &mut self.agents.ties;
        let due = ties.cut(node, cut, self.term, self.now, &mut self.faults);
        let Some(due) = due else { return };
        if let Some(at) = due.fence {
            self.at(at, Action::FenceDue(node.clone(), due.of));
        }
        self.at(due.loss, Action::LeaseDue(node.clone(), due.of));
    }

    /// What runs on a node that is cut off has ended, before its lease.
    pub(super) fn fence(&mut self, node: &NodeId, of: u64) {
        if self.agents.ties.fence(node, of) {
            let runs = |container| container == Container::Runs;
            let told = self.agents.end_all(node, runs, self.now);
            self.agents.ties.keeps(node, told);
        }
    }

    pub(super) fn lease_ends(&mut self, node: &NodeId, of: u64) -> Result<(), EngineError> {
        if !self.agents.ties.lose(node, of) {
            return Ok(());
        }
        let void = self.faults.plant() != Some(Plant::VoidStarts);
        self.agents.lease_ends(node, void, self.now);
        let lost = NodeLost {
            node: node.clone(),
            incarnation: self.lives.get(node).copied().unwrap_or(0),
            last_seen: self.now,
        };
        self.append(Writer::Placer, Event::from(lost), None)
    }

    /// The agent says what it has to say, joins if it has to, and does what it has missed.
    pub(super) fn mend(&mut self, node: &NodeId) -> Result<(), EngineError> {
        let Some(back) = self.agents.ties.mend(node) else {
            return Ok(());
        };
        for event in back.says {
            self.append(Writer::Node, event, None)?;
        }
        if back.lost && self.faults.plant() != Some(Plant::VoidStarts) {
            let left = self.agents.end_all(node, |_| true, self.now);
            for event in left {
                self.append(Writer::Node, event, None)?;
            }
        }
        if let Some(capacity) = self.capacities.get(node).cloned().filter(|_| back.joins) {
            let life = self.lives.entry(node.clone()).or_insert(0);
            *life += 1;
            let life = *life;
            self.agents.join(node);
            let joined = joined(node.clone(), capacity, life);
            self.append(Writer::Node, joined, None)?;
        }
        self.agents.catches_up(node, back.missed, self.now);
        Ok(())
    }
}
