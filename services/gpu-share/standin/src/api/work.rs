//! Modules, launches, captures, graphs, copies.

use std::ffi::{CStr, c_char, c_int, c_void};

use super::basics::stream;
use super::{Handle, answer, answered};
use crate::local::{self, CAPTURE_UNSUPPORTED, INVALID_VALUE, NOT_FOUND};

/// A copy takes as long as ten gigabytes a second give it.
const BYTES_PER_NS: u64 = 10;

/// `CUlaunchConfig` up to its stream.
#[repr(C)]
pub struct Config {
    dimensions: [u32; 7],
    stream: Handle,
}

/// What a function's name says: `spin_250000` takes 250 µs.
unsafe fn function(to: *mut Handle, name: *const c_char) -> i32 {
    if name.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: a C string, by the driver's manual.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    let duration = name
        .rsplit('_')
        .next()
        .and_then(|it| it.parse::<u64>().ok());
    match duration {
        // A function's handle is its duration; no handle is zero.
        Some(duration) => answer(to, duration + 1),
        None => NOT_FOUND,
    }
}

fn kernel(function: Handle, at: Handle) -> i32 {
    match function.checked_sub(1) {
        Some(duration) => local::launch(at, duration),
        None => INVALID_VALUE,
    }
}

unsafe fn of_config(config: *const Config, function: Handle, of_thread: bool) -> i32 {
    // SAFETY: a configuration, by the driver's manual.
    match unsafe { config.as_ref() } {
        Some(config) => kernel(function, stream(config.stream, of_thread)),
        None => INVALID_VALUE,
    }
}

fn graph(graph: Handle, at: Handle) -> i32 {
    let Some(kernels) = local::with(|it| it.graph(graph)) else {
        return INVALID_VALUE;
    };
    let launched = kernels.into_iter().map(|it| local::launch(at, it));
    launched.fold(0, i32::max)
}

fn copy(bytes: usize, at: Handle, wait: bool) -> i32 {
    if wait && local::with(|it| it.any_captures()) {
        return CAPTURE_UNSUPPORTED;
    }
    match (local::launch(at, bytes as u64 / BYTES_PER_NS), wait) {
        (0, true) => local::synchronise(Some(at)),
        (result, _) => result,
    }
}

fn capture(at: Handle) -> i32 {
    local::with(|it| it.begin_capture(at));
    0
}

fn captured(to: *mut Handle, at: Handle) -> i32 {
    answered(
        to,
        local::with(|it| it.end_capture(at)).ok_or(INVALID_VALUE),
    )
}

fn captures(to: *mut c_int, at: Handle) -> i32 {
    answer(to, c_int::from(local::with(|it| it.is_capturing(at))))
}

