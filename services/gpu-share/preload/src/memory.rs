//! What the process has allocated, by allocation, and the container's cap.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use crate::state::{State, get};
use crate::symbols::{OUT_OF_MEMORY, Result};

/// What an allocation is known by: numbers of different kinds may be the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Address(u64),
    Handle(u64),
    Array(u64),
    Mipmap(u64),
    External(u64),
}

/// The allocations, with their part of the page and their bytes.
#[derive(Debug, Default)]
pub struct Ledger(BTreeMap<Key, (usize, u64)>);

impl Ledger {
    /// The sums by part.
    #[must_use]
    pub fn sums(&self) -> BTreeMap<usize, u64> {
        let mut sums = BTreeMap::new();
        for (part, bytes) in self.0.values() {
            *sums.entry(*part).or_default() += bytes;
        }
        sums
    }
}

fn take(state: &State, part: usize, bytes: u64) -> bool {
    let link = state.link();
    let counters = link.counters(part);
    // The slot first: if the process dies between the two, too much is given back, not too little.
    counters.memory_bytes.fetch_add(bytes, Ordering::AcqRel);
    let taken = link.page().parts[part].reserve(bytes);
    if !taken {
        counters.memory_bytes.fetch_sub(bytes, Ordering::AcqRel);
        counters.refusals.fetch_add(1, Ordering::AcqRel);
    }
    taken
}

fn give(state: &State, part: usize, bytes: u64) {
    let link = state.link();
    link.page().parts[part].release(bytes);
    let counters = link.counters(part);
    counters.memory_bytes.fetch_sub(bytes, Ordering::AcqRel);
}

/// Allocates `bytes` on the calling thread's device (or on `device`) by `call`, if the cap leaves
/// them; `key` says afterwards what was allocated.
pub fn allocate(
    device: Option<i32>,
    bytes: u64,
    call: impl FnOnce() -> Result,
    key: impl FnOnce() -> Key,
) -> Result {
    let part = |state: &'static State| match device {
        Some(device) => state.part_of(device),
        None => state.part(),
    };
    let Some((state, part)) = get().and_then(|it| Some((it, part(it)?))) else {
        return call();
    };
    // The ledger is held throughout, so that no link is changed in between.
    let mut ledger = state.ledger();
    if !take(state, part, bytes) {
        return OUT_OF_MEMORY;
    }
    let result = call();
    match result {
        0 => {
            ledger.0.insert(key(), (part, bytes));
        }
        _ => give(state, part, bytes),
    }
    result
}

/// Counts `more` bytes to an allocation whose size only the driver knew; false if the cap does not
/// leave them.
pub fn grow(key: Key, more: u64) -> bool {
    let Some(state) = get() else {
        return true;
    };
    let mut ledger = state.ledger();
    let Some((part, bytes)) = ledger.0.get_mut(&key) else {
        return true;
    };
    let taken = take(state, *part, more);
    if taken {
        *bytes += more;
    }
    taken
}

/// Frees by `call`.
pub fn free(key: Key, call: impl FnOnce() -> Result) -> Result {
    let Some(state) = get() else {
        return call();
    };
    // Before the call: afterwards another thread may have been given the same number.
    let mut ledger = state.ledger();
    let known = ledger.0.remove(&key);
    let result = call();
    match (known, result) {
        (Some((part, bytes)), 0) => give(state, part, bytes),
        (Some(known), _) => {
            ledger.0.insert(key, known);
        }
        (None, _) => {}
    }
    result
}

/// What a device has, as the container sees it: free and total bytes. `real` is the driver's answer.
#[must_use]
pub fn seen(part: usize, real: (u64, u64)) -> (u64, u64) {
    let Some(state) = get() else {
        return real;
    };
    let link = state.link();
    let part = &link.page().parts[part];
    let cap = part.cap_bytes.load(Ordering::Acquire);
    let used = part.memory_bytes.load(Ordering::Acquire);
    let free = cap.saturating_sub(used).min(real.0);
    (free, cap.min(real.1))
}
