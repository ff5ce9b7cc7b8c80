//! The driver's functions that this library calls: events, contexts and devices.

use std::ffi::{CStr, c_int, c_void};
use std::{mem, ptr};

use crate::symbols::{Handle, Result, of_driver};

pub const DRIVER: &CStr = c"libcuda.so.1";

macro_rules! functions {
    ($($field:ident = $name:literal ( $($arg:ty),* );)*) => {
        #[derive(Debug, Clone, Copy)]
        pub struct Driver {
            $(pub $field: unsafe extern "C" fn($($arg),*) -> Result,)*
        }

        impl Driver {
            #[must_use]
            pub fn load() -> Option<Self> {
                $(let $field = of_driver(DRIVER, $name);
                if $field.is_null() {
                    return None;
                })*
                // SAFETY: the driver's functions of these names have these signatures.
                unsafe { Some(Self { $($field: mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> Result>($field),)* }) }
            }
        }
    };
}

functions! {
    event_create = c"cuEventCreate"(*mut Handle, u32);
    event_record = c"cuEventRecord"(Handle, Handle);
    event_record_thread = c"cuEventRecord_ptsz"(Handle, Handle);
    event_query = c"cuEventQuery"(Handle);
    event_elapsed = c"cuEventElapsedTime"(*mut f32, Handle, Handle);
    is_capturing = c"cuStreamIsCapturing"(Handle, *mut c_int);
    is_capturing_thread = c"cuStreamIsCapturing_ptsz"(Handle, *mut c_int);
    exchange_mode = c"cuThreadExchangeStreamCaptureMode"(*mut c_int);
    context = c"cuCtxGetCurrent"(*mut Handle);
    set_context = c"cuCtxSetCurrent"(Handle);
    device = c"cuCtxGetDevice"(*mut c_int);
    count = c"cuDeviceGetCount"(*mut c_int);
    uuid = c"cuDeviceGetUuid"(*mut [u8; 16], c_int);
}

/// `CU_STREAM_CAPTURE_MODE_RELAXED`: this library's calls belong to no capture.
const RELAXED: c_int = 2;

impl Driver {
    /// Disturbs no capture of this process.
    pub fn quietly<T>(&self, what: impl FnOnce() -> T) -> T {
        let mut mode = RELAXED;
        // SAFETY: `mode` is writable.
        unsafe { (self.exchange_mode)(&raw mut mode) };
        let answer = what();
        // SAFETY: as above; restores the previous mode.
        unsafe { (self.exchange_mode)(&raw mut mode) };
        answer
    }

    #[must_use]
    pub fn current(&self) -> Handle {
        let mut context = ptr::null_mut();
        // SAFETY: `context` is writable.
        unsafe { (self.context)(&raw mut context) };
        context
    }

    /// During a capture nothing may wait or be recorded in the stream.
    #[must_use]
    pub fn captures(&self, stream: Handle, of_thread: bool) -> bool {
        let mut status = 0;
        let ask = if of_thread {
            self.is_capturing_thread
        } else {
            self.is_capturing
        };
        // SAFETY: the stream is the caller's. A legacy capture elsewhere is an error: then, too, nothing is
        // recorded.
        let result = unsafe { ask(stream, &raw mut status) };
        result != 0 || status != 0
    }
}
