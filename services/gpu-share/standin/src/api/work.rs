//! Modules, launches, captures, graphs.

use std::ffi::{CStr, c_char, c_int, c_void};

use super::basics::stream;
use super::{Handle, answer, answered};
use crate::local::{self, INVALID_VALUE, NOT_FOUND};

#[repr(C)]
pub struct Config {
    dimensions: [u32; 7],
    stream: Handle,
}

/// `spin_250000` takes 250 µs.
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
        // No handle is zero.
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
    cuStreamBeginCapture(at: Handle) capture(stream(at, false));
    cuStreamBeginCapture_ptsz(at: Handle) capture(stream(at, true));
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
}
