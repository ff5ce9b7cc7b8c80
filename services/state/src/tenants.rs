//! What the operator has said of each tenant: weight, quota, bounds on its jobs, grants.

use std::collections::BTreeMap;

use dormouse_messages::grants::GrantBook;
use dormouse_messages::policy::Policy;
use dormouse_messages::{Event, Quota, Recorded, TenantId};
use serde::{Deserialize, Serialize};

/// A configured tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// Its weight beside the others.
    pub weight: u32,
    /// The most it may have at one time; no bound where a resource is absent.
    pub quota: Quota,
    /// The largest weight of a job of it.
    pub max_job_weight: Option<u32>,
    /// The priority of its jobs that ask for none.
    pub priority: i32,
}

/// The configured tenants, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenants {
    configured: BTreeMap<TenantId, Tenant>,
    /// What was granted to them, and the cluster's rule for what was not.
    pub grants: GrantBook,
}

impl Tenants {
    /// Folds one event; says whether anything has changed.
    pub fn evolve(&mut self, recorded: &Recorded) -> bool {
        let Some(event) = recorded.event() else {
            return false;
        };
        let Event::TenantConfigured(event) = event else {
            return self.grants.evolve(event);
        };
        let tenant = Tenant {
            weight: event.weight.max(1),
            quota: event.quota.clone(),
            max_job_weight: event.max_job_weight,
            priority: event.priority.unwrap_or(0),
        };
        self.configured.insert(event.tenant.clone(), tenant);
        true
    }

    /// A tenant that was configured.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Tenant> {
        self.configured.get(name)
    }

    /// Every configured tenant, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&TenantId, &Tenant)> {
        self.configured.iter()
    }

    /// A tenant's weight: the policy's for one that was not configured.
    #[must_use]
    pub fn weight(&self, name: &str, policy: &Policy) -> u32 {
        self.get(name)
            .map_or(policy.unknown_weight.max(1), |tenant| tenant.weight)
    }

    /// A tenant's quota, where it has one.
    #[must_use]
    pub fn quota(&self, name: &str) -> Option<&Quota> {
        let quota = &self.get(name)?.quota;
        (!quota.is_empty()).then_some(quota)
    }
}
