//! The driver's functions that computing programs need; all others answer that they are not supported.
//!
//! `basics` has devices, contexts, streams and events; `work` launches and graphs; `copies`, `memory`,
//! `mappings` and `nvml` the rest.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::Write;

use crate::local::{INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED};

pub type Handle = u64;

macro_rules! api {
    ($($name:ident ( $($arg:ident : $ty:ty),* ) $body:expr ;)*) => {
        $(#[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> i32 {
            $body
        })*

        pub fn find(name: &str) -> *const std::ffi::c_void {
            match name {
                $(stringify!($name) => $name as *const std::ffi::c_void,)*
                _ => std::ptr::null(),
            }
        }
    };
}

pub mod basics;
pub mod copies;
pub mod mappings;
pub mod memory;
pub mod nvml;
pub mod work;

pub(crate) fn answer<T>(to: *mut T, value: T) -> i32 {
    if to.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's pointer, writable by the driver's manual.
    unsafe { to.write(value) };
    0
}

pub(crate) fn answered<T>(to: *mut T, value: Result<T, i32>) -> i32 {
    match value {
        Ok(value) => answer(to, value),
        Err(result) => result,
    }
}

unsafe extern "C" fn unsupported() -> i32 {
    NOT_SUPPORTED
}

/// Version from which a name means this function; `_v2` means 3.2 by default.
fn since(exported: &str) -> c_int {
    match exported {
        "cuGetProcAddress" => 11030,
        "cuGetProcAddress_v2" => 12000,
        "cuCtxSynchronize_v2" => 13000,
        "cuStreamDestroy_v2" | "cuEventDestroy_v2" | "cuCtxDestroy_v2" => 4000,
        "cuStreamBeginCapture_v2" | "cuStreamBeginCapture_v2_ptsz" => 10010,
        "cuDevicePrimaryCtxRelease_v2" | "cuDevicePrimaryCtxReset_v2" => 11000,
        "cuMemPrefetchAsync_v2" | "cuMemPrefetchAsync_v2_ptsz" => 12020,
        "cuMemcpyBatchAsync_v2" | "cuMemcpyBatchAsync_v2_ptsz" => 13000,
        "cuMemcpy3DBatchAsync_v2" | "cuMemcpy3DBatchAsync_v2_ptsz" => 13000,
        other if other.contains("_v2") => 3020,
        _ => 0,
    }
}

fn exported(name: &str) -> *const c_void {
    let found = [
        basics::find(name),
        work::find(name),
        copies::find(name),
        mappings::find(name),
        memory::find(name),
        resolver(name),
    ];
    let found = found.into_iter().find(|it| !it.is_null());
    found.unwrap_or(std::ptr::null())
}

fn resolver(name: &str) -> *const c_void {
    match name {
        "cuGetProcAddress" => cuGetProcAddress as *const c_void,
        "cuGetProcAddress_v2" => cuGetProcAddress_v2 as *const c_void,
        _ => std::ptr::null(),
    }
}

fn note(name: &str, version: c_int, flags: u64, meant: &str) {
    if let Some(path) = std::env::var_os("STANDIN_LOOKUPS") {
        let file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path);
        let line = format!("{name} {version} {flags} {meant}\n");
        let _ = file.and_then(|mut it| it.write_all(line.as_bytes()));
    }
}

/// The newest form that the version allows.
fn resolve(name: &str, version: c_int, flags: u64) -> Option<(String, *const c_void)> {
    for form in ["_v2", ""] {
        for own in ["_ptsz", "_ptds", ""] {
            if !own.is_empty() && flags & 2 == 0 {
                continue;
            }
            let full = format!("{name}{form}{own}");
            let found = exported(&full);
            if !found.is_null() && version >= since(&full) {
                return Some((full, found));
            }
        }
    }
    None
}

unsafe fn look_up(name: *const c_char, to: *mut *const c_void, version: c_int, flags: u64) -> i32 {
    if name.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: a C string, by the driver's manual.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    let found = resolve(&name, version, flags);
    let meant = found.as_ref().map_or("-", |(meant, _)| meant);
    note(&name, version, flags, meant);
    if name.is_empty() || !name.starts_with("cu") {
        let _ = answer(to, std::ptr::null());
        return NOT_FOUND;
    }
    let found = found.map_or(unsupported as *const c_void, |(_, found)| found);
    answer(to, found)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress(
    name: *const c_char,
    to: *mut *const c_void,
    version: c_int,
    flags: u64,
) -> i32 {
    // SAFETY: the caller's arguments.
    unsafe { look_up(name, to, version, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    to: *mut *const c_void,
    version: c_int,
    flags: u64,
    status: *mut c_int,
) -> i32 {
    // SAFETY: the caller's arguments.
    let result = unsafe { look_up(name, to, version, flags) };
    if !status.is_null() {
        // 0: found; 1: no such symbol.
        let _ = answer(status, c_int::from(result != 0));
    }
    result
}
