//! The engine's side of disconnected, killed and returning agents.

use dormouse_messages::events::{NodeFenced, NodeLost};
use dormouse_messages::{Event, NodeId, Writer};

use super::agent_link::Cut;
use super::faults::Plant;
use super::{Action, Engine, EngineError};

impl Engine {
    pub(super) fn happens_to_host(&mut self, action: Action) -> Result<(), EngineError> {
        match action {
            Action::Expire(node) => {
                self.agents.fence(&node, self.now, &mut self.faults);
                return self.append_said();
            }
            Action::Cut(node, cut) => self.cut(&node, cut),
            Action::Mend(node) => return self.mend(&node),
            Action::Second(node) => return self.second_starts(node),
            Action::SecondAsks(node) => return self.second_asks(&node),
            Action::CutCopies(copy, cut, until) => {
                for service in &mut self.services {
                    service.cut(copy, cut, until);
                }
            }
            Action::CatchUp(node) => return self.catch_up(&node),
            Action::RenewalDue(node, of) => return self.renewal(&node, of),
            Action::FenceDue(node, of) => return self.fence(&node, of),
            Action::LeaseDue(node, of) => return self.lease_ends(&node, of),
            Action::Forsake(node, late_ms) => return self.forsake(&node, late_ms),
            Action::SupervisorSays(node, incarnation) => {
                return self.supervisor_says(node, incarnation);
            }
            Action::Ails(node, ailment) => self.agents.ails(&node, Some(ailment)),
            Action::Heals(node) => self.agents.ails(&node, None),
            Action::Reboot(node) => self.reboot(&node),
            Action::Stand(node, until) => self.stand(&node, until),
            Action::Wake(node) => return self.wake(&node),
            Action::EndStale(node) => return self.end_stale(&node),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn cut(&mut self, node: &NodeId, cut: Cut) {
        if !self.agents.is_up(node) {
            return;
        }
        let ties = &mut self.agents.ties;
        let due = ties.cut(node, cut, self.term, self.now, &mut self.faults);
        let Some(due) = due else { return };
        if cut == Cut::Killed {
            self.agents.kill(node);
        }
        if let Some(at) = due.wakes {
            self.at(at, Action::RenewalDue(node.clone(), due.of));
        }
        if let Some(at) = due.fence {
            self.at(at, Action::FenceDue(node.clone(), due.of));
        }
        self.at(due.loss, Action::LeaseDue(node.clone(), due.of));
    }

    pub(super) fn dies(&mut self, node: &NodeId) -> u64 {
        let incarnation = self.agent_incarnation(node);
        self.agents.lose(node, self.now);
        if let Some(brokers) = &mut self.brokers {
            brokers.forgets(node);
        }
        incarnation.unwrap_or(0)
    }

    fn agent_incarnation(&self, node: &NodeId) -> Option<u64> {
        let brokers = self.brokers.as_ref();
        let joining = brokers.and_then(|it| it.joining(node));
        joining.or_else(|| self.agent_incarnations.get(node))
    }

    pub(super) fn reboot(&mut self, node: &NodeId) {
        self.cut(node, Cut::Killed);
        if self.agents.ties.is_killed(node) {
            self.agents.reboot(node, self.now, &self.faults);
            if let Some(brokers) = &mut self.brokers {
                brokers.forgets(node);
            }
        }
    }

    pub(super) fn renewal(&mut self, node: &NodeId, of: u64) -> Result<(), EngineError> {
        if !self.agents.ties.counts(node, of) {
            return Ok(());
        }
        let woken = self.agents.ties.woken(node, self.now, &self.faults);
        if let Some(at) = woken.ends {
            self.at(at, Action::FenceDue(node.clone(), of));
        }
        if let Some(at) = woken.wakes {
            self.at(at, Action::RenewalDue(node.clone(), of));
        }
        if woken.fences {
            self.agents.fence(node, self.now, &mut self.faults);
        }
        Ok(())
    }

    pub(super) fn fence(&mut self, node: &NodeId, of: u64) -> Result<(), EngineError> {
        if self.agents.ties.is_past(node, of, self.now) {
            self.agents
                .supervisor_ends(node, self.now, &mut self.faults);
        }
        Ok(())
    }

    /// Reports the end of a killed agent's containers. The report may be stored after the next agent has
    /// joined.
    pub(super) fn forsake(&mut self, node: &NodeId, late_ms: u64) -> Result<(), EngineError> {
        let incarnation = self.agent_incarnation(node);
        let Some(incarnation) = incarnation.filter(|_| self.agents.ties.is_killed(node)) else {
            return Ok(());
        };
        if self.faults.plant() != Some(Plant::EarlyWord) {
            self.agents
                .supervisor_ends(node, self.now, &mut self.faults);
        }
        let said = self.now.plus_ms(late_ms);
        self.at(said, Action::SupervisorSays(node.clone(), incarnation));
        Ok(())
    }

    pub(super) fn supervisor_says(
        &mut self,
        node: NodeId,
        incarnation: u64,
    ) -> Result<(), EngineError> {
        let fenced = NodeFenced {
            node,
            incarnation,
            reason: "its agent died; its supervisor has ended them".to_owned(),
        };
        self.append(Writer::Node, Event::from(fenced), None)
    }

    pub(super) fn lease_ends(&mut self, node: &NodeId, of: u64) -> Result<(), EngineError> {
        if !self.agents.ties.counts(node, of) {
            return Ok(());
        }
        if !self.takes(Writer::Placer) {
            // The lease watch checks again before it writes.
            let again = self.now.plus_ms(200);
            self.at(again, Action::LeaseDue(node.clone(), of));
            return Ok(());
        }
        let lost = NodeLost {
            node: node.clone(),
            incarnation: self.agent_incarnation(node).unwrap_or(0),
            last_seen: self.now,
        };
        self.append(Writer::Placer, Event::from(lost), None)
    }

    pub(super) fn mend(&mut self, node: &NodeId) -> Result<(), EngineError> {
        if let Some(until) = self.agents.stands_until(node) {
            self.at(until, Action::Mend(node.clone()));
            return Ok(());
        }
        if let Some(brokers) = &mut self.brokers {
            brokers.lets_go(node, self.now);
        }
        let behind_ms = self.agents.mend(node, self.now, &mut self.faults);
        if let Some(behind_ms) = behind_ms {
            let hears = self.now.plus_ms(behind_ms);
            self.at(hears, Action::CatchUp(node.clone()));
        }
        self.append_said()
    }

    pub(super) fn catch_up(&mut self, node: &NodeId) -> Result<(), EngineError> {
        self.agents.catch_up(node, self.now, &mut self.faults);
        self.append_said()
    }

    pub(super) fn append_said(&mut self) -> Result<(), EngineError> {
        for event in self.agents.take_said() {
            self.append(Writer::Node, event, None)?;
        }
        Ok(())
    }
}
