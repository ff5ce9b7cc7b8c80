//! Allocations against the container's cap.

use std::sync::atomic::Ordering;

use crate::ledger::{Created, Key, Ledger};
use crate::state::{State, get};
use crate::symbols::{OUT_OF_MEMORY, Result};

fn take(state: &State, part: usize, bytes: u64) -> bool {
    let link = state.link();
    let counters = link.counters(part);
    // The slot first: if the process dies in between, too much is returned rather than too little.
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

/// `key` identifies the new allocation.
pub fn allocate(
    device: Option<i32>,
    bytes: u64,
    call: impl FnOnce() -> Result,
    key: impl FnOnce() -> Key,
) -> Result {
    taken(device, bytes, call, |ledger, part| {
        ledger.plain.insert(key(), (part, bytes));
    })
}

pub fn create(
    device: i32,
    bytes: u64,
    call: impl FnOnce() -> Result,
    handle: impl FnOnce() -> u64,
) -> Result {
    taken(Some(device), bytes, call, |ledger, part| {
        ledger.next += 1;
        let created = Created {
            part,
            bytes,
            handles: 1,
            mappings: 0,
        };
        ledger.created.insert(ledger.next, created);
        ledger.handles.insert(handle(), ledger.next);
    })
}

fn taken(
    device: Option<i32>,
    bytes: u64,
    call: impl FnOnce() -> Result,
    note: impl FnOnce(&mut Ledger, usize),
) -> Result {
    let part = |state: &'static State| match device {
        Some(device) => state.part_of(device),
        None => state.part(),
    };
    let Some((state, part)) = get().and_then(|it| Some((it, part(it)?))) else {
        return call();
    };
    // No link changes in between.
    let mut ledger = state.ledger();
    if !take(state, part, bytes) {
        return OUT_OF_MEMORY;
    }
    let result = call();
    match result {
        0 => note(&mut ledger, part),
        _ => give(state, part, bytes),
    }
    result
}

/// Only the driver knew the size; false if the cap forbids more.
pub fn grow(key: Key, more: u64) -> bool {
    let Some(state) = get() else {
        return true;
    };
    let mut ledger = state.ledger();
    let Some((part, bytes)) = ledger.plain.get_mut(&key) else {
        return true;
    };
    let taken = take(state, *part, more);
    if taken {
        *bytes += more;
    }
    taken
}

pub fn free(key: Key, call: impl FnOnce() -> Result) -> Result {
    let Some(state) = get() else {
        return call();
    };
    // Before the call: afterwards another thread may get the number.
    let mut ledger = state.ledger();
    let known = ledger.plain.remove(&key);
    let result = call();
    match (known, result) {
        (Some((part, bytes)), 0) => give(state, part, bytes),
        (Some(known), _) => {
            ledger.plain.insert(key, known);
        }
        (None, _) => {}
    }
    result
}

/// Records the effect of `call` on handles and mappings.
fn noted(
    call: impl FnOnce() -> Result,
    note: impl FnOnce(&mut Ledger) -> Vec<(usize, u64)>,
) -> Result {
    let Some(state) = get() else {
        return call();
    };
    let mut ledger = state.ledger();
    let result = call();
    if result == 0 {
        for (part, bytes) in note(&mut ledger) {
            give(state, part, bytes);
        }
    }
    result
}

pub fn release(handle: u64, call: impl FnOnce() -> Result) -> Result {
    noted(call, |ledger| {
        let id = ledger.handles.get(&handle).copied();
        let free =
            id.and_then(|id| ledger.less(id, |it| it.handles = it.handles.saturating_sub(1)));
        free.into_iter().collect()
    })
}

pub fn retain(at: u64, call: impl FnOnce() -> Result, handle: impl FnOnce() -> u64) -> Result {
    noted(call, |ledger| {
        let before = ledger.mappings.range(..=at).next_back();
        let of = before.filter(|(from, (bytes, _))| at - **from < *bytes);
        if let Some(id) = of.map(|(_, (_, id))| *id)
            && let Some(created) = ledger.created.get_mut(&id)
        {
            created.handles += 1;
            ledger.handles.insert(handle(), id);
        }
        Vec::new()
    })
}

pub fn map(at: u64, bytes: u64, handle: u64, call: impl FnOnce() -> Result) -> Result {
    noted(call, |ledger| {
        if let Some(id) = ledger.handles.get(&handle).copied()
            && let Some(created) = ledger.created.get_mut(&id)
        {
            created.mappings += 1;
            ledger.mappings.insert(at, (bytes, id));
        }
        Vec::new()
    })
}

pub fn unmap(at: u64, bytes: u64, call: impl FnOnce() -> Result) -> Result {
    noted(call, |ledger| {
        let range = ledger.mappings.range(at..at.saturating_add(bytes));
        let gone: Vec<(u64, u64)> = range.map(|(from, (_, id))| (*from, *id)).collect();
        let mut free = Vec::new();
        for (from, id) in gone {
            ledger.mappings.remove(&from);
            free.extend(ledger.less(id, |it| it.mappings = it.mappings.saturating_sub(1)));
        }
        free
    })
}

/// Free and total bytes; `real` is the driver's answer.
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
