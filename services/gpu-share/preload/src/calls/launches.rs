//! Launches of kernels and graphs wait for the token.

use std::ffi::c_void;
use std::ptr;

use crate::gate::{Inside, Stream};
use crate::state::{gated, get};
use crate::symbols::{Handle, Result};

#[repr(C)]
#[derive(Debug)]
pub struct Config {
    dimensions: [u32; 7],
    stream: Handle,
}

fn stream_of(config: *const Config) -> Handle {
    // SAFETY: the caller's pointer, which the driver reads, too.
    unsafe { config.as_ref() }.map_or(ptr::null_mut(), |it| it.stream)
}

/// Tokens are taken in page order, so that two processes cannot deadlock.
fn gated_on_all(launch: impl FnOnce() -> Result) -> Result {
    let Some(state) = get() else {
        return launch();
    };
    let stream = Stream {
        handle: ptr::null_mut(),
        of_thread: false,
    };
    let parts: Vec<usize> = state.all_parts();
    let enter = |part: usize| {
        let ask = |_: &mut Inside| state.ask(part);
        (part, state.gates[part].enter(&state.driver, stream, ask))
    };
    let entered: Vec<_> = parts.into_iter().map(enter).collect();
    let answer = launch();
    for (part, entry) in entered {
        state.gates[part].leave(&state.driver, stream, entry);
    }
    answer
}

ours! { crate::driver::DRIVER;
    cuLaunchKernel(f: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: Handle, params: *mut c_void, extra: *mut c_void)
        |real| gated(stream, false, real);
    cuLaunchKernel_ptsz(f: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: Handle, params: *mut c_void, extra: *mut c_void)
        |real| gated(stream, true, real);
    cuLaunchKernelEx(config: *const Config, f: Handle, params: *mut c_void, extra: *mut c_void)
        |real| gated(stream_of(config), false, real);
    cuLaunchKernelEx_ptsz(config: *const Config, f: Handle, params: *mut c_void, extra: *mut c_void)
        |real| gated(stream_of(config), true, real);
    cuLaunchCooperativeKernel(f: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: Handle, params: *mut c_void)
        |real| gated(stream, false, real);
    cuLaunchCooperativeKernel_ptsz(f: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: Handle, params: *mut c_void)
        |real| gated(stream, true, real);
    cuLaunchCooperativeKernelMultiDevice(list: *mut c_void, count: u32, flags: u32)
        |real| gated_on_all(real);
    cuGraphLaunch(graph: Handle, stream: Handle) |real| gated(stream, false, real);
    cuGraphLaunch_ptsz(graph: Handle, stream: Handle) |real| gated(stream, true, real);
    cuLaunch(f: Handle) |real| gated(ptr::null_mut(), false, real);
    cuLaunchGrid(f: Handle, width: i32, height: i32) |real| gated(ptr::null_mut(), false, real);
    cuLaunchGridAsync(f: Handle, width: i32, height: i32, stream: Handle) |real| gated(stream, false, real);
}
