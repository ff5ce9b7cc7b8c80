//! Injects start faults and reboots into nodes.
//!
//! 1. A node with a full disk, or without an image, starts nothing and reports the fault at once.
//! 2. An engine that answers too late has started the container. The container does no work and ends
//!    before the node reports a failed start, unless a new agent adopts it.
//! 3. A rebooted node runs nothing. Its agent finds the former containers on its disk.

use dormouse_agent_core::{Exit, NotStarted};
use dormouse_messages::events::NodeFault;
use dormouse_messages::ids::{ContainerId, Rank};
use dormouse_messages::{NodeId, Timestamp};

use super::agents::ModelAgents;
use super::faults::{Faults, Plant};
use super::incarnation::{Due, IncarnationId, container_id, incarnation_of};
use super::model_node::{Ailment, ModelNode, Note, Present};

/// Short compared to the checkpointer's two minutes of waiting for a start.
const REMOVAL_MS: u64 = 15_000;

/// After this many starts without an image, the image does not exist: the job's own failure.
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
    pub(super) fn ails(&mut self, node: &NodeId, ails: Option<Ailment>) {
        if let Some(it) = self.nodes.get_mut(node) {
            it.ails = ails;
        }
    }

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

    fn lacks_image(&mut self, id: &ContainerId) {
        let lacking = self.lacking.entry(id.job.clone()).or_default();
        lacking.insert(id.incarnation);
        if lacking.len() >= JOBS_OWN as usize {
            self.note_blame(&id.job, u32::MAX);
        }
    }

    /// Delays the engine's answer to a start beyond the limit.
    pub(super) fn goes_unanswered(&mut self, it: &ModelNode, id: ContainerId, faults: &Faults) {
        if let Some(gang) = self.gangs.get_mut(&incarnation_of(&id)) {
            gang.unanswered.insert(id.rank, None);
        }
        if faults.plant() == Some(Plant::UntrackedStarts) {
            let exit = unable(NodeFault::Engine);
            let node = it.agent.node().clone();
            self.notes.push_back((node, Note::Ended(id, exit)));
        }
    }

    pub(super) fn is_unanswered(&self, incarnation: &IncarnationId, rank: Rank) -> bool {
        let gang = self.gangs.get(incarnation);
        gang.is_some_and(|gang| gang.unanswered.contains_key(&rank))
    }

    pub(super) fn runs_unanswered(
        &mut self,
        incarnation: &IncarnationId,
        rank: Rank,
        made_by: Due,
        now: Timestamp,
        faults: &mut Faults,
    ) {
        let Some(gang) = self.gangs.get_mut(incarnation) else {
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
        let id = container_id(incarnation, rank);
        self.world.starts(&id, &node);
        let it = self.nodes.get_mut(&node);
        if let Some((_, present)) = it.and_then(|it| it.containers.get_mut(&id))
            && matches!(present, Present::Asked)
        {
            *present = Present::Runs;
        }
        let gone = now.plus_ms(faults.up_to(REMOVAL_MS));
        self.schedule(gone, incarnation.clone(), Due::Removed(rank));
    }

    pub(super) fn removed(&mut self, incarnation: &IncarnationId, rank: Rank, now: Timestamp) {
        if self.is_unanswered(incarnation, rank) {
            self.evict(
                &container_id(incarnation, rank),
                unable(NodeFault::Engine),
                now,
            );
        }
    }

    pub(super) fn left_unanswered(&mut self, node: &NodeId) {
        let mut found = Vec::new();
        for (incarnation, gang) in &mut self.gangs {
            let here = |rank: &Rank| gang.containers.get(rank).is_some_and(|(at, _)| at == node);
            let made_by = gang.unanswered.iter().filter(|(rank, _)| here(rank));
            let made_by: Vec<_> = made_by.map(|(rank, due)| (*rank, *due)).collect();
            for (rank, due) in made_by {
                gang.unanswered.remove(&rank);
                found.extend(due.map(|due| (incarnation.clone(), due)));
            }
        }
        for (incarnation, due) in found {
            self.schedule(self.clock, incarnation, due);
        }
    }

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
