//! Which tenant has an address: a fold of the log.

use std::collections::BTreeMap;

use dormouse_messages::{Event, Recorded, Sequence, TenantId};

/// Where a tenant's events are posted to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// The address.
    pub url: String,
    /// The event with which the tenant got an address; a later address takes over its place.
    pub since: Sequence,
}

/// The tenants with an address.
#[derive(Debug, Default)]
pub struct Hooks {
    by_tenant: BTreeMap<TenantId, Hook>,
}

impl Hooks {
    /// Folds an event; whether anything has changed.
    pub fn evolve(&mut self, recorded: &Recorded) -> bool {
        let event = match recorded.event() {
            Some(Event::WebhookConfigured(event)) => event,
            Some(Event::TenantRemoved(event)) => {
                return self.by_tenant.remove(&event.tenant).is_some();
            }
            _ => return false,
        };
        let Some(url) = &event.url else {
            return self.by_tenant.remove(&event.tenant).is_some();
        };
        let before = self.by_tenant.get(&event.tenant);
        let hook = Hook {
            url: url.clone(),
            since: before.map_or(recorded.sequence, |before| before.since),
        };
        before.is_none_or(|before| *before != hook) && {
            self.by_tenant.insert(event.tenant.clone(), hook);
            true
        }
    }

    /// A tenant's.
    pub fn get(&self, tenant: &TenantId) -> Option<&Hook> {
        self.by_tenant.get(tenant)
    }

    /// All, by tenant.
    pub fn iter(&self) -> impl Iterator<Item = (&TenantId, &Hook)> {
        self.by_tenant.iter()
    }
}
