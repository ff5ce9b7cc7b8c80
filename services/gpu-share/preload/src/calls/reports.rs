//! Reports of device memory: the cap, and the container's rest of it.

use std::ffi::{CStr, c_char, c_int};

use crate::memory::seen;
use crate::state::get;
use crate::symbols::{Handle, Result, of_driver};

pub const NVML: &CStr = c"libnvidia-ml.so.1";

#[repr(C)]
#[derive(Debug)]
pub struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
#[derive(Debug)]
pub struct Memory2 {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

fn information(free: *mut usize, total: *mut usize, real: impl FnOnce() -> Result) -> Result {
    let result = real();
    let part = get().and_then(|it| it.part());
    let (0, Some(part)) = (result, part) else {
        return result;
    };
    // Programs may pass only one of the two. SAFETY: the caller's pointers, which the driver wrote to, or
    // null.
    let (free, total) = unsafe { (free.as_mut(), total.as_mut()) };
    let all = total.as_ref().map_or(u64::MAX, |it| **it as u64);
    let real = (free.as_ref().map_or(u64::MAX, |it| **it as u64), all);
    let seen = seen(part, real);
    if let Some(free) = free {
        *free = usize::try_from(seen.0).unwrap_or(usize::MAX);
    }
    if let Some(total) = total {
        *total = usize::try_from(seen.1).unwrap_or(usize::MAX);
    }
    result
}

fn total(bytes: *mut usize, device: c_int, real: impl FnOnce() -> Result) -> Result {
    let result = real();
    let part = get().and_then(|it| it.part_of(device));
    // SAFETY: the caller's pointer, which the driver wrote to.
    if let (0, Some(part), Some(bytes)) = (result, part, unsafe { bytes.as_mut() }) {
        let seen = seen(part, (u64::MAX, *bytes as u64)).1;
        *bytes = usize::try_from(seen).unwrap_or(usize::MAX);
    }
    result
}

fn managed(device: Handle) -> Option<usize> {
    let state = get()?;
    let ask = of_driver(NVML, c"nvmlDeviceGetUUID");
    if ask.is_null() {
        return None;
    }
    // SAFETY: the function of this name has this signature.
    let ask: unsafe extern "C" fn(Handle, *mut c_char, u32) -> Result =
        unsafe { std::mem::transmute(ask) };
    let mut text = [0 as c_char; 96];
    // SAFETY: 96 bytes are writable.
    if unsafe { ask(device, text.as_mut_ptr(), 96) } != 0 {
        return None;
    }
    // SAFETY: NVML terminates the string with a zero.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy();
    let wanted = dormouse_gpu_share::page::uuid_numbers(&text);
    let link = state.link();
    let parts = state.all_parts();
    parts.into_iter().find(|part| {
        let uuid = &link.page().parts[*part].uuid;
        [0, 1].map(|half: usize| uuid[half].load(std::sync::atomic::Ordering::Relaxed)) == wanted
    })
}

fn of_nvml(device: Handle, free: &mut u64, total: &mut u64, used: &mut u64) {
    if let Some(part) = managed(device) {
        (*free, *total) = seen(part, (*free, *total));
        *used = total.saturating_sub(*free);
    }
}

ours! { crate::driver::DRIVER;
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) |real| information(free, total, real);
    cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) |real| total(bytes, device, real);
}

pub mod nvml {
    use super::{Handle, Memory, Memory2, of_nvml};

    ours! { super::super::NVML;
        nvmlDeviceGetMemoryInfo(device: Handle, memory: *mut Memory) |real| {
            let result = real();
            // SAFETY: the caller's pointer, which NVML wrote to.
            if let (0, Some(it)) = (result, unsafe { memory.as_mut() }) {
                of_nvml(device, &mut it.free, &mut it.total, &mut it.used);
            }
            result
        };
        nvmlDeviceGetMemoryInfo_v2(device: Handle, memory: *mut Memory2) |real| {
            let result = real();
            // SAFETY: as above.
            if let (0, Some(it)) = (result, unsafe { memory.as_mut() }) {
                of_nvml(device, &mut it.free, &mut it.total, &mut it.used);
            }
            result
        };
    }
}
