//! The webhook of each tenant, as a fold of the log.

use std::collections::BTreeMap;

use dormouse_messages::{Event, Fold, Recorded, Sequence, TenantId};
use serde::{Deserialize, Serialize};

/// A tenant's webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    pub url: String,
    /// The event that first set an address; a new address continues there.
    pub since: Sequence,
}

/// All webhooks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hooks {
    by_tenant: BTreeMap<TenantId, Hook>,
}

impl Fold for Hooks {
    const NAME: &'static str = "webhooks";
    const VERSION: u32 = 1;

    fn evolve(&mut self, recorded: &Recorded) {
        match recorded.event() {
            Some(Event::TenantRemoved(event)) => {
                self.by_tenant.remove(&event.tenant);
            }
            Some(Event::WebhookConfigured(event)) => match &event.url {
                None => {
                    self.by_tenant.remove(&event.tenant);
                }
                Some(url) => {
                    let before = self.by_tenant.get(&event.tenant);
                    let hook = Hook {
                        url: url.clone(),
                        since: before.map_or(recorded.sequence, |before| before.since),
                    };
                    self.by_tenant.insert(event.tenant.clone(), hook);
                }
            },
            _ => {}
        }
    }
}

impl Hooks {
    /// Reports whether the event may change a webhook.
    #[must_use]
    pub const fn concerns(event: &Event) -> bool {
        matches!(event, Event::WebhookConfigured(_) | Event::TenantRemoved(_))
    }

    /// Returns a tenant's webhook.
    #[must_use]
    pub fn get(&self, tenant: &TenantId) -> Option<&Hook> {
        self.by_tenant.get(tenant)
    }

    /// Returns all, by tenant.
    pub fn iter(&self) -> impl Iterator<Item = (&TenantId, &Hook)> {
        self.by_tenant.iter()
    }
}
