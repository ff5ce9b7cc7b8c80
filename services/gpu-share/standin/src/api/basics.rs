//! Devices, contexts, streams, events.

use std::ffi::{c_char, c_int, c_void};

use super::{Handle, answer, answered};
use crate::local::{self, INVALID_VALUE, NO_DEVICE, NOT_INITIALIZED};
use crate::model::DEVICES;

fn devices() -> c_int {
    let machine = local::machine();
    machine.map_or(0, |it| it.with(|gpu| gpu.devices) as c_int)
}

fn is_device(device: c_int) -> bool {
    (0..devices()).contains(&device)
}

#[must_use]
pub fn uuid(device: c_int) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid[0] = 0xd0;
    uuid[15] = device as u8;
    uuid
}

pub(super) unsafe fn text(to: *mut c_char, length: c_int, text: &str) -> i32 {
    if to.is_null() || length as usize <= text.len() {
        return INVALID_VALUE;
    }
    // SAFETY: so long a buffer is writable, by the driver's manual.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, text.len());
        to.add(text.len()).write(0);
    }
    0
}

fn total() -> usize {
    let machine = local::machine();
    machine.map_or(0, |it| it.with(|gpu| gpu.total_bytes) as usize)
}

fn context_of(to: *mut Handle, device: c_int) -> i32 {
    if is_device(device) {
        answer(to, device as u64 + 1)
    } else {
        NO_DEVICE
    }
}

fn made_current(to: *mut Handle, device: c_int) -> i32 {
    let result = context_of(to, device);
    if result == 0 {
        local::set_current(device as usize + 1);
    }
    result
}

/// Names of default streams: 0 and 1 are shared, 2 is the thread's own.
pub(super) fn stream(handle: Handle, of_thread: bool) -> Handle {
    match (handle, of_thread) {
        (2, _) | (0, true) => local::own_stream(),
        (1, _) => 0,
        _ => handle,
    }
}

fn elapsed(to: *mut f32, begin: Handle, end: Handle) -> i32 {
    match (local::time_of_event(begin), local::time_of_event(end)) {
        (Ok(begin), Ok(end)) => answer(to, ((end as i64 - begin as i64) as f64 / 1e6) as f32),
        (Err(result), _) | (_, Err(result)) => result,
    }
}

api! {
    cuInit(_flags: u32) local::init();
    cuDriverGetVersion(to: *mut c_int) answer(to, 13000);
    cuDeviceGetCount(to: *mut c_int) match local::machine() {
        Some(_) => answer(to, devices()),
        None => NOT_INITIALIZED,
    };
    cuDeviceGet(to: *mut c_int, ordinal: c_int) if is_device(ordinal) { answer(to, ordinal) } else { NO_DEVICE };
    cuDeviceGetAttribute(to: *mut c_int, _what: c_int, _device: c_int) answer(to, 1);
    cuDeviceGetName(to: *mut c_char, length: c_int, _device: c_int) unsafe { text(to, length, "Stand-in") };
    cuDeviceGetUuid(to: *mut [u8; 16], device: c_int) answer(to, uuid(device));
    cuDeviceTotalMem_v2(to: *mut usize, _device: c_int) answer(to, total());
    cuDevicePrimaryCtxRetain(to: *mut Handle, device: c_int) context_of(to, device);
    cuDevicePrimaryCtxRelease_v2(_device: c_int) 0;
    cuDevicePrimaryCtxReset_v2(_device: c_int) 0;
    cuCtxCreate_v2(to: *mut Handle, _flags: u32, device: c_int) made_current(to, device);
    cuCtxDestroy_v2(_context: Handle) 0;
    cuCtxGetCurrent(to: *mut Handle) answer(to, local::current() as u64);
    cuCtxSetCurrent(context: Handle) {
        if context > DEVICES as u64 {
            return INVALID_VALUE;
        }
        local::set_current(context as usize);
        0
    };
    cuCtxGetDevice(to: *mut c_int) match local::current() {
        0 => local::INVALID_CONTEXT,
        context => answer(to, context as c_int - 1),
    };
    cuCtxSynchronize() local::synchronise(None);
    cuCtxSynchronize_v2(_context: Handle) local::synchronise(None);
    cuStreamCreate(to: *mut Handle, _flags: u32) answer(to, local::with(local::Local::number));
    cuStreamDestroy_v2(_stream: Handle) 0;
    cuStreamSynchronize(at: Handle) local::synchronise(Some(stream(at, false)));
    cuStreamSynchronize_ptsz(at: Handle) local::synchronise(Some(stream(at, true)));
    cuStreamQuery(at: Handle) local::query(stream(at, false));
    cuStreamQuery_ptsz(at: Handle) local::query(stream(at, true));
    cuEventCreate(to: *mut Handle, _flags: u32) answered(to, local::create_event());
    cuEventDestroy_v2(event: Handle) { local::destroy_event(event); 0 };
    cuEventRecord(event: Handle, at: Handle) local::record_event(event, stream(at, false));
    cuEventRecord_ptsz(event: Handle, at: Handle) local::record_event(event, stream(at, true));
    cuEventQuery(event: Handle) local::query_event(event);
    cuEventSynchronize(event: Handle) local::wait_event(event);
    cuEventElapsedTime(to: *mut f32, begin: Handle, end: Handle) elapsed(to, begin, end);
    cuThreadExchangeStreamCaptureMode(_mode: *mut c_int) 0;
    cuGetExportTable(to: *mut *const c_void, _id: *const c_void) {
        let _ = answer(to, std::ptr::null());
        local::NOT_FOUND
    };
}
