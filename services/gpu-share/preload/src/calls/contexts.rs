//! Initialisation, ends of streams and contexts, and waits.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::gate::Stream;
use crate::monitor::start;
use crate::state::get;
use crate::symbols::{Handle, Result};

fn initialised(real: impl FnOnce() -> Result) -> Result {
    let result = real();
    if result == 0 {
        start();
    }
    result
}

/// Before a capture or the stream's end.
fn settled(stream: Handle, forget: bool, real: impl FnOnce() -> Result) -> Result {
    if let Some(state) = get() {
        let its = |it: Stream, _: Handle| it.handle == stream;
        for part in state.all_parts() {
            state.gates[part].settle(&state.driver, its, forget);
        }
    }
    real()
}

/// Without a context, covers all of a device's contexts.
fn ended(device: Option<c_int>, context: Handle, real: impl FnOnce() -> Result) -> Result {
    if let Some(state) = get() {
        let parts = match device {
            Some(device) => state.part_of(device).into_iter().collect(),
            None => state.all_parts(),
        };
        for part in parts {
            let its = |_: Stream, it: Handle| context.is_null() || it == context;
            let gate = &state.gates[part];
            gate.settle(&state.driver, its, false);
            gate.forget(context);
        }
    }
    real()
}

pub fn waited(real: impl FnOnce() -> Result) -> Result {
    let result = real();
    noticed();
    result
}

/// Polling counts as waiting.
fn asked(real: impl FnOnce() -> Result) -> Result {
    let result = real();
    if result == 0 {
        noticed();
    }
    result
}

fn noticed() {
    if let Some((state, part)) = get().and_then(|it| Some((it, it.part()?))) {
        let mut inside = state.gates[part].lock();
        if !inside.is_idle() {
            state.driver.quietly(|| {
                inside.rest(&state.driver);
                inside.reap(&state.driver);
            });
        }
    }
}

ours! { crate::driver::DRIVER;
    cuInit(flags: u32) |real| initialised(real);
    cuStreamBeginCapture(stream: Handle) |real| settled(stream, false, real);
    cuStreamBeginCapture_ptsz(stream: Handle) |real| settled(stream, false, real);
    cuStreamBeginCapture_v2(stream: Handle, mode: c_int) |real| settled(stream, false, real);
    cuStreamBeginCapture_v2_ptsz(stream: Handle, mode: c_int) |real| settled(stream, false, real);
    cuStreamBeginCaptureToGraph(stream: Handle, graph: Handle, after: *const c_void, edges: *const c_void, count: usize, mode: c_int)
        |real| settled(stream, false, real);
    cuStreamBeginCaptureToGraph_ptsz(stream: Handle, graph: Handle, after: *const c_void, edges: *const c_void, count: usize, mode: c_int)
        |real| settled(stream, false, real);
    cuStreamDestroy_v2(stream: Handle) |real| settled(stream, true, real);
    cuCtxDestroy_v2(context: Handle) |real| ended(None, context, real);
    cuDevicePrimaryCtxRelease_v2(device: c_int) |real| ended(Some(device), ptr::null_mut(), real);
    cuDevicePrimaryCtxReset_v2(device: c_int) |real| ended(Some(device), ptr::null_mut(), real);
    cuCtxSynchronize() |real| waited(real);
    cuCtxSynchronize_v2(context: Handle) |real| waited(real);
    cuStreamSynchronize(stream: Handle) |real| waited(real);
    cuStreamSynchronize_ptsz(stream: Handle) |real| waited(real);
    cuEventSynchronize(event: Handle) |real| waited(real);
    cuStreamQuery(stream: Handle) |real| asked(real);
    cuStreamQuery_ptsz(stream: Handle) |real| asked(real);
    cuEventQuery(event: Handle) |real| asked(real);
}
