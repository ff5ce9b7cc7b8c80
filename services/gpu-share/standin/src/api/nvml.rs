//! The management library, for memory figures. A device's handle is its number plus one.

use std::ffi::{CStr, c_char, c_uint};

use super::basics::{text, uuid};
use super::{Handle, answer};
use crate::local::{self, INVALID_VALUE};
use crate::model::DEVICES;

#[repr(C)]
pub struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
pub struct Memory2 {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Process {
    pid: c_uint,
    memory_bytes: u64,
    instances: [c_uint; 2],
}

const UNKNOWN: i32 = 6;
const TOO_SMALL: i32 = 7;

unsafe fn by_uuid(uuid: *const c_char, to: *mut Handle) -> i32 {
    if uuid.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: a C string, by the library's manual.
    let wanted = unsafe { CStr::from_ptr(uuid) }.to_string_lossy();
    let devices = local::machine().map_or(0, |it| it.with(|gpu| gpu.devices));
    match (1..=u64::from(devices)).find(|it| written(*it) == wanted) {
        Some(device) => answer(to, device),
        None => UNKNOWN,
    }
}

unsafe fn processes(device: Handle, count: *mut c_uint, to: *mut Process) -> i32 {
    let index = usize::try_from(device)
        .ok()
        .and_then(|it| it.checked_sub(1));
    let (Some(index), Some(machine)) = (index.filter(|it| *it < DEVICES), local::machine()) else {
        return INVALID_VALUE;
    };
    // SAFETY: the caller's pointer, with the size of the buffer.
    let Some(count) = (unsafe { count.as_mut() }) else {
        return INVALID_VALUE;
    };
    let there = machine.with(|gpu| gpu.processes(index));
    let room = std::mem::replace(count, there.len() as c_uint) as usize;
    if room < there.len() {
        return TOO_SMALL;
    }
    for (at, (pid, memory_bytes)) in there.into_iter().enumerate() {
        let instances = [c_uint::MAX; 2];
        let process = Process {
            pid,
            memory_bytes,
            instances,
        };
        // SAFETY: the caller's buffer is that large.
        unsafe { to.add(at).write(process) };
    }
    0
}

fn written(device: Handle) -> String {
    let bytes = uuid((device as i32) - 1);
    let hex: String = bytes.iter().map(|it| format!("{it:02x}")).collect();
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    format!("GPU-{}", parts.join("-"))
}

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
    // SAFETY: the caller's pointer, with its version.
    let (Some((total, free)), Some(to)) = (figures(device), unsafe { to.as_mut() }) else {
        return INVALID_VALUE;
    };
    (to.total, to.free, to.used, to.reserved) = (total, free, total - free, 0);
    0
}

unsafe fn name(device: Handle, to: *mut c_char, length: c_uint) -> i32 {
    // SAFETY: the caller's buffer, of that length.
    unsafe { text(to, length as i32, &written(device)) }
}

api! {
    nvmlInit_v2() local::init();
    nvmlShutdown() 0;
    nvmlDeviceGetHandleByIndex_v2(index: c_uint, to: *mut Handle) if (index as usize) < DEVICES { answer(to, u64::from(index) + 1) } else { INVALID_VALUE };
    nvmlDeviceGetHandleByUUID(uuid: *const c_char, to: *mut Handle) unsafe { by_uuid(uuid, to) };
    nvmlDeviceGetComputeRunningProcesses_v3(device: Handle, count: *mut c_uint, to: *mut Process)
        unsafe { processes(device, count, to) };
    nvmlDeviceGetUUID(device: Handle, to: *mut c_char, length: c_uint) unsafe { name(device, to, length) };
    nvmlDeviceGetMemoryInfo(device: Handle, to: *mut Memory) memory(device, to);
    nvmlDeviceGetMemoryInfo_v2(device: Handle, to: *mut Memory2) unsafe { memory2(device, to) };
}
