//! Copies and sets take time by their bytes. A descriptor counts as one fixed size.

use std::ffi::c_void;

use super::Handle;
use super::basics::stream;
use crate::local::{self, CAPTURE_UNSUPPORTED};

/// Ten gigabytes a second.
const BYTES_PER_NS: u64 = 10;
const SHAPED: usize = 1_000_000;

fn copy(bytes: usize, at: Handle, wait: bool) -> i32 {
    if wait && local::with(|it| it.any_captures()) {
        return CAPTURE_UNSUPPORTED;
    }
    match (local::launch(at, bytes as u64 / BYTES_PER_NS), wait) {
        (0, true) => local::synchronise(Some(at)),
        (result, _) => result,
    }
}

api! {
    cuMemcpyHtoD_v2(_to: u64, _from: *const c_void, bytes: usize) copy(bytes, stream(0, false), true);
    cuMemcpyHtoD_v2_ptds(_to: u64, _from: *const c_void, bytes: usize) copy(bytes, stream(0, true), true);
    cuMemcpyDtoH_v2(_to: *mut c_void, _from: u64, bytes: usize) copy(bytes, stream(0, false), true);
    cuMemcpyDtoH_v2_ptds(_to: *mut c_void, _from: u64, bytes: usize) copy(bytes, stream(0, true), true);
    cuMemcpyDtoD_v2(_to: u64, _from: u64, bytes: usize) copy(bytes, stream(0, false), true);
    cuMemcpyDtoD_v2_ptds(_to: u64, _from: u64, bytes: usize) copy(bytes, stream(0, true), true);
    cuMemcpy(_to: u64, _from: u64, bytes: usize) copy(bytes, stream(0, false), true);
    cuMemcpy_ptds(_to: u64, _from: u64, bytes: usize) copy(bytes, stream(0, true), true);
    cuMemcpyPeer(_to: u64, _to_context: Handle, _from: u64, _from_context: Handle, bytes: usize) copy(bytes, stream(0, false), true);
    cuMemcpyPeer_ptds(_to: u64, _to_context: Handle, _from: u64, _from_context: Handle, bytes: usize) copy(bytes, stream(0, true), true);
    cuMemcpyHtoDAsync_v2(_to: u64, _from: *const c_void, bytes: usize, at_stream: Handle) copy(bytes, stream(at_stream, false), false);
    cuMemcpyHtoDAsync_v2_ptsz(_to: u64, _from: *const c_void, bytes: usize, at_stream: Handle) copy(bytes, stream(at_stream, true), false);
    cuMemcpyDtoHAsync_v2(_to: *mut c_void, _from: u64, bytes: usize, at_stream: Handle) copy(bytes, stream(at_stream, false), false);
    cuMemcpyDtoHAsync_v2_ptsz(_to: *mut c_void, _from: u64, bytes: usize, at_stream: Handle) copy(bytes, stream(at_stream, true), false);
    cuMemcpyDtoDAsync_v2(_to: u64, _from: u64, bytes: usize, at_stream: Handle) copy(bytes, stream(at_stream, false), false);
    cuMemcpyDtoDAsync_v2_ptsz(_to: u64, _from: u64, bytes: usize, at_stream: Handle) copy(bytes, stream(at_stream, true), false);
    cuMemcpyAsync(_to: u64, _from: u64, bytes: usize, at_stream: Handle) copy(bytes, stream(at_stream, false), false);
    cuMemcpyAsync_ptsz(_to: u64, _from: u64, bytes: usize, at_stream: Handle) copy(bytes, stream(at_stream, true), false);
    cuMemcpyPeerAsync(_to: u64, _to_context: Handle, _from: u64, _from_context: Handle, bytes: usize, at_stream: Handle) copy(bytes, stream(at_stream, false), false);
    cuMemcpyPeerAsync_ptsz(_to: u64, _to_context: Handle, _from: u64, _from_context: Handle, bytes: usize, at_stream: Handle) copy(bytes, stream(at_stream, true), false);
    cuMemcpyAtoD_v2(_to: u64, _from: u64, _at: usize, bytes: usize) copy(bytes, stream(0, false), true);
    cuMemcpyAtoD_v2_ptds(_to: u64, _from: u64, _at: usize, bytes: usize) copy(bytes, stream(0, true), true);
    cuMemcpyDtoA_v2(_to: u64, _at: usize, _from: u64, bytes: usize) copy(bytes, stream(0, false), true);
    cuMemcpyDtoA_v2_ptds(_to: u64, _at: usize, _from: u64, bytes: usize) copy(bytes, stream(0, true), true);
    cuMemcpyHtoA_v2(_to: u64, _at: usize, _from: *const c_void, bytes: usize) copy(bytes, stream(0, false), true);
    cuMemcpyHtoA_v2_ptds(_to: u64, _at: usize, _from: *const c_void, bytes: usize) copy(bytes, stream(0, true), true);
    cuMemcpyHtoAAsync_v2(_to: u64, _at: usize, _from: *const c_void, bytes: usize, at_stream: Handle) copy(bytes, stream(at_stream, false), false);
    cuMemcpyHtoAAsync_v2_ptsz(_to: u64, _at: usize, _from: *const c_void, bytes: usize, at_stream: Handle) copy(bytes, stream(at_stream, true), false);
    cuMemcpyAtoH_v2(_to: *mut c_void, _from: u64, _at: usize, bytes: usize) copy(bytes, stream(0, false), true);
    cuMemcpyAtoH_v2_ptds(_to: *mut c_void, _from: u64, _at: usize, bytes: usize) copy(bytes, stream(0, true), true);
    cuMemcpyAtoHAsync_v2(_to: *mut c_void, _from: u64, _at: usize, bytes: usize, at_stream: Handle) copy(bytes, stream(at_stream, false), false);
    cuMemcpyAtoHAsync_v2_ptsz(_to: *mut c_void, _from: u64, _at: usize, bytes: usize, at_stream: Handle) copy(bytes, stream(at_stream, true), false);
    cuMemcpyAtoA_v2(_to: u64, _to_at: usize, _from: u64, _from_at: usize, bytes: usize) copy(bytes, stream(0, false), true);
    cuMemcpyAtoA_v2_ptds(_to: u64, _to_at: usize, _from: u64, _from_at: usize, bytes: usize) copy(bytes, stream(0, true), true);
    cuMemcpyWithAttributesAsync(_to: u64, _from: u64, bytes: usize, _attributes: *mut c_void, at_stream: Handle) copy(bytes, stream(at_stream, false), false);
    cuMemcpyWithAttributesAsync_ptsz(_to: u64, _from: u64, bytes: usize, _attributes: *mut c_void, at_stream: Handle) copy(bytes, stream(at_stream, true), false);
    cuMemcpy2D_v2(_what: *const c_void) copy(SHAPED, stream(0, false), true);
    cuMemcpy2D_v2_ptds(_what: *const c_void) copy(SHAPED, stream(0, true), true);
    cuMemcpy2DUnaligned_v2(_what: *const c_void) copy(SHAPED, stream(0, false), true);
    cuMemcpy2DUnaligned_v2_ptds(_what: *const c_void) copy(SHAPED, stream(0, true), true);
    cuMemcpy3D_v2(_what: *const c_void) copy(SHAPED, stream(0, false), true);
    cuMemcpy3D_v2_ptds(_what: *const c_void) copy(SHAPED, stream(0, true), true);
    cuMemcpy2DAsync_v2(_what: *const c_void, at_stream: Handle) copy(SHAPED, stream(at_stream, false), false);
    cuMemcpy2DAsync_v2_ptsz(_what: *const c_void, at_stream: Handle) copy(SHAPED, stream(at_stream, true), false);
    cuMemcpy3DAsync_v2(_what: *const c_void, at_stream: Handle) copy(SHAPED, stream(at_stream, false), false);
    cuMemcpy3DAsync_v2_ptsz(_what: *const c_void, at_stream: Handle) copy(SHAPED, stream(at_stream, true), false);
    cuMemcpyBatchAsync(_to: *mut c_void, _from: *mut c_void, _sizes: *mut c_void, _count: usize, _attributes: *mut c_void, _indices: *mut c_void, _kinds: usize, _failed: *mut c_void, at_stream: Handle) copy(SHAPED, stream(at_stream, false), false);
    cuMemcpyBatchAsync_ptsz(_to: *mut c_void, _from: *mut c_void, _sizes: *mut c_void, _count: usize, _attributes: *mut c_void, _indices: *mut c_void, _kinds: usize, _failed: *mut c_void, at_stream: Handle) copy(SHAPED, stream(at_stream, true), false);
    cuMemcpyBatchAsync_v2(_to: *mut c_void, _from: *mut c_void, _sizes: *mut c_void, _count: usize, _attributes: *mut c_void, _indices: *mut c_void, _kinds: usize, at_stream: Handle) copy(SHAPED, stream(at_stream, false), false);
    cuMemcpyBatchAsync_v2_ptsz(_to: *mut c_void, _from: *mut c_void, _sizes: *mut c_void, _count: usize, _attributes: *mut c_void, _indices: *mut c_void, _kinds: usize, at_stream: Handle) copy(SHAPED, stream(at_stream, true), false);
    cuMemPrefetchAsync(_at: u64, bytes: usize, _device: i32, at_stream: Handle) copy(bytes, stream(at_stream, false), false);
    cuMemPrefetchAsync_ptsz(_at: u64, bytes: usize, _device: i32, at_stream: Handle) copy(bytes, stream(at_stream, true), false);
    cuMemPrefetchAsync_v2(_at: u64, bytes: usize, _place: u64, _flags: u32, at_stream: Handle) copy(bytes, stream(at_stream, false), false);
    cuMemPrefetchAsync_v2_ptsz(_at: u64, bytes: usize, _place: u64, _flags: u32, at_stream: Handle) copy(bytes, stream(at_stream, true), false);
    cuMemcpy3DPeer(_what: *const c_void) copy(SHAPED, stream(0, false), true);
    cuMemcpy3DPeer_ptds(_what: *const c_void) copy(SHAPED, stream(0, true), true);
    cuMemcpy3DPeerAsync(_what: *const c_void, at_stream: Handle) copy(SHAPED, stream(at_stream, false), false);
    cuMemcpy3DPeerAsync_ptsz(_what: *const c_void, at_stream: Handle) copy(SHAPED, stream(at_stream, true), false);
    cuMemcpy3DWithAttributesAsync(_what: *mut c_void, _flags: u64, at_stream: Handle) copy(SHAPED, stream(at_stream, false), false);
    cuMemcpy3DWithAttributesAsync_ptsz(_what: *mut c_void, _flags: u64, at_stream: Handle) copy(SHAPED, stream(at_stream, true), false);
    cuMemcpy3DBatchAsync(_count: usize, _what: *mut c_void, _failed: *mut c_void, _flags: u64, at_stream: Handle) copy(SHAPED, stream(at_stream, false), false);
    cuMemcpy3DBatchAsync_ptsz(_count: usize, _what: *mut c_void, _failed: *mut c_void, _flags: u64, at_stream: Handle) copy(SHAPED, stream(at_stream, true), false);
    cuMemcpy3DBatchAsync_v2(_count: usize, _what: *mut c_void, _flags: u64, at_stream: Handle) copy(SHAPED, stream(at_stream, false), false);
    cuMemcpy3DBatchAsync_v2_ptsz(_count: usize, _what: *mut c_void, _flags: u64, at_stream: Handle) copy(SHAPED, stream(at_stream, true), false);
    cuMemPrefetchBatchAsync(_at: *mut c_void, _sizes: *mut c_void, _count: usize, _places: *mut c_void, _indices: *mut c_void, _kinds: usize, _flags: u64, at_stream: Handle) copy(SHAPED, stream(at_stream, false), false);
    cuMemPrefetchBatchAsync_ptsz(_at: *mut c_void, _sizes: *mut c_void, _count: usize, _places: *mut c_void, _indices: *mut c_void, _kinds: usize, _flags: u64, at_stream: Handle) copy(SHAPED, stream(at_stream, true), false);
    cuMemDiscardAndPrefetchBatchAsync(_at: *mut c_void, _sizes: *mut c_void, _count: usize, _places: *mut c_void, _indices: *mut c_void, _kinds: usize, _flags: u64, at_stream: Handle) copy(SHAPED, stream(at_stream, false), false);
    cuMemDiscardAndPrefetchBatchAsync_ptsz(_at: *mut c_void, _sizes: *mut c_void, _count: usize, _places: *mut c_void, _indices: *mut c_void, _kinds: usize, _flags: u64, at_stream: Handle) copy(SHAPED, stream(at_stream, true), false);
    cuMemBatchDecompressAsync(_what: *mut c_void, _count: usize, _flags: u32, _failed: *mut c_void, at_stream: Handle) copy(SHAPED, stream(at_stream, false), false);
    cuMemBatchDecompressAsync_ptsz(_what: *mut c_void, _count: usize, _flags: u32, _failed: *mut c_void, at_stream: Handle) copy(SHAPED, stream(at_stream, true), false);
    cuMemsetD8_v2(_to: u64, _value: u8, count: usize) copy(count, stream(0, false), false);
    cuMemsetD8_v2_ptds(_to: u64, _value: u8, count: usize) copy(count, stream(0, true), false);
    cuMemsetD8Async(_to: u64, _value: u8, count: usize, at_stream: Handle) copy(count, stream(at_stream, false), false);
    cuMemsetD8Async_ptsz(_to: u64, _value: u8, count: usize, at_stream: Handle) copy(count, stream(at_stream, true), false);
    cuMemsetD16_v2(_to: u64, _value: u16, count: usize) copy(count * 2, stream(0, false), false);
    cuMemsetD16_v2_ptds(_to: u64, _value: u16, count: usize) copy(count * 2, stream(0, true), false);
    cuMemsetD16Async(_to: u64, _value: u16, count: usize, at_stream: Handle) copy(count * 2, stream(at_stream, false), false);
    cuMemsetD16Async_ptsz(_to: u64, _value: u16, count: usize, at_stream: Handle) copy(count * 2, stream(at_stream, true), false);
    cuMemsetD32_v2(_to: u64, _value: u32, count: usize) copy(count * 4, stream(0, false), false);
    cuMemsetD32_v2_ptds(_to: u64, _value: u32, count: usize) copy(count * 4, stream(0, true), false);
    cuMemsetD32Async(_to: u64, _value: u32, count: usize, at_stream: Handle) copy(count * 4, stream(at_stream, false), false);
    cuMemsetD32Async_ptsz(_to: u64, _value: u32, count: usize, at_stream: Handle) copy(count * 4, stream(at_stream, true), false);
    cuMemsetD2D8_v2(_to: u64, _pitch: usize, _value: u8, width: usize, height: usize) copy(width * height, stream(0, false), false);
    cuMemsetD2D8_v2_ptds(_to: u64, _pitch: usize, _value: u8, width: usize, height: usize) copy(width * height, stream(0, true), false);
    cuMemsetD2D8Async(_to: u64, _pitch: usize, _value: u8, width: usize, height: usize, at_stream: Handle) copy(width * height, stream(at_stream, false), false);
    cuMemsetD2D8Async_ptsz(_to: u64, _pitch: usize, _value: u8, width: usize, height: usize, at_stream: Handle) copy(width * height, stream(at_stream, true), false);
    cuMemsetD2D16_v2(_to: u64, _pitch: usize, _value: u16, width: usize, height: usize) copy(width * height * 2, stream(0, false), false);
    cuMemsetD2D16_v2_ptds(_to: u64, _pitch: usize, _value: u16, width: usize, height: usize) copy(width * height * 2, stream(0, true), false);
    cuMemsetD2D16Async(_to: u64, _pitch: usize, _value: u16, width: usize, height: usize, at_stream: Handle) copy(width * height * 2, stream(at_stream, false), false);
    cuMemsetD2D16Async_ptsz(_to: u64, _pitch: usize, _value: u16, width: usize, height: usize, at_stream: Handle) copy(width * height * 2, stream(at_stream, true), false);
    cuMemsetD2D32_v2(_to: u64, _pitch: usize, _value: u32, width: usize, height: usize) copy(width * height * 4, stream(0, false), false);
    cuMemsetD2D32_v2_ptds(_to: u64, _pitch: usize, _value: u32, width: usize, height: usize) copy(width * height * 4, stream(0, true), false);
    cuMemsetD2D32Async(_to: u64, _pitch: usize, _value: u32, width: usize, height: usize, at_stream: Handle) copy(width * height * 4, stream(at_stream, false), false);
    cuMemsetD2D32Async_ptsz(_to: u64, _pitch: usize, _value: u32, width: usize, height: usize, at_stream: Handle) copy(width * height * 4, stream(at_stream, true), false);
}
