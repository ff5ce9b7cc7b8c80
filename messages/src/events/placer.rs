//! Events of the placer: places of containers, and membership of nodes.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Basis;
use crate::format::{Build, Format};
use crate::ids::{ContainerId, Epoch, GatewayId, Incarnation, JobId, NodeId, Rank, Sequence};
use crate::time::Timestamp;

/// Containers to create and to remove. A restarted job is listed whole, under its next incarnation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlacementDecided {
    /// The placed allocation.
    pub epoch: Epoch,
    /// Containers to create.
    pub create: Vec<PlacedContainer>,
    /// Containers to remove.
    pub remove: Vec<RemovedContainer>,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// The place of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlacedContainer {
    /// The job.
    pub job: JobId,
    /// Incarnation of the partition.
    pub incarnation: Incarnation,
    /// Rank in the gang.
    pub rank: Rank,
    /// The node.
    pub node: NodeId,
    /// UUIDs of the container's GPUs.
    #[serde(default)]
    pub gpus: Vec<String>,
    /// The first of the container's [`PORTS_PER_CONTAINER`] consecutive ports on the node.
    #[serde(default)]
    pub port: u16,
}

/// For MXNet's scheduler, server and worker and MPICH's control port. 1,500 containers a node fit below the
/// ephemeral ports.
pub const PORTS_PER_CONTAINER: u16 = 8;

/// A container to remove.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RemovedContainer {
    /// The job.
    pub job: JobId,
    /// Incarnation of the partition.
    pub incarnation: Incarnation,
    /// Rank in the gang.
    pub rank: Rank,
    /// The node.
    pub node: NodeId,
}

/// An allocation that cannot be placed; the optimizer decides again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlacementRefused {
    /// Epoch of the allocation.
    pub epoch: Epoch,
    /// Containers that their nodes cannot take.
    pub unplaceable: Vec<Unplaceable>,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// Containers that a node cannot take, since it changed after the decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unplaceable {
    /// The job.
    pub job: JobId,
    /// The node.
    pub node: NodeId,
    /// Number of containers, those that run there already included.
    pub containers: u32,
    /// The node's shortcoming.
    pub why: WhyUnplaceable,
}

impl fmt::Display for Unplaceable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            job,
            node,
            containers,
            why,
        } = self;
        write!(f, "{job} cannot have {containers} on {node}: {why}")
    }
}

/// The reason why a node cannot take containers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhyUnplaceable {
    /// The node is lost, drained, quarantined or removed.
    Unusable,
    /// The node's labels or taints rule the job out.
    NotAllowed,
    /// The node has too little of this resource.
    Short(String),
}

impl fmt::Display for WhyUnplaceable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unusable => f.write_str("the node takes no containers"),
            Self::NotAllowed => f.write_str("the node's labels or taints rule the job out"),
            Self::Short(resource) => write!(f, "the node has too little {resource}"),
        }
    }
}

/// A node's lease ended. This observation is recorded, not re-executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeLost {
    /// The node.
    pub node: NodeId,
    /// Incarnation of the agent.
    pub incarnation: u64,
    /// Time of the last renewal of its lease.
    pub last_seen: Timestamp,
}

/// A lost node joined again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeRecovered {
    /// The node.
    pub node: NodeId,
    /// Time of the last renewal before the loss.
    pub last_seen: Timestamp,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// Several starts in a row failed because of the node, which gets no containers for a while.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeQuarantined {
    /// The node.
    pub node: NodeId,
    /// The failures, for a person.
    pub reason: String,
    /// Time of the next attempt; the interval doubles each time.
    pub until: Timestamp,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// A node's quarantine ended: the node is tried again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeReadmitted {
    /// The node.
    pub node: NodeId,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// The clock that stamps the log stepped: another broker leads, or its clock was set. Time-outs ignore the
/// step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockStepped {
    /// The first event stamped by the other clock.
    pub sequence: Sequence,
    /// Milliseconds of the step; negative for a step back.
    pub by_ms: i64,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

impl RemovedContainer {
    /// Returns the container's id.
    #[must_use]
    pub fn container(&self) -> ContainerId {
        ContainerId {
            job: self.job.clone(),
            incarnation: self.incarnation,
            rank: self.rank,
        }
    }
}

impl PlacedContainer {
    /// Returns the container's id.
    #[must_use]
    pub fn container(&self) -> ContainerId {
        ContainerId {
            job: self.job.clone(),
            incarnation: self.incarnation,
            rank: self.rank,
        }
    }
}

/// A gateway did not renew its lease, and nobody waits for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayLost {
    /// The gateway.
    pub gateway: GatewayId,
    /// Time of the last renewal by the broker's clock.
    pub last_seen: Timestamp,
}

/// A process that writes or follows the log runs a build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BuildJoined {
    /// Service and instance, such as `agent/n0` or `optimizer/host1-3fa2`.
    pub process: String,
    /// The build.
    pub build: Build,
}

/// A process ended, or did not renew its lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BuildLeft {
    /// Service and instance.
    pub process: String,
}

/// Every living process reads a newer format, which is written from here on; an older build refuses to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterUpgraded {
    /// The format.
    pub format: Format,
    /// Basis of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}
