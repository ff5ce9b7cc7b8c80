//! Which containers of a node run, as its agent knows it, for others to look at.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dormouse_messages::ContainerId;

#[derive(Debug, Default)]
struct Known {
    /// Whether the agent has looked what runs.
    complete: bool,
    running: BTreeSet<ContainerId>,
}

/// The containers that run. Until the agent has looked, each may.
#[derive(Debug, Clone, Default)]
pub struct Alive(Arc<Mutex<Known>>);

impl Alive {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that run are known from now on.
    pub fn know(&self) {
        self.known().complete = true;
    }

    /// It starts, or runs already.
    pub fn insert(&self, container: &ContainerId) {
        self.known().running.insert(container.clone());
    }

    /// It has ended.
    pub fn remove(&self, container: &ContainerId) {
        self.known().running.remove(container);
    }

    /// Whether it may still print.
    #[must_use]
    pub fn runs(&self, container: &ContainerId) -> bool {
        let known = self.known();
        !known.complete || known.running.contains(container)
    }
}
