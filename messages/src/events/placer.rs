//! What the placer decides: which containers stand where, and who is a member.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Basis;
use crate::ids::{ContainerId, Epoch, GatewayId, Incarnation, JobId, NodeId, Rank, Sequence};
use crate::time::Timestamp;

/// Containers to create and to remove. A job that is created again is listed whole, under its
/// next incarnation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlacementDecided {
    /// The allocation that it places.
    pub epoch: Epoch,
    /// Containers to create.
    pub create: Vec<PlacedContainer>,
    /// Containers to remove.
    pub remove: Vec<RemovedContainer>,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// A container's place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlacedContainer {
    /// The job.
    pub job: JobId,
    /// Its partition's life.
    pub incarnation: Incarnation,
    /// The place in the gang.
    pub rank: Rank,
    /// The node.
    pub node: NodeId,
    /// UUIDs of the GPUs it may use.
    #[serde(default)]
    pub gpus: Vec<String>,
    /// The first of the [`PORTS_PER_CONTAINER`] consecutive ports that are its own on the node.
    #[serde(default)]
    pub port: u16,
}

/// MXNet needs a scheduler's, a server's and a worker's port, MPICH its control port: 8 leaves
/// room, and 1,500 containers a node fit below the ephemeral ports.
pub const PORTS_PER_CONTAINER: u16 = 8;

/// A container that is to go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RemovedContainer {
    /// The job.
    pub job: JobId,
    /// Its partition's life.
    pub incarnation: Incarnation,
    /// The place in the gang.
    pub rank: Rank,
    /// The node.
    pub node: NodeId,
}

/// An allocation that cannot be placed; the optimizer decides again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlacementRefused {
    /// The allocation.
    pub epoch: Epoch,
    /// Why.
    pub reason: String,
    /// The containers that find no room.
    pub short: Vec<Short>,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// Containers of a job that find no room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Short {
    /// The job.
    pub job: JobId,
    /// How many.
    pub containers: u32,
    /// The resource that is short.
    pub resource: String,
}

/// A node's lease has ended. An observation: it is recorded, not re-executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeLost {
    /// The node.
    pub node: NodeId,
    /// The agent's life that was lost.
    pub incarnation: u64,
    /// When its lease was last renewed.
    pub last_seen: Timestamp,
}

/// A lost node has joined again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeRecovered {
    /// The node.
    pub node: NodeId,
    /// When it was last seen before.
    pub last_seen: Timestamp,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// Starts have failed on a node several times in a row for reasons of its own: nothing is placed
/// there for a while. What runs there runs on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeQuarantined {
    /// The node.
    pub node: NodeId,
    /// What happened, for a person.
    pub reason: String,
    /// When it is tried again: each time twice as long as the time before.
    pub until: Timestamp,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// A node's quarantine is over: it is tried again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeReadmitted {
    /// The node.
    pub node: NodeId,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// The clock that stamps the log stepped: another broker leads, or its clock was set. Time-outs
/// go on as if it had not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockStepped {
    /// The first event that has the other clock's time.
    pub sequence: Sequence,
    /// By how many milliseconds; below 0: back.
    pub by_ms: i64,
    /// What it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

impl RemovedContainer {
    /// The container's id.
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
    /// The container's id.
    #[must_use]
    pub fn container(&self) -> ContainerId {
        ContainerId {
            job: self.job.clone(),
            incarnation: self.incarnation,
            rank: self.rank,
        }
    }
}

/// A gateway has not renewed its lease for too long: nobody waits for its word any more. One that
/// lives after all joins again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayLost {
    /// The gateway.
    pub gateway: GatewayId,
    /// When its lease was last renewed, by the broker's time; the epoch if it never was.
    pub last_seen: Timestamp,
}
