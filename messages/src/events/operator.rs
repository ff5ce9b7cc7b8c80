//! What the operator says of the cluster.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::NodeId;
use crate::policy::Policy;

/// The policy in force from here on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterConfigured {
    /// The whole policy.
    pub policy: Policy,
}

/// A node takes no containers from here on; what it runs moves away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeDrained {
    /// The node.
    pub node: NodeId,
}

/// A drained node takes containers again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeRestored {
    /// The node.
    pub node: NodeId,
}
