//! The replicas of a service that are ready, as their nodes' agents say.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{ContainerReady, PartitionResizeRequested};
use dormouse_messages::{ContainerId, Incarnation, NodeId};
use serde::{Deserialize, Serialize};

/// A service's replicas. Bounded by what its partition has: those of a life go with it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replicas {
    ready: BTreeMap<ContainerId, NodeId>,
    /// They are to go: what they say of themselves does not count any more.
    leaving: BTreeSet<ContainerId>,
}

impl Replicas {
    /// How many are ready.
    pub fn count(&self) -> u32 {
        u32::try_from(self.ready.len()).unwrap_or(u32::MAX)
    }

    /// One answers.
    pub fn ready(&mut self, event: &ContainerReady) {
        if !self.leaving.contains(&event.container) {
            self.ready
                .insert(event.container.clone(), event.node.clone());
        }
    }

    /// One does not answer any more.
    pub fn unready(&mut self, container: &ContainerId) {
        self.ready.remove(container);
    }

    /// One has ended.
    pub fn exited(&mut self, container: &ContainerId) {
        self.ready.remove(container);
        self.leaving.remove(container);
    }

    /// Some are to go.
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

    /// The change is over: who was to go has gone.
    pub fn resized(&mut self) {
        self.leaving.clear();
    }

    /// A life ends.
    pub fn stopping(&mut self, incarnation: Incarnation) {
        self.ready.retain(|it, _| it.incarnation != incarnation);
        self.leaving.retain(|it| it.incarnation != incarnation);
    }

    /// All on a node are gone.
    pub fn lost(&mut self, node: &NodeId) {
        self.ready.retain(|_, it| it != node);
    }

    /// The service is over.
    pub fn end(&mut self) {
        *self = Self::default();
    }
}
