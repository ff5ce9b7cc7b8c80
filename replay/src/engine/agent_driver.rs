//! Drives the agents of the model nodes ([`super::model_node`]) over model containers
//! ([`super::container_runtime`]).
//!
//! 1. Log events and reports pass as the link allows.
//! 2. A killed agent leaves its containers, and their reports on disk. The next agent continues from the
//!    former fold and adopts the containers.
//! 3. A node that loses power keeps only its disk.

use dormouse_agent_core::lease_holder::News;
use dormouse_agent_core::state::AgentState;
use dormouse_agent_core::{Effect, Lease, Offer};
use dormouse_messages::events::NodeJoined;
use dormouse_messages::{Amounts, ContainerId, NodeId, Timestamp};

use super::agent_link::Cut;
use super::agents::ModelAgents;
use super::faults::Faults;
use super::incarnation::fenced;
use super::model_node::{Ailment, ModelNode, Present};

impl ModelAgents {
    /// True if the node's agent is alive.
    pub fn is_up(&self, node: &NodeId) -> bool {
        self.nodes.get(node).is_some_and(|it| it.is_up)
    }

    /// Starts an agent on a node.
    pub fn boot(&mut self, node: &NodeId, capacity: &Amounts, now: Timestamp, faults: &mut Faults) {
        let offer = Offer::plain(node.clone(), capacity.clone(), "model");
        if self.is_up(node) {
            self.kill(node);
        }
        if self.standing.remove(node).is_some() {
            // A new agent on a suspended host means that the host was rebooted.
            self.reboot(node, now, faults);
        }
        self.ties.mend(node, now);
        match self.nodes.get_mut(node) {
            Some(it) => it.renew(Some(offer)),
            None => {
                let it = ModelNode::new(offer, AgentState::new(node.clone()));
                self.nodes.insert(node.clone(), Box::new(it));
            }
        }
        self.start_agent(node, now, faults);
    }

    pub(super) fn start_agent(&mut self, node: &NodeId, now: Timestamp, faults: &mut Faults) {
        self.with(node, |agents, it| {
            it.is_up = true;
            agents.late = !it.unheard.is_empty();
            it.catch_up();
            it.agent.caught_up();
            it.agent.lease(Lease::Held);
            agents.act(it, now, faults);
            agents.late = false;
        });
        self.pump(now, faults);
    }

    /// Starts an agent that a recorded log reports.
    pub fn joined(&mut self, event: &NodeJoined, now: Timestamp) {
        let node = &event.node;
        if !self.is_up(node) {
            let led = std::mem::replace(&mut self.led, true);
            self.boot(node, &event.capacity, now, &mut Faults::none());
            self.led = led;
        }
        if let Some(it) = self.nodes.get_mut(node) {
            it.agent.lease(Lease::Held);
            it.agent.has_joined(event.incarnation);
        }
    }

    /// Kills a node's agent and its pending starts. The containers run on.
    pub fn kill(&mut self, node: &NodeId) {
        let Some(it) = self.nodes.get_mut(node) else {
            return;
        };
        it.renew(None);
        let asked = |present: &Present| matches!(present, Present::Asked);
        let of = it.containers.iter().filter(|(_, (_, it))| asked(it));
        let of: Vec<ContainerId> = of.map(|(id, _)| id.clone()).collect();
        it.containers.retain(|_, (_, it)| !asked(it));
        for id in of {
            self.vanish(&id);
        }
        self.left_unanswered(node);
    }

    /// Kills a node with its containers and pending starts.
    pub fn lose(&mut self, node: &NodeId, now: Timestamp) {
        self.ties.die(node);
        self.standing.remove(node);
        if let Some(it) = self.nodes.get_mut(node) {
            it.renew(None);
            it.left.clear();
            it.containers.clear();
        }
        self.lose_containers(node, now);
    }

    /// Ends a node's containers, since the agent missed its lease.
    pub fn fence(&mut self, node: &NodeId, now: Timestamp, faults: &mut Faults) {
        self.with(node, |agents, it| {
            it.agent.lease(Lease::Fence);
            agents.act(it, now, faults);
        });
        self.pump(now, faults);
    }

    /// Ends a node's containers after the supervisor's deadline.
    pub fn supervisor_ends(&mut self, node: &NodeId, now: Timestamp, faults: &mut Faults) {
        self.with(node, |agents, it| {
            let runs = it.containers.iter();
            let runs = runs.filter(|(_, (_, it))| matches!(it, Present::Runs));
            for (id, _) in runs {
                agents.evict_on(node, id, fenced(), now);
            }
            agents.start_no_more(node, now);
        });
        self.pump(now, faults);
    }

