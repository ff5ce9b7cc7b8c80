//! What the operator says of the cluster.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::grants::Grants;
use crate::ids::{NodeId, TenantId};
use crate::policy::Policy;
use crate::quota::Quota;
use crate::who::Role;

/// The policy in force from here on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterConfigured {
    /// The whole policy.
    pub policy: Policy,
}

/// What a tenant is entitled to from here on; it replaces what was said before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TenantConfigured {
    /// The tenant.
    pub tenant: TenantId,
    /// Its weight beside the other tenants, 1 or more.
    pub weight: u32,
    /// The most it may have at one time, by resource; no bound where a resource is absent.
    #[serde(default)]
    pub quota: Quota,
    /// The largest weight that a job of it may ask for; no bound where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_job_weight: Option<u32>,
    /// The priority in its own queue of jobs that ask for none; 0 where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
}

/// Where a tenant's events are posted to, from here on; see `docs/webhooks.md`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WebhookConfigured {
    /// The tenant.
    pub tenant: TenantId,
    /// The address, `https://…` or `http://…`; absent: nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// What a tenant's jobs may have of the nodes, and how much it may submit, from here on; it
/// replaces what was granted before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TenantGranted {
    /// The tenant.
    pub tenant: TenantId,
    /// What it is granted.
    #[serde(flatten)]
    pub grants: Grants,
}

/// All that was said of a tenant is forgotten, what it is granted and where its events are posted to
/// included: it is as one that nobody has named. Jobs of it that live go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TenantRemoved {
    /// The tenant.
    pub tenant: TenantId,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A node takes no containers from here on; what it runs moves away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeDrained {
    /// The node.
    pub node: NodeId,
    /// Why; shown with the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Jobs that cannot move are stopped so many seconds later, and start again elsewhere; without it
    /// they stay until they end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_s: Option<u32>,
}

/// A drained node takes containers again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeRestored {
    /// The node.
    pub node: NodeId,
}

/// Labels and taints of a node are others from here on, also of one that has not joined yet. What
/// runs there runs on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeLabelled {
    /// The node.
    pub node: NodeId,
    /// Labels with their new values; without a value a label is taken away.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Option<String>>,
    /// Taints that are put on the node (true) or taken away.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub taints: BTreeMap<String, bool>,
}

/// A node that is lost, or drained and empty, is forgotten. Its agent may join again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeRemoved {
    /// The node.
    pub node: NodeId,
}

/// A key was made at the brokers, with an account of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyCreated {
    /// Its name, as its file has it: `user-ads.alice`, `tenant-ads`, `operator-olga`, `node-n0`.
    pub name: String,
    /// The tenant, of a tenant's plain key and of those of its people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// What a person may do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The public key.
    pub key: String,
}

/// Another key was made for who had one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyRotated {
    /// Its name, as of `key.created`, or a service's.
    pub name: String,
    /// The tenant, where it is one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// The new public key.
    pub key: String,
    /// Keys that are not valid any more; 0: the one before stays valid until the next time.
    pub revoked: u32,
}

/// Every key of somebody was taken away; their connections are closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyRevoked {
    /// Their name, as of `key.created`.
    pub name: String,
    /// The tenant, where it is one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// How many keys.
    pub revoked: u32,
}
