//! The present incarnation of each node's agent. An earlier one's loss can follow the next one's join, which
//! adopted its containers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;

/// Each node's last incarnation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Incarnations(BTreeMap<NodeId, u64>);

impl Incarnations {
    /// Records a join.
    pub fn joined(&mut self, node: &NodeId, incarnation: u64) {
        self.0.insert(node.clone(), incarnation);
    }

    /// Returns a node's last incarnation.
    #[must_use]
    pub fn get(&self, node: &NodeId) -> Option<u64> {
        self.0.get(node).copied()
    }

    /// True if no later incarnation joined, so that the containers end, too.
    #[must_use]
    pub fn ends(&self, node: &NodeId, incarnation: u64) -> bool {
        self.get(node).is_none_or(|last| last <= incarnation)
    }
}
