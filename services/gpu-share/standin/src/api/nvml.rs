//! The management library, for its memory figures: the same machine under another name
//! (`libnvidia-ml.so.1`). A device's handle is its number plus one.

use std::ffi::{c_char, c_uint};

use super::basics::{text, uuid};
use super::{Handle, answer};
use crate::local::{self, INVALID_VALUE};
use crate::model::DEVICES;

/// `nvmlMemory_t`.
#[repr(C)]
pub struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
pub struct Memory2 {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// All and free memory of a device.
fn figures(device: Handle) -> Option<(u64, u64)> {
    let device = usize::try_from(device).ok()?.checked_sub(1)?;
    let machine = local::machine().filter(|_| device < DEVICES)?;
    Some(machine.with(|gpu| (gpu.total_bytes, gpu.free_bytes(device))))
}

fn memory(device: Handle, to: *mut Memory) -> i32 {
    let Some((total, free)) = figures(device) else {
        return INVALID_VALUE;
    };
    let used = total - free;
    answer(to, Memory { total, free, used })
}

unsafe fn memory2(device: Handle, to: *mut Memory2) -> i32 {
    // SAFETY: the caller's, with the version that it knows.
    let (Some((total, free)), Some(to)) = (figures(device), unsafe { to.as_mut() }) else {
        return INVALID_VALUE;
    };
    (to.total, to.free, to.used, to.reserved) = (total, free, total - free, 0);
    0
}

unsafe fn name(device: Handle, to: *mut c_char, length: c_uint) -> i32 {
    let bytes = uuid((device as i32) - 1);
    let hex: String = bytes.iter().map(|it| format!("{it:02x}")).collect();
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    // SAFETY: the caller's, of that length.
    unsafe { text(to, length as i32, &format!("GPU-{}", parts.join("-"))) }
}

api! {
    nvmlInit_v2() local::init();
    nvmlShutdown() 0;
    nvmlDeviceGetHandleByIndex_v2(index: c_uint, to: *mut Handle) match (index as usize) < DEVICES {
        true => answer(to, u64::from(index) + 1),
        false => INVALID_VALUE,
    };
    nvmlDeviceGetUUID(device: Handle, to: *mut c_char, length: c_uint) unsafe { name(device, to, length) };
    nvmlDeviceGetMemoryInfo(device: Handle, to: *mut Memory) memory(device, to);
    nvmlDeviceGetMemoryInfo_v2(device: Handle, to: *mut Memory2) unsafe { memory2(device, to) };
}
