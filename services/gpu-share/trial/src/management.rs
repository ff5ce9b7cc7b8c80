//! NVML's report of device memory.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::mem;

use anyhow::{Result, ensure};

use crate::cuda::{Cuda, check};

/// `nvmlMemory_v2_t`; `version` combines size and version 2.
#[repr(C)]
struct Memory2 {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

pub fn run(device: u64, bytes: u64) -> Result<()> {
    let cuda = Cuda::load(false)?;
    cuda.on(c_int::try_from(device)?)?;
    let device = c_uint::try_from(device)?;
    // SAFETY: the functions of these names have these signatures.
    unsafe {
        let allocate: unsafe extern "C" fn(*mut u64, usize) -> c_int =
            mem::transmute(cuda.find("cuMemAlloc", 3020, 0)?);
        let mut at = 0;
        check("cuMemAlloc", allocate(&raw mut at, usize::try_from(bytes)?))?;
        let library = libc::dlopen(c"libnvidia-ml.so.1".as_ptr(), libc::RTLD_NOW);
        ensure!(!library.is_null(), "there is no libnvidia-ml.so.1 here");
        let find = |name: &CStr| -> Result<*mut c_void> {
            let found = libc::dlsym(library, name.as_ptr());
            ensure!(!found.is_null(), "NVML has no {name:?}");
            Ok(found)
        };
        let init: unsafe extern "C" fn() -> c_int = mem::transmute(find(c"nvmlInit_v2")?);
        let handle: unsafe extern "C" fn(c_uint, *mut *mut c_void) -> c_int =
            mem::transmute(find(c"nvmlDeviceGetHandleByIndex_v2")?);
        let first: unsafe extern "C" fn(*mut c_void, *mut [u64; 3]) -> c_int =
            mem::transmute(find(c"nvmlDeviceGetMemoryInfo")?);
        let second: unsafe extern "C" fn(*mut c_void, *mut Memory2) -> c_int =
            mem::transmute(find(c"nvmlDeviceGetMemoryInfo_v2")?);
        let (mut its, mut memory) = (std::ptr::null_mut(), [0; 3]);
        let mut more: Memory2 = mem::zeroed();
        more.version = u32::try_from(mem::size_of::<Memory2>())? | 2 << 24;
        check("nvmlInit", init())?;
        check("nvmlDeviceGetHandleByIndex", handle(device, &raw mut its))?;
        check("nvmlDeviceGetMemoryInfo", first(its, &raw mut memory))?;
        check("nvmlDeviceGetMemoryInfo_v2", second(its, &raw mut more))?;
        let [total, free, used] = memory;
        println!("total {total} free {free} used {used}");
        println!("total {} free {} used {}", more.total, more.free, more.used);
    }
    Ok(())
}
