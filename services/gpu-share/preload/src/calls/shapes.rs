//! Multi-dimensional and batched copies and prefetches. Sizes in descriptors are not parsed: such copies
//! always wait for the token.

use std::ffi::c_void;

use super::copies::{LARGE_BYTES, copied, copied_now};
use crate::state::gated;
use crate::symbols::{Address, Handle};

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Place {
    kind: u32,
    id: i32,
}

ours! { crate::driver::DRIVER;
    cuMemcpy2D_v2(what: *const c_void) |real| copied_now(LARGE_BYTES, false, real);
    cuMemcpy2D_v2_ptds(what: *const c_void) |real| copied_now(LARGE_BYTES, true, real);
    cuMemcpy2DUnaligned_v2(what: *const c_void) |real| copied_now(LARGE_BYTES, false, real);
    cuMemcpy2DUnaligned_v2_ptds(what: *const c_void) |real| copied_now(LARGE_BYTES, true, real);
    cuMemcpy3D_v2(what: *const c_void) |real| copied_now(LARGE_BYTES, false, real);
    cuMemcpy3D_v2_ptds(what: *const c_void) |real| copied_now(LARGE_BYTES, true, real);
    cuMemcpy2DAsync_v2(what: *const c_void, stream: Handle) |real| gated(stream, false, real);
    cuMemcpy2DAsync_v2_ptsz(what: *const c_void, stream: Handle) |real| gated(stream, true, real);
    cuMemcpy3DAsync_v2(what: *const c_void, stream: Handle) |real| gated(stream, false, real);
    cuMemcpy3DAsync_v2_ptsz(what: *const c_void, stream: Handle) |real| gated(stream, true, real);
    cuMemcpyBatchAsync(to: *mut c_void, from: *mut c_void, sizes: *mut c_void, count: usize, attributes: *mut c_void, indices: *mut c_void, kinds: usize, failed: *mut c_void, stream: Handle) |real| gated(stream, false, real);
    cuMemcpyBatchAsync_ptsz(to: *mut c_void, from: *mut c_void, sizes: *mut c_void, count: usize, attributes: *mut c_void, indices: *mut c_void, kinds: usize, failed: *mut c_void, stream: Handle) |real| gated(stream, true, real);
    cuMemcpyBatchAsync_v2(to: *mut c_void, from: *mut c_void, sizes: *mut c_void, count: usize, attributes: *mut c_void, indices: *mut c_void, kinds: usize, stream: Handle) |real| gated(stream, false, real);
    cuMemcpyBatchAsync_v2_ptsz(to: *mut c_void, from: *mut c_void, sizes: *mut c_void, count: usize, attributes: *mut c_void, indices: *mut c_void, kinds: usize, stream: Handle) |real| gated(stream, true, real);
    cuMemPrefetchAsync(at: Address, bytes: usize, device: i32, stream: Handle) |real| copied(bytes, stream, false, real);
    cuMemPrefetchAsync_ptsz(at: Address, bytes: usize, device: i32, stream: Handle) |real| copied(bytes, stream, true, real);
    cuMemPrefetchAsync_v2(at: Address, bytes: usize, place: Place, flags: u32, stream: Handle) |real| copied(bytes, stream, false, real);
    cuMemPrefetchAsync_v2_ptsz(at: Address, bytes: usize, place: Place, flags: u32, stream: Handle) |real| copied(bytes, stream, true, real);
    cuMemcpy3DPeer(what: *const c_void) |real| copied_now(LARGE_BYTES, false, real);
    cuMemcpy3DPeer_ptds(what: *const c_void) |real| copied_now(LARGE_BYTES, true, real);
    cuMemcpy3DPeerAsync(what: *const c_void, stream: Handle) |real| gated(stream, false, real);
    cuMemcpy3DPeerAsync_ptsz(what: *const c_void, stream: Handle) |real| gated(stream, true, real);
    cuMemcpy3DWithAttributesAsync(what: *mut c_void, flags: u64, stream: Handle) |real| gated(stream, false, real);
    cuMemcpy3DWithAttributesAsync_ptsz(what: *mut c_void, flags: u64, stream: Handle) |real| gated(stream, true, real);
    cuMemcpy3DBatchAsync(count: usize, what: *mut c_void, failed: *mut usize, flags: u64, stream: Handle) |real| gated(stream, false, real);
    cuMemcpy3DBatchAsync_ptsz(count: usize, what: *mut c_void, failed: *mut usize, flags: u64, stream: Handle) |real| gated(stream, true, real);
    cuMemcpy3DBatchAsync_v2(count: usize, what: *mut c_void, flags: u64, stream: Handle) |real| gated(stream, false, real);
    cuMemcpy3DBatchAsync_v2_ptsz(count: usize, what: *mut c_void, flags: u64, stream: Handle) |real| gated(stream, true, real);
    cuMemPrefetchBatchAsync(at: *mut Address, sizes: *mut usize, count: usize, places: *mut Place, indices: *mut usize, kinds: usize, flags: u64, stream: Handle) |real| gated(stream, false, real);
    cuMemPrefetchBatchAsync_ptsz(at: *mut Address, sizes: *mut usize, count: usize, places: *mut Place, indices: *mut usize, kinds: usize, flags: u64, stream: Handle) |real| gated(stream, true, real);
    cuMemDiscardAndPrefetchBatchAsync(at: *mut Address, sizes: *mut usize, count: usize, places: *mut Place, indices: *mut usize, kinds: usize, flags: u64, stream: Handle) |real| gated(stream, false, real);
    cuMemDiscardAndPrefetchBatchAsync_ptsz(at: *mut Address, sizes: *mut usize, count: usize, places: *mut Place, indices: *mut usize, kinds: usize, flags: u64, stream: Handle) |real| gated(stream, true, real);
    cuMemBatchDecompressAsync(what: *mut c_void, count: usize, flags: u32, failed: *mut usize, stream: Handle) |real| gated(stream, false, real);
    cuMemBatchDecompressAsync_ptsz(what: *mut c_void, count: usize, flags: u32, failed: *mut usize, stream: Handle) |real| gated(stream, true, real);
}
