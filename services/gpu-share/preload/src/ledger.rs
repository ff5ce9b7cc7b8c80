//! The process's allocations, by part of a device.

use std::collections::BTreeMap;

/// Numbers of different kinds may coincide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Address(u64),
    Array(u64),
    Mipmap(u64),
    External(u64),
}

#[derive(Debug)]
pub(crate) struct Created {
    pub(crate) part: usize,
    pub(crate) bytes: u64,
    pub(crate) handles: u32,
    pub(crate) mappings: u32,
}

#[derive(Debug, Default)]
pub struct Ledger {
    pub(crate) plain: BTreeMap<Key, (usize, u64)>,
    /// Keyed by own numbers: the driver may reuse a handle while a mapping lives.
    pub(crate) created: BTreeMap<u64, Created>,
    pub(crate) next: u64,
    pub(crate) handles: BTreeMap<u64, u64>,
    /// By first address: length and allocation.
    pub(crate) mappings: BTreeMap<u64, (u64, u64)>,
}

impl Ledger {
    #[must_use]
    pub fn sums(&self) -> BTreeMap<usize, u64> {
        let mut sums = BTreeMap::new();
        let created = self.created.values().map(|it| (it.part, it.bytes));
        for (part, bytes) in self.plain.values().copied().chain(created) {
            *sums.entry(part).or_default() += bytes;
        }
        sums
    }

    pub(crate) fn less(
        &mut self,
        id: u64,
        less: impl FnOnce(&mut Created),
    ) -> Option<(usize, u64)> {
        let created = self.created.get_mut(&id)?;
        less(created);
        if created.handles > 0 {
            return None;
        }
        self.handles.retain(|_, of| *of != id);
        if created.mappings > 0 {
            return None;
        }
        let created = self.created.remove(&id)?;
        Some((created.part, created.bytes))
    }
}
