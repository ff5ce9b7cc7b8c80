//! The operator's settings for each tenant.

use std::collections::BTreeMap;

use dormouse_messages::events::TenantConfigured;
use dormouse_messages::grants::GrantBook;
use dormouse_messages::policy::Policy;
use dormouse_messages::{Amounts, AuxiliaryRoles, Quota, Resource, TenantId};
use serde::{Deserialize, Serialize};

/// A configured tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    pub weight: u32,
    /// Absent resources are unbounded.
    pub quota: Quota,
    pub max_job_weight: Option<u32>,
    /// Default for jobs.
    pub priority: i32,
}

/// The configured tenants, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenants {
    configured: BTreeMap<TenantId, Tenant>,
    /// Includes the cluster's default.
    pub grants: GrantBook,
}

/// A tenant's bound that one partition exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Above<'a> {
    /// All jobs together.
    Containers {
        /// The partition's containers.
        needs: u32,
        most: u32,
    },
    Quota {
        resource: &'a Resource,
        needs: u64,
        most: u64,
    },
}

impl Above<'_> {
    /// Returns the code of a refusal or a wait.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Containers { .. } => "above_max_containers",
            Self::Quota { .. } => "above_quota",
        }
    }

    /// Describes the excess to a person.
    #[must_use]
    pub fn words(&self, tenant: &str) -> String {
        match self {
            Self::Containers { needs, most } => format!(
                "it needs {needs} containers at the least and the jobs of {tenant} may have {most} together"
            ),
            Self::Quota {
                resource,
                needs,
                most,
            } => format!(
                "its smallest partition needs {} {} and the quota of {tenant} is {}",
                resource.display(*needs),
                resource.name(),
                resource.display(*most)
            ),
        }
    }

    /// Describes the wait and its remedies.
    #[must_use]
    pub fn waits(&self, tenant: &str) -> String {
        let (what, verb) = match self {
            Self::Containers { .. } => ("them", "grant"),
            Self::Quota { .. } => ("the quota", "set"),
        };
        format!(
            "{}; it waits until the operator raises {what} (`dormouse tenant {verb} {tenant}`), its minimum is lowered (`dormouse job update`) or it is cancelled",
            self.words(tenant)
        )
    }
}

impl Tenants {
    pub(crate) fn configured(&mut self, event: &TenantConfigured) {
        let tenant = Tenant {
            weight: event.weight.max(1),
            quota: event.quota.clone(),
            max_job_weight: event.max_job_weight,
            priority: event.priority.unwrap_or(0),
        };
        self.configured.insert(event.tenant.clone(), tenant);
    }

    pub(crate) fn removed(&mut self, tenant: &TenantId) {
        self.configured.remove(tenant);
        self.grants.removed(tenant);
    }

    /// Returns a configured tenant.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Tenant> {
        self.configured.get(name)
    }

    /// Iterates over the configured tenants, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&TenantId, &Tenant)> {
        self.configured.iter()
    }

    /// Returns the weight, or the policy's default.
    #[must_use]
    pub fn weight(&self, name: &str, policy: &Policy) -> u32 {
        self.get(name)
            .map_or(policy.unknown_weight.max(1), |tenant| tenant.weight)
    }

    /// Returns a tenant's quota, if set.
    #[must_use]
    pub fn quota(&self, name: &str) -> Option<&Quota> {
        let quota = &self.get(name)?.quota;
        (!quota.is_empty()).then_some(quota)
    }

    /// Returns the bound that `workers` exceed by themselves. A service counts at least one replica.
    #[must_use]
    pub fn above(
        &self,
        name: &str,
        (demand, auxiliary): (&Amounts, &AuxiliaryRoles),
        workers: u32,
    ) -> Option<Above<'_>> {
        let workers = workers.max(1);
        let needs = auxiliary.containers(workers);
        let most = self.grants.max_containers(name);
        if let Some(most) = most.filter(|most| needs > *most) {
            return Some(Above::Containers { needs, most });
        }
        let quota = self.quota(name)?;
        let partition = auxiliary.partition(demand, workers);
        let (resource, most) = quota.exceeded_by(&partition)?;
        let needs = partition.get(resource);
        Some(Above::Quota {
            resource,
            needs,
            most,
        })
    }
}
