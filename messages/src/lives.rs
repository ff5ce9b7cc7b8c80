//! Tracks the present incarnation of each node's agent. The loss or fence of an earlier incarnation can reach
//! the log after the next one joined and adopted its containers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::events::Event;
use crate::ids::NodeId;

/// The last incarnation that joined, by node.
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

    /// True if the end of this incarnation ends the node's containers: no later incarnation joined.
    #[must_use]
    pub fn ends(&self, node: &NodeId, incarnation: u64) -> bool {
        self.0.get(node).is_none_or(|life| *life <= incarnation)
    }
}
