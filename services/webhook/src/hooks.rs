//! The webhook of each tenant, as a fold of the log.

use std::collections::BTreeMap;

use dormouse_messages::{Event, Recorded, Sequence, TenantId};

/// A tenant's webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    pub url: String,
    /// The event that first set an address; a new address continues there.
    pub since: Sequence,
}

/// All webhooks.
#[derive(Debug, Default)]
pub struct Hooks {
    by_tenant: BTreeMap<TenantId, Hook>,
}

impl Hooks {
    /// Folds an event; reports whether a webhook has changed.
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

    /// Returns a tenant's webhook.
    pub fn get(&self, tenant: &TenantId) -> Option<&Hook> {
        self.by_tenant.get(tenant)
    }

    /// Returns all, by tenant.
    pub fn iter(&self) -> impl Iterator<Item = (&TenantId, &Hook)> {
        self.by_tenant.iter()
    }
}
