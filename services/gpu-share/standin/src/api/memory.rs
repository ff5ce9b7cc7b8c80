//! Allocations of device memory.

use std::ffi::{c_int, c_void};

use super::{Handle, answer};
use crate::local::{self, INVALID_VALUE, give, take};

const PITCH: usize = 512;

fn allocate(to: *mut u64, bytes: usize) -> i32 {
    allocate_on(to, bytes, None)
}

fn allocate_on(to: *mut u64, bytes: usize, device: Option<usize>) -> i32 {
    match take(device, bytes as u64) {
        Ok(at) => answer(to, at),
        Err(result) => result,
    }
}

/// The device is the fourth number of `CUmemAllocationProp`.
pub(super) unsafe fn created(to: *mut u64, bytes: usize, properties: *const [i32; 4]) -> i32 {
    // SAFETY: properties, by the driver's manual.
    match unsafe { properties.as_ref() } {
        Some([_, _, 1, device]) => allocate_on(to, bytes, usize::try_from(*device).ok()),
        _ => INVALID_VALUE,
    }
}

/// Bits of an element by format and channels, as in the driver's manual.
const fn element_bits(format: u32, channels: usize) -> usize {
    match format {
        0x01 | 0x08 => 8 * channels,
        0x02 | 0x09 | 0x10 => 16 * channels,
        // Four channels of one byte; of two.
        0xc2 | 0xc8 | 0xa8 => 32,
        0xc5 | 0xcb | 0xb1 => 64,
        // Planes of luminance and half-size colour; of two bytes each.
        0xb0 => 12,
        0x9f | 0xa1 => 24,
        // Blocks of sixteen elements in eight bytes; in sixteen.
        0x91 | 0x92 | 0x97 | 0x98 => 4,
        0x93..=0x96 | 0x99..=0x9e => 8,
        _ => 32 * channels,
    }
}

/// Sides, then format and channels.
unsafe fn array(to: *mut u64, sides: *const usize, dimensions: usize, levels: u32) -> i32 {
    // SAFETY: a descriptor, by the driver's manual.
    let sides = unsafe { std::slice::from_raw_parts(sides, dimensions + 1) };
    let (format, channels) = (sides[dimensions] as u32, sides[dimensions] >> 32);
    let cells: usize = sides[..dimensions].iter().map(|it| (*it).max(1)).product();
    let first = cells * element_bits(format, channels) / 8;
    let more: usize = (1..levels).map(|level| first >> (2 * level)).sum();
    allocate(to, first + more)
}

unsafe fn external(to: *mut u64, what: *const [u64; 4]) -> i32 {
    // SAFETY: a descriptor, by the driver's manual.
    match unsafe { what.as_ref() } {
        Some([_, _, _, bytes]) => allocate(to, *bytes as usize),
        None => INVALID_VALUE,
    }
}

fn information(free: *mut usize, total: *mut usize) -> i32 {
    let known = local::on_device(|gpu, device, _| (gpu.free_bytes(device), gpu.total_bytes));
    let (free_bytes, total_bytes) = match known {
        Ok(known) => known,
        Err(result) => return result,
    };
    if !free.is_null() {
        answer(free, free_bytes as usize);
    }
    if !total.is_null() {
        answer(total, total_bytes as usize);
    }
    0
}

api! {
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) information(free, total);
    cuMemAlloc_v2(to: *mut u64, bytes: usize) allocate(to, bytes);
    cuMemAllocManaged(to: *mut u64, bytes: usize, _flags: u32) allocate(to, bytes);
    cuMemAllocPitch_v2(to: *mut u64, pitch: *mut usize, width: usize, height: usize, _element: u32) {
        let row = width.next_multiple_of(PITCH);
        answer(pitch, row);
        allocate(to, row * height)
    };
    cuMemAllocAsync(to: *mut u64, bytes: usize, _stream: Handle) allocate(to, bytes);
    cuMemAllocAsync_ptsz(to: *mut u64, bytes: usize, _stream: Handle) allocate(to, bytes);
    cuMemAllocFromPoolAsync(to: *mut u64, bytes: usize, _pool: Handle, _stream: Handle) allocate(to, bytes);
    cuMemAllocFromPoolAsync_ptsz(to: *mut u64, bytes: usize, _pool: Handle, _stream: Handle) allocate(to, bytes);
    cuMemFree_v2(at: u64) give(at);
    cuMemFreeAsync(at: u64, _stream: Handle) give(at);
    cuMemFreeAsync_ptsz(at: u64, _stream: Handle) give(at);
    cuArrayCreate_v2(to: *mut u64, sides: *const usize) unsafe { array(to, sides, 2, 1) };
    cuArray3DCreate_v2(to: *mut u64, sides: *const usize) unsafe { array(to, sides, 3, 1) };
    cuArrayDestroy(at: u64) give(at);
    cuMipmappedArrayCreate(to: *mut u64, sides: *const usize, levels: u32) unsafe { array(to, sides, 3, levels) };
    cuMipmappedArrayDestroy(at: u64) give(at);
    cuImportExternalMemory(to: *mut u64, what: *const [u64; 4]) unsafe { external(to, what) };
    cuDestroyExternalMemory(what: u64) give(what);
    cuDeviceGetDefaultMemPool(to: *mut u64, _device: c_int) answer(to, 1);
    cuMemPoolTrimTo(_pool: Handle, _bytes: usize) 0;
    standinHide(bytes: usize) local::take(None, bytes as u64).err().unwrap_or(0);
    cuMemHostAlloc(_to: *mut *mut c_void, _bytes: usize, _flags: c_int) local::NOT_SUPPORTED;
}