api! {
    cuModuleLoad(to: *mut Handle, _path: *const c_char) answer(to, 1);
    cuModuleLoadData(to: *mut Handle, _image: *const c_void) answer(to, 1);
    cuModuleGetFunction(to: *mut Handle, _module: Handle, name: *const c_char) unsafe { function(to, name) };
    cuLaunchKernel(f: Handle, _x: u32, _y: u32, _z: u32, _bx: u32, _by: u32, _bz: u32, _shared: u32, at: Handle, _params: *mut c_void, _extra: *mut c_void)
        kernel(f, stream(at, false));
    cuLaunchKernel_ptsz(f: Handle, _x: u32, _y: u32, _z: u32, _bx: u32, _by: u32, _bz: u32, _shared: u32, at: Handle, _params: *mut c_void, _extra: *mut c_void)
        kernel(f, stream(at, true));
    cuLaunchKernelEx(config: *const Config, f: Handle, _params: *mut c_void, _extra: *mut c_void)
        unsafe { of_config(config, f, false) };
    cuLaunchKernelEx_ptsz(config: *const Config, f: Handle, _params: *mut c_void, _extra: *mut c_void)
        unsafe { of_config(config, f, true) };
    cuLaunchCooperativeKernel(f: Handle, _x: u32, _y: u32, _z: u32, _bx: u32, _by: u32, _bz: u32, _shared: u32, at: Handle, _params: *mut c_void)
        kernel(f, stream(at, false));
    cuLaunchCooperativeKernel_ptsz(f: Handle, _x: u32, _y: u32, _z: u32, _bx: u32, _by: u32, _bz: u32, _shared: u32, at: Handle, _params: *mut c_void)
        kernel(f, stream(at, true));
    cuLaunchCooperativeKernelMultiDevice(_list: *mut c_void, _count: u32, _flags: u32) local::launch(0, 1_000_000);
    cuLaunch(f: Handle) kernel(f, 0);
    cuLaunchGrid(f: Handle, _width: c_int, _height: c_int) kernel(f, 0);
    cuLaunchGridAsync(f: Handle, _width: c_int, _height: c_int, at: Handle) kernel(f, stream(at, false));
    cuStreamBeginCapture_v2(at: Handle, _mode: c_int) capture(stream(at, false));
    cuStreamBeginCapture_v2_ptsz(at: Handle, _mode: c_int) capture(stream(at, true));
    cuStreamBeginCaptureToGraph(at: Handle, _graph: Handle, _after: *const c_void, _edges: *const c_void, _count: usize, _mode: c_int) capture(stream(at, false));
    cuStreamBeginCaptureToGraph_ptsz(at: Handle, _graph: Handle, _after: *const c_void, _edges: *const c_void, _count: usize, _mode: c_int) capture(stream(at, true));
    cuStreamEndCapture(at: Handle, to: *mut Handle) captured(to, stream(at, false));
    cuStreamEndCapture_ptsz(at: Handle, to: *mut Handle) captured(to, stream(at, true));
    cuStreamIsCapturing(at: Handle, to: *mut c_int) captures(to, stream(at, false));
    cuStreamIsCapturing_ptsz(at: Handle, to: *mut c_int) captures(to, stream(at, true));
    cuGraphInstantiateWithFlags(to: *mut Handle, from: Handle, _flags: u64) answer(to, from);
    cuGraphLaunch(which: Handle, at: Handle) graph(which, stream(at, false));
    cuGraphLaunch_ptsz(which: Handle, at: Handle) graph(which, stream(at, true));
    cuMemcpyHtoD_v2(_to: u64, _from: *const c_void, bytes: usize) copy(bytes, 0, true);
    cuMemcpyHtoD_v2_ptds(_to: u64, _from: *const c_void, bytes: usize) copy(bytes, stream(0, true), true);
    cuMemcpyDtoH_v2(_to: *mut c_void, _from: u64, bytes: usize) copy(bytes, 0, true);
    cuMemcpyDtoH_v2_ptds(_to: *mut c_void, _from: u64, bytes: usize) copy(bytes, stream(0, true), true);
    cuMemcpyHtoDAsync_v2(_to: u64, _from: *const c_void, bytes: usize, at: Handle) copy(bytes, stream(at, false), false);
    cuMemcpyHtoDAsync_v2_ptsz(_to: u64, _from: *const c_void, bytes: usize, at: Handle) copy(bytes, stream(at, true), false);
    cuMemcpyDtoHAsync_v2(_to: *mut c_void, _from: u64, bytes: usize, at: Handle) copy(bytes, stream(at, false), false);
    cuMemcpyDtoHAsync_v2_ptsz(_to: *mut c_void, _from: u64, bytes: usize, at: Handle) copy(bytes, stream(at, true), false);
    cuMemcpyAsync(_to: u64, _from: u64, bytes: usize, at: Handle) copy(bytes, stream(at, false), false);
    cuMemcpyAsync_ptsz(_to: u64, _from: u64, bytes: usize, at: Handle) copy(bytes, stream(at, true), false);
    cuMemsetD8_v2(_to: u64, _value: u8, count: usize) copy(count, 0, true);
    cuMemsetD8_v2_ptds(_to: u64, _value: u8, count: usize) copy(count, stream(0, true), true);
    cuMemsetD8Async(_to: u64, _value: u8, count: usize, at: Handle) copy(count, stream(at, false), false);
    cuMemsetD8Async_ptsz(_to: u64, _value: u8, count: usize, at: Handle) copy(count, stream(at, true), false);
    cuMemcpyDtoD_v2() local::NOT_SUPPORTED;
    cuMemcpyDtoD_v2_ptds() local::NOT_SUPPORTED;
    cuMemcpy() local::NOT_SUPPORTED;
    cuMemcpy_ptds() local::NOT_SUPPORTED;
    cuMemcpyPeer() local::NOT_SUPPORTED;
    cuMemcpyPeer_ptds() local::NOT_SUPPORTED;
    cuMemcpy2D_v2() local::NOT_SUPPORTED;
    cuMemcpy2D_v2_ptds() local::NOT_SUPPORTED;
    cuMemcpy2DUnaligned_v2() local::NOT_SUPPORTED;
    cuMemcpy2DUnaligned_v2_ptds() local::NOT_SUPPORTED;
    cuMemcpy3D_v2() local::NOT_SUPPORTED;
    cuMemcpy3D_v2_ptds() local::NOT_SUPPORTED;
    cuMemsetD16_v2() local::NOT_SUPPORTED;
    cuMemsetD16_v2_ptds() local::NOT_SUPPORTED;
    cuMemsetD32_v2() local::NOT_SUPPORTED;
    cuMemsetD32_v2_ptds() local::NOT_SUPPORTED;
    cuMemcpyDtoDAsync_v2() local::NOT_SUPPORTED;
    cuMemcpyDtoDAsync_v2_ptsz() local::NOT_SUPPORTED;
    cuMemcpyPeerAsync() local::NOT_SUPPORTED;
    cuMemcpyPeerAsync_ptsz() local::NOT_SUPPORTED;
    cuMemcpy2DAsync_v2() local::NOT_SUPPORTED;
    cuMemcpy2DAsync_v2_ptsz() local::NOT_SUPPORTED;
    cuMemcpy3DAsync_v2() local::NOT_SUPPORTED;
    cuMemcpy3DAsync_v2_ptsz() local::NOT_SUPPORTED;
    cuMemsetD16Async() local::NOT_SUPPORTED;
    cuMemsetD16Async_ptsz() local::NOT_SUPPORTED;
    cuMemsetD32Async() local::NOT_SUPPORTED;
    cuMemsetD32Async_ptsz() local::NOT_SUPPORTED;
    cuMemcpyBatchAsync() local::NOT_SUPPORTED;
    cuMemcpyBatchAsync_ptsz() local::NOT_SUPPORTED;
    cuMemcpyBatchAsync_v2() local::NOT_SUPPORTED;
    cuMemcpyBatchAsync_v2_ptsz() local::NOT_SUPPORTED;
    cuMemPrefetchAsync() local::NOT_SUPPORTED;
    cuMemPrefetchAsync_ptsz() local::NOT_SUPPORTED;
    cuMemPrefetchAsync_v2() local::NOT_SUPPORTED;
    cuMemPrefetchAsync_v2_ptsz() local::NOT_SUPPORTED;
}
