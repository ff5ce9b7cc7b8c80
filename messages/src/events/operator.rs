//! Events of the operator: policy, tenants, nodes and keys.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::budget::TenantBudget;
use crate::format::Format;
use crate::grants::Grants;
use crate::ids::{NodeId, QueueId, ReservationId, TenantId};
use crate::policy::Policy;
use crate::quota::Quota;
use crate::reservation::Reservation;
use crate::slurm::SlurmQueue;
use crate::who::Role;

/// A new policy takes effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterConfigured {
    /// The whole policy.
    pub policy: Policy,
}

/// A tenant's entitlement from now on; replaces the previous one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TenantConfigured {
    /// The tenant.
    pub tenant: TenantId,
    /// The tenant's weight among tenants, 1 or more.
    pub weight: u32,
    /// Limit on simultaneous use by resource.
    #[serde(default)]
    pub quota: Quota,
    /// Limit on the weight of a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_job_weight: Option<u32>,
    /// Default priority of its jobs in its queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
}

/// A tenant's budget from now on; replaces the previous one. Use counts from the first budget on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetConfigured {
    /// The tenant.
    pub tenant: TenantId,
    /// The budget; absent for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<TenantBudget>,
}

/// A reservation from now on; replaces the previous one of this name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReservationConfigured {
    /// The reservation.
    pub reservation: ReservationId,
    /// Its settings.
    #[serde(flatten)]
    pub settings: Reservation,
}

/// A reservation ends, and is forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReservationRemoved {
    /// The reservation.
    pub reservation: ReservationId,
}

/// The destination of a tenant's events from now on; see `docs/clients.md`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WebhookConfigured {
    /// The tenant.
    pub tenant: TenantId,
    /// Address, `https://…` or `http://…`; absent for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// A tenant's grants from now on; replaces the previous ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TenantGranted {
    /// The tenant.
    pub tenant: TenantId,
    /// The grants.
    #[serde(flatten)]
    pub grants: Grants,
}

/// A tenant's settings, grants and webhook are forgotten. Its live jobs continue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TenantRemoved {
    /// The tenant.
    pub tenant: TenantId,
    /// Reason, for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A node takes no containers from now on, and its jobs move away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeDrained {
    /// The node.
    pub node: NodeId,
    /// Reason, shown with the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Seconds until jobs that cannot move are restarted elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_s: Option<u32>,
}

/// A drained node takes containers again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeRestored {
    /// The node.
    pub node: NodeId,
}

/// A node's labels and taints change, also before the node joins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeLabelled {
    /// The node.
    pub node: NodeId,
    /// Labels with new values; no value removes the label.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Option<String>>,
    /// Taints to add (true) or remove (false).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub taints: BTreeMap<String, bool>,
}

/// A node that is lost, or drained and empty, is forgotten. Its agent may join again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeRemoved {
    /// The node.
    pub node: NodeId,
}

/// A key was created at the brokers, with an account of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyCreated {
    /// Name in the key's file: `user-ads.alice`, `tenant-ads`, `operator-olga`, `node-n0`.
    pub name: String,
    /// The tenant, for its plain key and its users' keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// The user's role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The public key.
    pub key: String,
}

/// A new key replaced a principal's key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyRotated {
    /// Name as in `key.created`, or a service.
    pub name: String,
    /// The tenant, for a tenant's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// The new public key.
    pub key: String,
    /// Number of revoked keys; 0 if the previous key stays valid.
    pub revoked: u32,
}

/// All keys of a principal were revoked and their connections closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyRevoked {
    /// Name as in `key.created`.
    pub name: String,
    /// The tenant, for a tenant's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// Number of revoked keys.
    pub revoked: u32,
}

/// The cluster may be upgraded to a format. Asked for where the policy says `upgrades: manual`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UpgradeApproved {
    /// The newest approved format.
    pub format: Format,
}

/// A queue of Slurm allocations has these settings from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlurmQueueConfigured {
    /// The queue.
    pub queue: QueueId,
    /// The settings.
    #[serde(flatten)]
    pub settings: SlurmQueue,
}

/// A queue of Slurm allocations ends: its allocations are given back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlurmQueueRemoved {
    /// The queue.
    pub queue: QueueId,
}
