//! Nodes that cannot start what others can, and nodes that are started again.
//!
//! 1. A node whose disk is full, or that lacks an image, starts nothing: its agent says so at once, and
//!    whose fault it is.
//! 2. An engine that does not answer in time has done the work nevertheless: the container runs. It is
//!    ended, and only then its node says that it could not be started. Until then nobody makes it work. An
//!    agent that is started meanwhile finds it running, and adopts it.
//! 3. A node that is started again has nothing that runs. Its agent finds on its disk what did.

use dormouse_agent_core::{Exit, NotStarted};
use dormouse_messages::events::NodeFault;
use dormouse_messages::ids::{ContainerId, Rank};
use dormouse_messages::{NodeId, Timestamp};

use super::agents::{Due, LifeId, ModelAgents, container_id, life_of};
use super::faults::{Faults, Plant};
use super::nodes::{ModelNode, Note, Present};

/// What keeps a node from starting what others can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ailment {
    /// Every start fails at once.
    Starts(NodeFault),
    /// The engine starts a container, and its answer comes too late.
    Answers,
}

/// Until a container whose start was not answered is ended: short beside the two minutes that the
/// checkpointer waits for a start.
const REMOVAL_MS: u64 = 15_000;

/// So many starts for want of an image are the job's own failures: there is no such image.
const JOBS_OWN: u32 = 5;

fn unable(fault: NodeFault) -> Exit {
    let why = match fault {
        NodeFault::Engine => "the model's engine does not answer",
        NodeFault::Image => "the model's node has no such image",
        NodeFault::Disk | NodeFault::Processes | NodeFault::Checkpoints => {
            "the model's disk is full"
        }
    };
    Exit::cannot_start(&NotStarted::of_node(fault, why.to_owned()))
}

impl ModelAgents {
    /// What keeps a node from starting containers from now on.
    pub(super) fn ails(&mut self, node: &NodeId, ails: Option<Ailment>) {
        if let Some(it) = self.nodes.get_mut(node) {
            it.ails = ails;
        }
    }

    /// A node says that it cannot start a container.
    pub(super) fn cannot_start(
        &mut self,
        it: &ModelNode,
        id: ContainerId,
        fault: NodeFault,
        faults: &Faults,
    ) {
        if fault.may_be_the_jobs() {
            self.lacks_image(&id);
        }
        let exit = Exit {
            evicted: faults.plant() != Some(Plant::BlamedStarts),
            ..unable(fault)
        };
        let node = it.agent.node().clone();
        self.notes.push_back((node, Note::Ended(id, exit)));
    }

    /// A job whose image several nodes lack has a wrong one: then it fails for that.
    fn lacks_image(&mut self, id: &ContainerId) {
        let lacking = self.lacking.entry(id.job.clone()).or_default();
        lacking.insert(id.incarnation);
        if lacking.len() >= JOBS_OWN as usize {
            self.note_blame(&id.job, u32::MAX);
        }
    }

    /// What a container's engine answers to its start comes too late.
    pub(super) fn goes_unanswered(&mut self, it: &ModelNode, id: ContainerId, faults: &Faults) {
        if let Some(gang) = self.gangs.get_mut(&life_of(&id)) {
            gang.unanswered.insert(id.rank, None);
        }
        if faults.plant() == Some(Plant::UntrackedStarts) {
            let exit = unable(NodeFault::Engine);
            let node = it.agent.node().clone();
            self.notes.push_back((node, Note::Ended(id, exit)));
        }
    }

    pub(super) fn is_unanswered(&self, life: &LifeId, rank: Rank) -> bool {
        let gang = self.gangs.get(life);
        gang.is_some_and(|gang| gang.unanswered.contains_key(&rank))
    }

    /// A container runs, and its node does not know.
    pub(super) fn runs_unanswered(
        &mut self,
        life: &LifeId,
        rank: Rank,
        made_by: Due,
        now: Timestamp,
        faults: &mut Faults,
    ) {
        let Some(gang) = self.gangs.get_mut(life) else {
            return;
        };
        let Some((node, _)) = gang.containers.get(&rank).cloned() else {
            return;
        };
        if gang.stopping.contains(&rank)
            || gang
                .unanswered
                .insert(rank, Some(made_by))
                .flatten()
                .is_some()
        {
            return;
        }
        let id = container_id(life, rank);
        self.world.starts(&id, &node);
        let it = self.nodes.get_mut(&node);
        if let Some((_, present)) = it.and_then(|it| it.containers.get_mut(&id))
            && matches!(present, Present::Asked)
        {
            *present = Present::Runs;
        }
        let gone = now.plus_ms(faults.up_to(REMOVAL_MS));
        self.schedule(gone, life.clone(), Due::Removed(rank));
    }

    /// A container whose start was not answered is ended now.
    pub(super) fn removed(&mut self, life: &LifeId, rank: Rank, now: Timestamp) {
        if self.is_unanswered(life, rank) {
            self.evict(&container_id(life, rank), unable(NodeFault::Engine), now);
        }
    }

    /// The agent has died that waited for these answers: the next one finds what runs.
    pub(super) fn left_unanswered(&mut self, node: &NodeId) {
        let mut found = Vec::new();
        for (life, gang) in &mut self.gangs {
            let here = |rank: &Rank| gang.containers.get(rank).is_some_and(|(at, _)| at == node);
            let made_by = gang.unanswered.iter().filter(|(rank, _)| here(rank));
            let made_by: Vec<_> = made_by.map(|(rank, due)| (*rank, *due)).collect();
            for (rank, due) in made_by {
                gang.unanswered.remove(&rank);
                found.extend(due.map(|due| (life.clone(), due)));
            }
        }
        for (life, due) in found {
            self.schedule(self.clock, life, due);
        }
    }

    /// A node is started again; its agent was killed with it.
    pub(super) fn reboot(&mut self, node: &NodeId, now: Timestamp, faults: &Faults) {
        if let Some(it) = self.nodes.get_mut(node)
            && faults.plant() != Some(Plant::StaleMarks)
        {
            for (_, present) in it.containers.values_mut() {
                if matches!(present, Present::Runs) {
                    *present = Present::Ended(Exit::unseen());
                }
            }
        }
        self.lose_containers(node, now);
    }
}
