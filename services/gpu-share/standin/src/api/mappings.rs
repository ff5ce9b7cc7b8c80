//! Memory by handle, which lives as long as a handle or a mapping.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{answer, memory};
use crate::local::{INVALID_VALUE, Local, give, with};

/// References per handle; mappings by first address, with length and handle.
#[derive(Debug, Default)]
struct Mappings {
    holders: BTreeMap<u64, u32>,
    mappings: BTreeMap<u64, (u64, u64)>,
}

static MAPPINGS: Mutex<Mappings> = Mutex::new(Mappings {
    holders: BTreeMap::new(),
    mappings: BTreeMap::new(),
});

fn mappings() -> MutexGuard<'static, Mappings> {
    MAPPINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mappings {
    fn leave(&mut self, handle: u64) -> i32 {
        let is_mapped = self.mappings.values().any(|(_, of)| *of == handle);
        if is_mapped || self.holders.get(&handle) != Some(&0) {
            return 0;
        }
        self.holders.remove(&handle);
        give(handle)
    }
}

unsafe fn create(to: *mut u64, bytes: usize, properties: *const [i32; 4]) -> i32 {
    // SAFETY: the caller's pointers, by the driver's manual.
    let result = unsafe { memory::created(to, bytes, properties) };
    if result == 0 {
        // SAFETY: written just now.
        mappings().holders.insert(unsafe { *to }, 1);
    }
    result
}

fn release(handle: u64) -> i32 {
    let mut mappings = mappings();
    match mappings.holders.get_mut(&handle) {
        Some(0) | None => return INVALID_VALUE,
        Some(holders) => *holders -= 1,
    }
    mappings.leave(handle)
}

fn retain(to: *mut u64, at: u64) -> i32 {
    let mut mappings = mappings();
    let before = mappings.mappings.range(..=at).next_back();
    let of = before.filter(|(from, (bytes, _))| at - **from < *bytes);
    let Some(handle) = of.map(|(_, (_, handle))| *handle) else {
        return INVALID_VALUE;
    };
    *mappings.holders.entry(handle).or_default() += 1;
    answer(to, handle)
}

fn map(at: u64, bytes: u64, handle: u64) -> i32 {
    let mut mappings = mappings();
    if mappings.holders.get(&handle).is_none_or(|it| *it == 0) {
        return INVALID_VALUE;
    }
    mappings.mappings.insert(at, (bytes, handle));
    0
}

fn unmap(at: u64, bytes: u64) -> i32 {
    let mut mappings = mappings();
    let range = mappings.mappings.range(at..at + bytes);
    let gone: Vec<(u64, u64)> = range.map(|(from, (_, of))| (*from, *of)).collect();
    for (from, handle) in gone {
        mappings.mappings.remove(&from);
        mappings.leave(handle);
    }
    0
}

/// Addresses far from those of allocations.
fn reserve(to: *mut u64) -> i32 {
    answer(to, with(Local::number) << 40)
}

api! {
    cuMemCreate(to: *mut u64, bytes: usize, properties: *const [i32; 4], _flags: u64) unsafe { create(to, bytes, properties) };
    cuMemRelease(handle: u64) release(handle);
    cuMemRetainAllocationHandle(to: *mut u64, at: u64) retain(to, at);
    cuMemAddressReserve(to: *mut u64, _bytes: usize, _align: usize, _at: u64, _flags: u64) reserve(to);
    cuMemAddressFree(_at: u64, _bytes: usize) 0;
    cuMemMap(at: u64, bytes: usize, _offset: usize, handle: u64, _flags: u64) map(at, bytes as u64, handle);
    cuMemUnmap(at: u64, bytes: usize) unmap(at, bytes as u64);
}
