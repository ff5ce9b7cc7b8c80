//! The present incarnation of each node's agent. An earlier one's loss can follow the next one's join, which
//! adopted its containers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::events::{Event, NodeJoined};
use crate::ids::NodeId;

/// Each node's last incarnation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Incarnations(BTreeMap<NodeId, u64>);

impl Incarnations {
    /// Folds one event.
    pub fn evolve(&mut self, event: &Event) {
        if let Event::NodeJoined(event) = event {
            self.joined(event);
        }
    }

    /// Records a join.
    pub fn joined(&mut self, event: &NodeJoined) {
        self.0.insert(event.node.clone(), event.incarnation);
    }

    /// True if no later incarnation joined, so that the containers end, too.
    #[must_use]
    pub fn ends(&self, node: &NodeId, incarnation: u64) -> bool {
        self.0.get(node).is_none_or(|last| *last <= incarnation)
    }
}
