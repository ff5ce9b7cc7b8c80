//! Keys created, rotated and revoked through the command line.

use std::collections::{BTreeMap, VecDeque};

use dormouse_messages::{By, Event, Fact, Role, Sequence, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

/// The first act and the latest.
const ACTS: usize = 16;

/// Every name with a present or past key.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Keys(BTreeMap<String, KeyHolder>);

/// A principal with a present or past key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeyHolder {
    /// Set for a tenant's keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Absent once revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Oldest first.
    pub acts: VecDeque<KeyAct>,
}

/// One act on a key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeyAct {
    pub what: KeyDone,
    pub sequence: Sequence,
    pub at: Timestamp,
    /// Absent for the shared key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
}

/// The kind of an act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyDone {
    Created,
    Rotated,
    /// The previous key stays valid.
    Added,
    Revoked,
}

impl KeyDone {
    /// Returns words for a sentence.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Rotated => "rotated",
            Self::Added => "rotated, the one before being kept,",
            Self::Revoked => "revoked",
        }
    }
}

impl Keys {
    /// Folds one event.
    pub fn evolve(&mut self, fact: &Fact<'_>) {
        let Some(event) = fact.event() else {
            return;
        };
        let (name, tenant, key, what) = match event {
            Event::KeyCreated(it) => (&it.name, &it.tenant, Some(&it.key), KeyDone::Created),
            Event::KeyRotated(it) if it.revoked == 0 => {
                (&it.name, &it.tenant, Some(&it.key), KeyDone::Added)
            }
            Event::KeyRotated(it) => (&it.name, &it.tenant, Some(&it.key), KeyDone::Rotated),
            Event::KeyRevoked(it) => (&it.name, &it.tenant, None, KeyDone::Revoked),
            _ => return,
        };
        let holder = self.0.entry(name.clone()).or_insert_with(|| KeyHolder {
            tenant: tenant.clone(),
            role: None,
            key: None,
            acts: VecDeque::new(),
        });
        if let Event::KeyCreated(created) = event {
            holder.role = created.role;
        }
        holder.key = key.cloned();
        if holder.acts.len() >= ACTS {
            // Tells who admitted the principal.
            holder.acts.remove(1);
        }
        holder.acts.push_back(KeyAct {
            what,
            sequence: fact.sequence,
            at: fact.at,
            by: fact.by(),
        });
    }

    /// Returns a tenant's names.
    pub fn of(&self, tenant: &str) -> impl Iterator<Item = (&str, &KeyHolder)> {
        let is_of = move |holder: &KeyHolder| {
            holder
                .tenant
                .as_ref()
                .is_some_and(|it| it.as_str() == tenant)
        };
        let names = self.0.iter().filter(move |(_, holder)| is_of(holder));
        names.map(|(name, holder)| (name.as_str(), holder))
    }
}
