//! Events about Slurm allocations.

use dormouse_messages::events::SlurmEvent;

use dormouse_messages::QueueId;

use super::ClusterState;
use crate::job::Job;
use crate::slurm::SlurmAllocation;

impl ClusterState {
    /// The nodes of a released allocation are drained. Names of nodes are used again, so an ended allocation
    /// leaves nothing behind.
    pub(super) fn evolve_slurm(&mut self, event: SlurmEvent<'_>) {
        let is_release = matches!(event, SlurmEvent::SlurmReleased(_));
        let nodes = self.slurm.evolve(event, self.sequence, self.now);
        if is_release {
            for node in &nodes {
                let changed = self.nodes.leaves(node);
                self.triggers_if(changed);
                self.displace(node, false);
            }
        }
        self.close_allocations();
    }

    /// Reports whether no container holds a node of the allocation, so that Slurm may have the nodes back.
    #[must_use]
    pub fn is_vacated(&self, queue: &QueueId, allocation: &SlurmAllocation) -> bool {
        !allocation.node_names(queue).any(|node| {
            let mut held = self.jobs.values().flat_map(Job::held);
            held.any(|(holder, _)| *holder == node)
        })
    }

    pub(super) fn close_allocations(&mut self) {
        if self.slurm.is_empty() {
            return;
        }
        let nodes = &self.nodes;
        for node in self.slurm.close(|node| nodes.get(node).is_some()) {
            self.nodes.forget(&node);
        }
    }
}
