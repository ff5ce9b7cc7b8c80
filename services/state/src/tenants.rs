//! What the operator has said of each tenant: weight, quota, bounds on its jobs, grants.

use std::collections::BTreeMap;

use dormouse_messages::grants::GrantBook;
use dormouse_messages::policy::Policy;
use dormouse_messages::{Amounts, Beside, Event, Quota, Recorded, Resource, TenantId};
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

/// A bound of a tenant's that one partition exceeds by itself: it cannot start, whatever ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Above<'a> {
    /// The containers that its jobs may have together.
    Containers {
        /// Those of the partition.
        needs: u32,
        /// The most.
        most: u32,
    },
    /// Its quota.
    Quota {
        /// Of which resource.
        resource: &'a Resource,
        /// What the partition needs of it.
        needs: u64,
        /// The most.
        most: u64,
    },
}

impl Above<'_> {
    /// The code, of a refusal and of a job that waits.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Containers { .. } => "above_max_containers",
            Self::Quota { .. } => "above_quota",
        }
    }

    /// What a job of `tenant` needs and what may be had, for a person.
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

    /// The same of one that was admitted before the bound was, with what to do.
    #[must_use]
    pub fn waits(&self, tenant: &str) -> String {
        let what = match self {
            Self::Containers { .. } => "them",
            Self::Quota { .. } => "the quota",
        };
        format!(
            "{}; it waits until the operator raises {what} (`dormouse tenant set {tenant}`), its minimum is lowered (`dormouse job revise`) or it is cancelled",
            self.words(tenant)
        )
    }
}

impl Tenants {
    /// Folds one event; says whether anything has changed.
    pub fn evolve(&mut self, recorded: &Recorded) -> bool {
        let Some(event) = recorded.event() else {
            return false;
        };
        match event {
            Event::TenantConfigured(event) => {
                let tenant = Tenant {
                    weight: event.weight.max(1),
                    quota: event.quota.clone(),
                    max_job_weight: event.max_job_weight,
                    priority: event.priority.unwrap_or(0),
                };
                self.configured.insert(event.tenant.clone(), tenant);
                true
            }
            Event::TenantRemoved(removed) => {
                self.configured.remove(&removed.tenant);
                self.grants.evolve(event)
            }
            _ => self.grants.evolve(event),
        }
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

    /// The bound that a partition with so many workers exceeds by itself. A service that may have no
    /// replica is measured by one.
    #[must_use]
    pub fn above(
        &self,
        name: &str,
        (demand, beside): (&Amounts, &Beside),
        workers: u32,
    ) -> Option<Above<'_>> {
        let workers = workers.max(1);
        let needs = beside.containers(workers);
        let most = self.grants.max_containers(name);
        if let Some(most) = most.filter(|most| needs > *most) {
            return Some(Above::Containers { needs, most });
        }
        let quota = self.quota(name)?;
        let partition = beside.partition(demand, workers);
        let (resource, most) = quota.exceeded_by(&partition)?;
        let needs = partition.get(resource);
        Some(Above::Quota {
            resource,
            needs,
            most,
        })
    }
}
