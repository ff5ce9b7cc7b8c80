//! The ready replicas of a service, as reported by agents.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{ContainerReady, PartitionResizeRequested};
use dormouse_messages::{ContainerId, Incarnation, NodeId};
use serde::{Deserialize, Serialize};

/// A service's replicas, bounded by its partition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replicas {
    ready: BTreeMap<ContainerId, NodeId>,
    /// Their reports no longer count.
    leaving: BTreeSet<ContainerId>,
}

impl Replicas {
    /// Returns the ready replicas.
    pub fn count(&self) -> u32 {
        u32::try_from(self.ready.len()).unwrap_or(u32::MAX)
    }

    /// Adds a ready replica.
    pub fn ready(&mut self, event: &ContainerReady) {
        if !self.leaving.contains(&event.container) {
            self.ready
                .insert(event.container.clone(), event.node.clone());
        }
    }

    /// Removes an unready replica.
    pub fn unready(&mut self, container: &ContainerId) {
        self.ready.remove(container);
    }

    /// Removes an ended replica.
    pub fn exited(&mut self, container: &ContainerId) {
        self.ready.remove(container);
        self.leaving.remove(container);
    }

    /// Marks leaving replicas.
    pub fn resizing(&mut self, event: &PartitionResizeRequested) {
        for rank in &event.leave {
            let container = ContainerId {
                job: event.job.clone(),
                incarnation: event.incarnation,
                rank: *rank,
            };
            self.ready.remove(&container);
            self.leaving.insert(container);
        }
    }

    /// Clears the leaving replicas.
    pub fn resized(&mut self) {
        self.leaving.clear();
    }

    /// Removes an incarnation's replicas.
    pub fn stopping(&mut self, incarnation: Incarnation) {
        self.ready.retain(|it, _| it.incarnation != incarnation);
        self.leaving.retain(|it| it.incarnation != incarnation);
    }

    /// Removes the replicas on a node.
    pub fn lost(&mut self, node: &NodeId) {
        self.ready.retain(|_, it| it != node);
    }

    /// Removes all replicas.
    pub fn end(&mut self) {
        *self = Self::default();
    }
}
