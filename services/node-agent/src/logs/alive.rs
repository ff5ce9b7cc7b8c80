//! The containers that run on a node, shared with readers of their output.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dormouse_messages::ContainerId;

#[derive(Debug, Default)]
struct Known {
    /// True once the agent has listed the containers.
    complete: bool,
    running: BTreeSet<ContainerId>,
}

/// The running containers. Before the agent's first list, every container counts as running.
#[derive(Debug, Clone, Default)]
pub struct Alive(Arc<Mutex<Known>>);

impl Alive {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the list as complete.
    pub fn know(&self) {
        self.known().complete = true;
    }

    /// Adds a starting or running container.
    pub fn insert(&self, container: &ContainerId) {
        self.known().running.insert(container.clone());
    }

    /// Removes an ended container.
    pub fn remove(&self, container: &ContainerId) {
        self.known().running.remove(container);
    }

    /// Reports whether the container may still print.
    #[must_use]
    pub fn runs(&self, container: &ContainerId) -> bool {
        let known = self.known();
        !known.complete || known.running.contains(container)
    }
}
