//! The present life of each node's agent: that an earlier one was lost, or that its containers have
//! ended, may come on the log after the next one has joined and has taken over what runs. Pure; every
//! fold asks it that forgets what a lost node ran.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::events::Event;
use crate::ids::NodeId;

/// The last life that joined, for each node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Lives(BTreeMap<NodeId, u64>);

impl Lives {
    /// Folds one event.
    pub fn evolve(&mut self, event: &Event) {
        if let Event::NodeJoined(event) = event {
            self.0.insert(event.node.clone(), event.incarnation);
        }
    }

    /// Whether a node's life is over with the loss of this one: no later one has joined.
    #[must_use]
    pub fn ends(&self, node: &NodeId, incarnation: u64) -> bool {
        self.0.get(node).is_none_or(|life| *life <= incarnation)
    }
}