    /// Ends a cut. Returns the milliseconds until the missed events arrive, if they are late.
    pub fn mend(&mut self, node: &NodeId, now: Timestamp, faults: &mut Faults) -> Option<u64> {
        let news = match self.ties.mend(node, now)? {
            (Cut::Killed, _) => {
                self.start_agent(node, now, faults);
                return None;
            }
            (Cut::Whole | Cut::Mute | Cut::Deaf, news) => news,
        };
        let behind_ms = Some(faults.behind_ms()).filter(|it| *it > 0);
        if behind_ms.is_some() {
            self.ties.stays_behind(node);
        }
        self.with(node, |agents, it| {
            if let Some(event) = it.unsent.take() {
                agents.said.push(event);
                it.agent.stored();
            }
            agents.late = true;
            // The supervisor has started nothing since its deadline, so the fence precedes the missed
            // events.
            if news.contains(&News::Fence) {
                it.agent.lease(Lease::Fence);
                agents.act(it, now, faults);
            }
            match behind_ms {
                None => it.catch_up(),
                Some(_) => {
                    let missed = it.unheard.len();
                    let first = faults.up_to(missed as u64);
                    it.hear(usize::try_from(first).unwrap_or(missed));
                }
            }
            if news.contains(&News::Held) {
                it.agent.lease(Lease::Held);
            }
            agents.act(it, now, faults);
            agents.late = false;
        });
        self.pump(now, faults);
        behind_ms
    }

    /// Delivers missed events to an agent.
    pub fn catch_up(&mut self, node: &NodeId, now: Timestamp, faults: &mut Faults) {
        if !self.ties.catches_up(node) {
            return;
        }
        self.with(node, |agents, it| {
            agents.late = true;
            it.catch_up();
            agents.act(it, now, faults);
            agents.late = false;
        });
        self.pump(now, faults);
    }

    pub(super) fn with(&mut self, node: &NodeId, does: impl FnOnce(&mut Self, &mut ModelNode)) {
        if let Some(mut it) = self.nodes.remove(node) {
            does(self, &mut it);
            self.nodes.insert(node.clone(), it);
        }
    }

    pub(super) fn pump(&mut self, now: Timestamp, faults: &mut Faults) {
        self.clock = now;
        while let Some((node, note)) = self.notes.pop_front() {
            let hears = self.ties.hears(&node);
            self.with(&node, |agents, it| {
                it.take(note, hears);
                agents.act(it, now, faults);
            });
        }
    }

    pub(super) fn has_stored(&mut self, node: &NodeId, now: Timestamp, faults: &mut Faults) {
        self.with(node, |agents, it| {
            it.agent.stored();
            agents.act(it, now, faults);
        });
        self.pump(now, faults);
    }

    fn act(&mut self, it: &mut ModelNode, now: Timestamp, faults: &mut Faults) {
        if !it.is_up {
            return;
        }
        it.agent.turn();
        while let Some(effect) = it.agent.next_effect() {
            self.carry_out(effect, it, now, faults);
        }
        if self.replicated {
            if it.outlet.is_free()
                && let Some(report) = it.agent.to_append()
            {
                it.outlet.begin(report.event);
                self.talks.push_back(it.agent.node().clone());
            }
            return;
        }
        while let Some(report) = it.agent.to_append() {
            if !self.ties.speaks(it.agent.node()) {
                it.unsent = Some(report.event);
                return;
            }
            it.agent.stored();
            if !self.led {
                self.said.push(report.event);
            }
        }
    }

    fn carry_out(
        &mut self,
        effect: Effect,
        it: &mut ModelNode,
        now: Timestamp,
        faults: &mut Faults,
    ) {
        match effect {
            Effect::List => it.adopt(),
            Effect::Start(id, request) => {
                it.containers.insert(id.clone(), (request, Present::Asked));
                match it.ails {
                    Some(Ailment::Starts(fault)) => self.cannot_start(it, id, fault, faults),
                    Some(Ailment::Answers) => {
                        self.begin(it.agent.state(), (&id, request), now, faults);
                        self.goes_unanswered(it, id, faults);
                    }
                    None => self.begin(it.agent.state(), (&id, request), now, faults),
                }
            }
            Effect::Stop(id) => self.stop(it.agent.state(), &id, now),
            Effect::Evict(id, reason) => {
                let exit = self.taken_away(&id).with_eviction(Some(reason));
                self.evict_on(it.agent.node(), &id, exit, now);
            }
            Effect::Save(id, _) => self.save(&id, now, faults),
            Effect::Give(id, _) => self.give(it.agent.state(), &id, now),
            Effect::Forget(id, _) => drop(it.containers.remove(&id)),
            Effect::Announce(job, incarnation, announced) => {
                let node = it.agent.node();
                self.announce(node, &(job, incarnation), &announced, now, faults);
            }
            Effect::Withdraw(..) => {}
        }
    }
}
