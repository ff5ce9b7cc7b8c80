//! The keys that operators made, replaced and took away while the brokers ran: whose each is, and what
//! became of it, when and by whom.
//!
//! Only what was said through the command line is on the log. Keys of a file of accounts are not.

use std::collections::{BTreeMap, VecDeque};

use dormouse_messages::{By, Event, Fact, Role, Sequence, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

/// What is kept of the life of one name: who gave it its first key, and the latest.
const ACTS: usize = 16;

/// Every name that has or had a key.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Keys(BTreeMap<String, KeyHolder>);

/// Who has or had a key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeyHolder {
    /// The tenant, of a tenant's plain key and of those of its people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// What a person may do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The public key that was made last; absent: it has none any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What was done, the latest last.
    pub acts: VecDeque<KeyAct>,
}

/// Something that was done with a key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeyAct {
    /// What.
    pub what: KeyDone,
    /// The event.
    pub sequence: Sequence,
    /// When.
    pub at: Timestamp,
    /// Who did it; absent: the owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
}

/// What can be done with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyDone {
    /// It was made.
    Created,
    /// Another one was made instead.
    Rotated,
    /// Another one was made, and the one before stays valid.
    Added,
    /// It was taken away.
    Revoked,
}

impl KeyDone {
    /// In a sentence.
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
    /// Folds an event.
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
            // The first one says who let it in.
            holder.acts.remove(1);
        }
        holder.acts.push_back(KeyAct {
            what,
            sequence: fact.sequence,
            at: fact.at,
            by: fact.by(),
        });
    }

    /// The names of a tenant: its plain key's and its people's.
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
