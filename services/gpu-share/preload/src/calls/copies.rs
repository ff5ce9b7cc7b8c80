//! Copies and sets: large ones wait for the token, small ones pass.

use std::ffi::c_void;
use std::ptr;

use crate::state::gated;
use crate::symbols::{Address, Handle, Result};

/// From here on a copy waits: a megabyte takes some 50 µs of a link, as long as a small kernel.
const LARGE_BYTES: usize = 1 << 20;

/// `CUmemLocation`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Place {
    kind: u32,
    id: i32,
}

fn copied(bytes: usize, stream: Handle, of_thread: bool, copy: impl FnOnce() -> Result) -> Result {
    match bytes >= LARGE_BYTES {
        true => gated(stream, of_thread, copy),
        false => copy(),
    }
}

ours! { crate::driver::DRIVER;
    cuMemcpyHtoD_v2(to: Address, from: *const c_void, bytes: usize) |real| copied(bytes, ptr::null_mut(), false, real);
    cuMemcpyHtoD_v2_ptds(to: Address, from: *const c_void, bytes: usize) |real| copied(bytes, ptr::null_mut(), true, real);
    cuMemcpyDtoH_v2(to: *mut c_void, from: Address, bytes: usize) |real| copied(bytes, ptr::null_mut(), false, real);
    cuMemcpyDtoH_v2_ptds(to: *mut c_void, from: Address, bytes: usize) |real| copied(bytes, ptr::null_mut(), true, real);
    cuMemcpyDtoD_v2(to: Address, from: Address, bytes: usize) |real| copied(bytes, ptr::null_mut(), false, real);
    cuMemcpyDtoD_v2_ptds(to: Address, from: Address, bytes: usize) |real| copied(bytes, ptr::null_mut(), true, real);
    cuMemcpy(to: Address, from: Address, bytes: usize) |real| copied(bytes, ptr::null_mut(), false, real);
    cuMemcpy_ptds(to: Address, from: Address, bytes: usize) |real| copied(bytes, ptr::null_mut(), true, real);
    cuMemcpyPeer(to: Address, to_context: Handle, from: Address, from_context: Handle, bytes: usize) |real| copied(bytes, ptr::null_mut(), false, real);
    cuMemcpyPeer_ptds(to: Address, to_context: Handle, from: Address, from_context: Handle, bytes: usize) |real| copied(bytes, ptr::null_mut(), true, real);
    cuMemcpyHtoDAsync_v2(to: Address, from: *const c_void, bytes: usize, stream: Handle) |real| copied(bytes, stream, false, real);
    cuMemcpyHtoDAsync_v2_ptsz(to: Address, from: *const c_void, bytes: usize, stream: Handle) |real| copied(bytes, stream, true, real);
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: Address, bytes: usize, stream: Handle) |real| copied(bytes, stream, false, real);
    cuMemcpyDtoHAsync_v2_ptsz(to: *mut c_void, from: Address, bytes: usize, stream: Handle) |real| copied(bytes, stream, true, real);
    cuMemcpyDtoDAsync_v2(to: Address, from: Address, bytes: usize, stream: Handle) |real| copied(bytes, stream, false, real);
    cuMemcpyDtoDAsync_v2_ptsz(to: Address, from: Address, bytes: usize, stream: Handle) |real| copied(bytes, stream, true, real);
    cuMemcpyAsync(to: Address, from: Address, bytes: usize, stream: Handle) |real| copied(bytes, stream, false, real);
    cuMemcpyAsync_ptsz(to: Address, from: Address, bytes: usize, stream: Handle) |real| copied(bytes, stream, true, real);
    cuMemcpyPeerAsync(to: Address, to_context: Handle, from: Address, from_context: Handle, bytes: usize, stream: Handle) |real| copied(bytes, stream, false, real);
    cuMemcpyPeerAsync_ptsz(to: Address, to_context: Handle, from: Address, from_context: Handle, bytes: usize, stream: Handle) |real| copied(bytes, stream, true, real);
    cuMemcpy2D_v2(what: *const c_void) |real| gated(ptr::null_mut(), false, real);
    cuMemcpy2D_v2_ptds(what: *const c_void) |real| gated(ptr::null_mut(), true, real);
    cuMemcpy2DUnaligned_v2(what: *const c_void) |real| gated(ptr::null_mut(), false, real);
    cuMemcpy2DUnaligned_v2_ptds(what: *const c_void) |real| gated(ptr::null_mut(), true, real);
    cuMemcpy3D_v2(what: *const c_void) |real| gated(ptr::null_mut(), false, real);
    cuMemcpy3D_v2_ptds(what: *const c_void) |real| gated(ptr::null_mut(), true, real);
    cuMemcpy2DAsync_v2(what: *const c_void, stream: Handle) |real| gated(stream, false, real);
    cuMemcpy2DAsync_v2_ptsz(what: *const c_void, stream: Handle) |real| gated(stream, true, real);
    cuMemcpy3DAsync_v2(what: *const c_void, stream: Handle) |real| gated(stream, false, real);
    cuMemcpy3DAsync_v2_ptsz(what: *const c_void, stream: Handle) |real| gated(stream, true, real);
    cuMemsetD8_v2(to: Address, value: u8, count: usize) |real| copied(count, ptr::null_mut(), false, real);
    cuMemsetD8_v2_ptds(to: Address, value: u8, count: usize) |real| copied(count, ptr::null_mut(), true, real);
    cuMemsetD8Async(to: Address, value: u8, count: usize, stream: Handle) |real| copied(count, stream, false, real);
    cuMemsetD8Async_ptsz(to: Address, value: u8, count: usize, stream: Handle) |real| copied(count, stream, true, real);
    cuMemsetD16_v2(to: Address, value: u16, count: usize) |real| copied(count * 2, ptr::null_mut(), false, real);
    cuMemsetD16_v2_ptds(to: Address, value: u16, count: usize) |real| copied(count * 2, ptr::null_mut(), true, real);
    cuMemsetD16Async(to: Address, value: u16, count: usize, stream: Handle) |real| copied(count * 2, stream, false, real);
    cuMemsetD16Async_ptsz(to: Address, value: u16, count: usize, stream: Handle) |real| copied(count * 2, stream, true, real);
    cuMemsetD32_v2(to: Address, value: u32, count: usize) |real| copied(count * 4, ptr::null_mut(), false, real);
    cuMemsetD32_v2_ptds(to: Address, value: u32, count: usize) |real| copied(count * 4, ptr::null_mut(), true, real);
    cuMemsetD32Async(to: Address, value: u32, count: usize, stream: Handle) |real| copied(count * 4, stream, false, real);
    cuMemsetD32Async_ptsz(to: Address, value: u32, count: usize, stream: Handle) |real| copied(count * 4, stream, true, real);
    cuMemcpyBatchAsync(to: *mut c_void, from: *mut c_void, sizes: *mut c_void, count: usize, attributes: *mut c_void, indices: *mut c_void, kinds: usize, failed: *mut c_void, stream: Handle) |real| gated(stream, false, real);
    cuMemcpyBatchAsync_ptsz(to: *mut c_void, from: *mut c_void, sizes: *mut c_void, count: usize, attributes: *mut c_void, indices: *mut c_void, kinds: usize, failed: *mut c_void, stream: Handle) |real| gated(stream, true, real);
    cuMemcpyBatchAsync_v2(to: *mut c_void, from: *mut c_void, sizes: *mut c_void, count: usize, attributes: *mut c_void, indices: *mut c_void, kinds: usize, stream: Handle) |real| gated(stream, false, real);
    cuMemcpyBatchAsync_v2_ptsz(to: *mut c_void, from: *mut c_void, sizes: *mut c_void, count: usize, attributes: *mut c_void, indices: *mut c_void, kinds: usize, stream: Handle) |real| gated(stream, true, real);
    cuMemPrefetchAsync(at: Address, bytes: usize, device: i32, stream: Handle) |real| copied(bytes, stream, false, real);
    cuMemPrefetchAsync_ptsz(at: Address, bytes: usize, device: i32, stream: Handle) |real| copied(bytes, stream, true, real);
    cuMemPrefetchAsync_v2(at: Address, bytes: usize, place: Place, flags: u32, stream: Handle) |real| copied(bytes, stream, false, real);
    cuMemPrefetchAsync_v2_ptsz(at: Address, bytes: usize, place: Place, flags: u32, stream: Handle) |real| copied(bytes, stream, true, real);
}
