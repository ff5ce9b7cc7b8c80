//! Copies of contiguous bytes: large ones wait for the token, small ones pass.

use std::ffi::c_void;
use std::ptr;

use super::contexts::waited;
use crate::state::gated;
use crate::symbols::{Address, Handle, Result};

/// A megabyte takes some 50 µs, like a small kernel.
pub const LARGE_BYTES: usize = 1 << 20;

pub fn copied(
    bytes: usize,
    stream: Handle,
    of_thread: bool,
    copy: impl FnOnce() -> Result,
) -> Result {
    if bytes >= LARGE_BYTES {
        gated(stream, of_thread, copy)
    } else {
        copy()
    }
}

/// The program waits for the default stream, so finished work is measured.
pub fn copied_now(bytes: usize, of_thread: bool, copy: impl FnOnce() -> Result) -> Result {
    waited(|| copied(bytes, ptr::null_mut(), of_thread, copy))
}

ours! { crate::driver::DRIVER;
    cuMemcpyHtoD_v2(to: Address, from: *const c_void, bytes: usize) |real| copied_now(bytes, false, real);
    cuMemcpyHtoD_v2_ptds(to: Address, from: *const c_void, bytes: usize) |real| copied_now(bytes, true, real);
    cuMemcpyDtoH_v2(to: *mut c_void, from: Address, bytes: usize) |real| copied_now(bytes, false, real);
    cuMemcpyDtoH_v2_ptds(to: *mut c_void, from: Address, bytes: usize) |real| copied_now(bytes, true, real);
    cuMemcpyDtoD_v2(to: Address, from: Address, bytes: usize) |real| copied_now(bytes, false, real);
    cuMemcpyDtoD_v2_ptds(to: Address, from: Address, bytes: usize) |real| copied_now(bytes, true, real);
    cuMemcpy(to: Address, from: Address, bytes: usize) |real| copied_now(bytes, false, real);
    cuMemcpy_ptds(to: Address, from: Address, bytes: usize) |real| copied_now(bytes, true, real);
    cuMemcpyPeer(to: Address, to_context: Handle, from: Address, from_context: Handle, bytes: usize) |real| copied_now(bytes, false, real);
    cuMemcpyPeer_ptds(to: Address, to_context: Handle, from: Address, from_context: Handle, bytes: usize) |real| copied_now(bytes, true, real);
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
    cuMemcpyAtoD_v2(to: Address, from: u64, at: usize, bytes: usize) |real| copied_now(bytes, false, real);
    cuMemcpyAtoD_v2_ptds(to: Address, from: u64, at: usize, bytes: usize) |real| copied_now(bytes, true, real);
    cuMemcpyDtoA_v2(to: u64, at: usize, from: Address, bytes: usize) |real| copied_now(bytes, false, real);
    cuMemcpyDtoA_v2_ptds(to: u64, at: usize, from: Address, bytes: usize) |real| copied_now(bytes, true, real);
    cuMemcpyHtoA_v2(to: u64, at: usize, from: *const c_void, bytes: usize) |real| copied_now(bytes, false, real);
    cuMemcpyHtoA_v2_ptds(to: u64, at: usize, from: *const c_void, bytes: usize) |real| copied_now(bytes, true, real);
    cuMemcpyHtoAAsync_v2(to: u64, at: usize, from: *const c_void, bytes: usize, stream: Handle) |real| copied(bytes, stream, false, real);
    cuMemcpyHtoAAsync_v2_ptsz(to: u64, at: usize, from: *const c_void, bytes: usize, stream: Handle) |real| copied(bytes, stream, true, real);
    cuMemcpyAtoH_v2(to: *mut c_void, from: u64, at: usize, bytes: usize) |real| copied_now(bytes, false, real);
    cuMemcpyAtoH_v2_ptds(to: *mut c_void, from: u64, at: usize, bytes: usize) |real| copied_now(bytes, true, real);
    cuMemcpyAtoHAsync_v2(to: *mut c_void, from: u64, at: usize, bytes: usize, stream: Handle) |real| copied(bytes, stream, false, real);
    cuMemcpyAtoHAsync_v2_ptsz(to: *mut c_void, from: u64, at: usize, bytes: usize, stream: Handle) |real| copied(bytes, stream, true, real);
    cuMemcpyAtoA_v2(to: u64, to_at: usize, from: u64, from_at: usize, bytes: usize) |real| copied_now(bytes, false, real);
    cuMemcpyAtoA_v2_ptds(to: u64, to_at: usize, from: u64, from_at: usize, bytes: usize) |real| copied_now(bytes, true, real);
    cuMemcpyWithAttributesAsync(to: Address, from: Address, bytes: usize, attributes: *mut c_void, stream: Handle) |real| copied(bytes, stream, false, real);
    cuMemcpyWithAttributesAsync_ptsz(to: Address, from: Address, bytes: usize, attributes: *mut c_void, stream: Handle) |real| copied(bytes, stream, true, real);
}
