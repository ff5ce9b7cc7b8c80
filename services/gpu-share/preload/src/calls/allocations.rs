//! Every allocation of device memory, checked against the cap. Memory opened from another process (IPC)
//! counts where it was allocated.

use crate::ledger::Key;
use crate::memory::{allocate, create, free, grow, map, release, retain, unmap};
use crate::symbols::{Address, Handle, OUT_OF_MEMORY, Result};

const PITCH: usize = 512;

#[repr(C)]
#[derive(Debug)]
pub struct Properties {
    kind: u32,
    handles: u32,
    place_kind: u32,
    place: i32,
}

#[repr(C)]
#[derive(Debug)]
pub struct Array {
    width: usize,
    height: usize,
    format: u32,
    channels: u32,
}

#[repr(C)]
#[derive(Debug)]
pub struct Array3d {
    width: usize,
    height: usize,
    depth: usize,
    format: u32,
    channels: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Debug)]
pub struct External {
    kind: u32,
    handle: [u64; 2],
    bytes: u64,
}

const ON_DEVICE: u32 = 1;

/// A format that names its channels overrides the descriptor's count; an unknown format counts as the largest
/// element. Source: `CUarray_format` of CUDA 13's `cuda.h`.
fn element_bytes(format: u32, channels: u32) -> u64 {
    let channels = u64::from(channels.max(1));
    match format {
        0x01 | 0x08 => channels,
        0x02 | 0x09 | 0x10 => 2 * channels,
        0x03 | 0x0a | 0x20 => 4 * channels,
        0xc0 | 0xc6 => channels,
        0xc1 | 0xc7 => channels.max(2),
        0xc2 | 0xc8 => channels.max(4),
        0xc3 | 0xc9 => 2 * channels,
        0xc4 | 0xca => 2 * channels.max(2),
        0xc5 | 0xcb => 2 * channels.max(4),
        _ => (4 * channels).max(16),
    }
}

fn array_bytes(sides: [usize; 3], format: u32, channels: u32) -> u64 {
    let cells = sides.iter().map(|side| (*side as u64).max(1));
    let cells = cells.fold(1, u64::saturating_mul);
    cells.saturating_mul(element_bytes(format, channels))
}

fn size2(at: *const Array) -> u64 {
    // SAFETY: the caller's pointer, which the driver reads, too.
    unsafe { at.as_ref() }.map_or(0, |it| {
        array_bytes([it.width, it.height, 1], it.format, it.channels)
    })
}

fn size3(at: *const Array3d) -> u64 {
    // SAFETY: as above.
    unsafe { at.as_ref() }.map_or(0, |it| {
        array_bytes([it.width, it.height, it.depth], it.format, it.channels)
    })
}

fn external_bytes(at: *const External) -> u64 {
    // SAFETY: as above.
    unsafe { at.as_ref() }.map_or(0, |it| it.bytes)
}

fn written(at: *const u64) -> u64 {
    // SAFETY: the driver wrote it before.
    unsafe { at.as_ref() }.map_or(0, |it| *it)
}

fn linear(to: *mut Address, bytes: usize, call: impl FnOnce() -> Result) -> Result {
    allocate(None, bytes as u64, call, || Key::Address(written(to)))
}

fn pitched(
    to: *mut Address,
    pitch: *const usize,
    (width, height): (usize, usize),
    call: impl FnOnce() -> Result,
) -> Result {
    // All known devices align rows like this.
    let least = (width.next_multiple_of(PITCH) * height) as u64;
    let result = allocate(None, least, call, || Key::Address(written(to)));
    if result != 0 {
        return result;
    }
    let key = Key::Address(written(to));
    // SAFETY: the driver wrote it.
    let rows = unsafe { *pitch } * height;
    if grow(key, (rows as u64).saturating_sub(least)) {
        return result;
    }
    // SAFETY: just allocated, and known to nobody else.
    unsafe { cuMemFree_v2(written(to)) };
    OUT_OF_MEMORY
}

fn created(
    to: *mut u64,
    bytes: usize,
    properties: *const Properties,
    call: impl FnOnce() -> Result,
) -> Result {
    // SAFETY: the caller's pointer, which the driver reads, too.
    match unsafe { properties.as_ref() } {
        Some(it) if it.place_kind == ON_DEVICE => {
            create(it.place, bytes as u64, call, || written(to))
        }
        _ => call(),
    }
}

/// Each level is at most a quarter of the previous one.
fn mipmap_bytes(first: u64, levels: u32) -> u64 {
    match levels {
        0 | 1 => first,
        _ => first.saturating_add(first.div_ceil(3)),
    }
}

ours! { crate::driver::DRIVER;
    cuMemAlloc_v2(to: *mut Address, bytes: usize) |real| linear(to, bytes, real);
    cuMemAllocManaged(to: *mut Address, bytes: usize, flags: u32) |real| linear(to, bytes, real);
    cuMemAllocPitch_v2(to: *mut Address, pitch: *mut usize, width: usize, height: usize, element: u32)
        |real| pitched(to, pitch, (width, height), real);
    cuMemAllocAsync(to: *mut Address, bytes: usize, stream: Handle) |real| linear(to, bytes, real);
    cuMemAllocAsync_ptsz(to: *mut Address, bytes: usize, stream: Handle) |real| linear(to, bytes, real);
    cuMemAllocFromPoolAsync(to: *mut Address, bytes: usize, pool: Handle, stream: Handle)
        |real| linear(to, bytes, real);
    cuMemAllocFromPoolAsync_ptsz(to: *mut Address, bytes: usize, pool: Handle, stream: Handle)
        |real| linear(to, bytes, real);
    cuMemFree_v2(at: Address) |real| free(Key::Address(at), real);
    cuMemFreeAsync(at: Address, stream: Handle) |real| free(Key::Address(at), real);
    cuMemFreeAsync_ptsz(at: Address, stream: Handle) |real| free(Key::Address(at), real);
    cuMemCreate(to: *mut u64, bytes: usize, properties: *const Properties, flags: u64)
        |real| created(to, bytes, properties, real);
    cuMemRelease(handle: u64) |real| release(handle, real);
    cuMemRetainAllocationHandle(to: *mut u64, at: Address) |real| retain(at, real, || written(to));
    cuMemMap(at: Address, bytes: usize, offset: usize, handle: u64, flags: u64)
        |real| map(at, bytes as u64, handle, real);
    cuMemUnmap(at: Address, bytes: usize) |real| unmap(at, bytes as u64, real);
    cuArrayCreate_v2(to: *mut u64, array: *const Array)
        |real| allocate(None, size2(array), real, || Key::Array(written(to)));
    cuArray3DCreate_v2(to: *mut u64, array: *const Array3d)
        |real| allocate(None, size3(array), real, || Key::Array(written(to)));
    cuArrayDestroy(array: u64) |real| free(Key::Array(array), real);
    cuMipmappedArrayCreate(to: *mut u64, array: *const Array3d, levels: u32)
        |real| allocate(None, mipmap_bytes(size3(array), levels), real, || Key::Mipmap(written(to)));
    cuMipmappedArrayDestroy(array: u64) |real| free(Key::Mipmap(array), real);
    cuImportExternalMemory(to: *mut u64, what: *const External)
        |real| allocate(None, external_bytes(what), real, || Key::External(written(to)));
    cuDestroyExternalMemory(what: u64) |real| free(Key::External(what), real);
}
