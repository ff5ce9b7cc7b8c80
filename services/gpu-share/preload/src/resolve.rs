//! The ways to find the driver's functions: `dlsym`, `dlvsym`, `cuGetProcAddress`. Only functions that the
//! driver has are replaced. [`ours`] maps a request (name, version, per-thread default streams) to the
//! exported name.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use crate::calls::LISTS;
use crate::driver::DRIVER;
use crate::symbols::{
    NOT_FOUND, REAL_DLSYM, REAL_DLVSYM, Result, Symbol, is_wanted, of_driver, real_dlsym,
    real_dlvsym,
};

const PER_THREAD: u64 = 2;

/// Versions from which a name means another function.
const VERSIONS: &[(&[u8], c_int, &[u8])] = &[
    (b"cuMemAlloc", 3020, b"cuMemAlloc_v2"),
    (b"cuMemAllocPitch", 3020, b"cuMemAllocPitch_v2"),
    (b"cuMemFree", 3020, b"cuMemFree_v2"),
    (b"cuMemGetInfo", 3020, b"cuMemGetInfo_v2"),
    (b"cuDeviceTotalMem", 3020, b"cuDeviceTotalMem_v2"),
    (b"cuMemcpyHtoD", 3020, b"cuMemcpyHtoD_v2"),
    (b"cuMemcpyDtoH", 3020, b"cuMemcpyDtoH_v2"),
    (b"cuMemcpyDtoD", 3020, b"cuMemcpyDtoD_v2"),
    (b"cuMemcpyHtoDAsync", 3020, b"cuMemcpyHtoDAsync_v2"),
    (b"cuMemcpyDtoHAsync", 3020, b"cuMemcpyDtoHAsync_v2"),
    (b"cuMemcpyDtoDAsync", 3020, b"cuMemcpyDtoDAsync_v2"),
    (b"cuMemcpy2D", 3020, b"cuMemcpy2D_v2"),
    (b"cuMemcpy2DUnaligned", 3020, b"cuMemcpy2DUnaligned_v2"),
    (b"cuMemcpy2DAsync", 3020, b"cuMemcpy2DAsync_v2"),
    (b"cuMemcpy3D", 3020, b"cuMemcpy3D_v2"),
    (b"cuMemcpy3DAsync", 3020, b"cuMemcpy3DAsync_v2"),
    (b"cuMemsetD8", 3020, b"cuMemsetD8_v2"),
    (b"cuMemsetD16", 3020, b"cuMemsetD16_v2"),
    (b"cuMemsetD32", 3020, b"cuMemsetD32_v2"),
    (b"cuMemsetD2D8", 3020, b"cuMemsetD2D8_v2"),
    (b"cuMemsetD2D16", 3020, b"cuMemsetD2D16_v2"),
    (b"cuMemsetD2D32", 3020, b"cuMemsetD2D32_v2"),
    (b"cuMemcpyAtoD", 3020, b"cuMemcpyAtoD_v2"),
    (b"cuMemcpyDtoA", 3020, b"cuMemcpyDtoA_v2"),
    (b"cuMemcpyHtoA", 3020, b"cuMemcpyHtoA_v2"),
    (b"cuMemcpyAtoH", 3020, b"cuMemcpyAtoH_v2"),
    (b"cuMemcpyAtoA", 3020, b"cuMemcpyAtoA_v2"),
    (b"cuMemcpyHtoAAsync", 3020, b"cuMemcpyHtoAAsync_v2"),
    (b"cuMemcpyAtoHAsync", 3020, b"cuMemcpyAtoHAsync_v2"),
    (b"cuArrayCreate", 3020, b"cuArrayCreate_v2"),
    (b"cuArray3DCreate", 3020, b"cuArray3DCreate_v2"),
    (b"cuStreamDestroy", 4000, b"cuStreamDestroy_v2"),
    (b"cuCtxDestroy", 4000, b"cuCtxDestroy_v2"),
    (b"cuStreamBeginCapture", 10010, b"cuStreamBeginCapture_v2"),
    (
        b"cuDevicePrimaryCtxRelease",
        11000,
        b"cuDevicePrimaryCtxRelease_v2",
    ),
    (
        b"cuDevicePrimaryCtxReset",
        11000,
        b"cuDevicePrimaryCtxReset_v2",
    ),
    (b"cuMemPrefetchAsync", 12020, b"cuMemPrefetchAsync_v2"),
    (b"cuCtxSynchronize", 13000, b"cuCtxSynchronize_v2"),
    (b"cuMemcpyBatchAsync", 13000, b"cuMemcpyBatchAsync_v2"),
    (b"cuMemcpy3DBatchAsync", 13000, b"cuMemcpy3DBatchAsync_v2"),
];

fn exported(name: &[u8], suffix: &[u8]) -> Option<&'static Symbol> {
    let is = |it: &&&Symbol| {
        let its = it.name.to_bytes();
        its.len() == name.len() + suffix.len() && its.starts_with(name) && its.ends_with(suffix)
    };
    LISTS.iter().flat_map(|list| list.iter()).find(is).copied()
}

fn ours(name: &[u8], version: c_int, flags: u64) -> Option<&'static Symbol> {
    let mut versions = VERSIONS.iter();
    let later = versions.find(|(base, from, _)| *base == name && version >= *from);
    let meant = later.map_or(name, |(_, _, exported)| exported);
    if flags & PER_THREAD != 0 {
        let own = exported(meant, b"_ptsz").or_else(|| exported(meant, b"_ptds"));
        if own.is_some() {
            return own;
        }
    }
    exported(meant, b"")
}

fn given(symbol: Option<&'static Symbol>, real: *mut c_void) -> *mut c_void {
    match symbol {
        Some(symbol) if !real.is_null() && real.cast_const() != symbol.ours => {
            symbol.found(real);
            symbol.ours.cast_mut()
        }
        _ => real,
    }
}

unsafe extern "C" fn looked_up(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    let Some(dlsym) = real_dlsym() else {
        return ptr::null_mut();
    };
    // SAFETY: the caller's arguments.
    unsafe { replaced_by_name(name, dlsym(handle, name)) }
}

unsafe extern "C" fn looked_up_version(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    let Some(dlvsym) = real_dlvsym() else {
        return ptr::null_mut();
    };
    // SAFETY: the caller's arguments.
    unsafe { replaced_by_name(name, dlvsym(handle, name, version)) }
}

unsafe fn replaced_by_name(name: *const c_char, real: *mut c_void) -> *mut c_void {
    if name.is_null() || real.is_null() {
        return real;
    }
    // SAFETY: a C string: the real function has read it.
    let name = unsafe { CStr::from_ptr(name) };
    let bytes = name.to_bytes();
    if !bytes.starts_with(b"cu") && !bytes.starts_with(b"nvml") {
        return real;
    }
    for (own, ours) in [
        (c"cuGetProcAddress", cuGetProcAddress as *const c_void),
        (c"cuGetProcAddress_v2", cuGetProcAddress_v2 as *const c_void),
    ] {
        if name == own {
            // Valid only if the driver has the function.
            let its = of_driver(DRIVER, own);
            return if its.is_null() || !is_wanted() {
                its
            } else {
                ours.cast_mut()
            };
        }
    }
    let Some(symbol) = exported(bytes, b"") else {
        return real;
    };
    let real = if real.cast_const() == symbol.ours {
        of_driver(symbol.library, symbol.name)
    } else {
        real
    };
    if is_wanted() {
        given(Some(symbol), real)
    } else {
        real
    }
}

/// `RTLD_NEXT` refers to the caller's successors, so the real function is reached by a jump: a call would
/// make this library the caller.
macro_rules! lookup {
    ($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),+), $ours:ident, $real:ident) => {
        $(#[$doc])*
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),+) -> *mut c_void {
            std::arch::naked_asm!(
                "cmp rdi, -1",
                "jne {ours}",
                "mov rax, [rip + {real}]",
                "test rax, rax",
                "jz {ours}",
                "jmp rax",
                ours = sym $ours,
                real = sym $real,
            )
        }

        #[cfg(not(target_arch = "x86_64"))]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),+) -> *mut c_void {
            // SAFETY: the caller's arguments.
            unsafe { $ours($($argument),+) }
        }
    };
}

lookup!(
    dlsym(handle: *mut c_void, name: *const c_char),
    looked_up,
    REAL_DLSYM
);
lookup!(
    dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char),
    looked_up_version,
    REAL_DLVSYM
);

unsafe fn replaced(name: *const c_char, to: *mut *mut c_void, version: c_int, flags: u64) {
    // SAFETY: the driver wrote to it, and read the name.
    let (Some(to), false) = (unsafe { to.as_mut() }, name.is_null()) else {
        return;
    };
    if to.is_null() || !is_wanted() {
        return;
    }
    // SAFETY: as above.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    if name == b"cuGetProcAddress" {
        // Version 12.0 added an argument.
        *to = if version >= 12000 {
            cuGetProcAddress_v2 as *mut c_void
        } else {
            cuGetProcAddress as *mut c_void
        };
        return;
    }
    let symbol = ours(name, version, flags);
    *to = given(symbol, *to);
    if let Some(symbol) = symbol {
        trace(name, version, flags, symbol);
    }
}

/// `DORMOUSE_GPU_TRACE` names a log of replacements, for tests and debugging.
fn trace(name: &[u8], version: c_int, flags: u64, symbol: &Symbol) {
    let Some(path) = std::env::var_os("DORMOUSE_GPU_TRACE") else {
        return;
    };
    let name = String::from_utf8_lossy(name);
    let ours = symbol.name.to_string_lossy();
    let file = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path);
    let line = format!("{name} {version} {flags} {ours}\n");
    let _ = file.and_then(|mut it| std::io::Write::write_all(&mut it, line.as_bytes()));
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress(
    name: *const c_char,
    to: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> Result {
    let real = of_driver(DRIVER, c"cuGetProcAddress");
    if real.is_null() {
        return NOT_FOUND;
    }
    type Real = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> Result;
    // SAFETY: the driver's function of this name has this signature.
    let real: Real = unsafe { std::mem::transmute(real) };
    // SAFETY: the caller's arguments.
    let result = unsafe { real(name, to, version, flags) };
    if result == 0 {
        // SAFETY: as above.
        unsafe { replaced(name, to, version, flags) };
    }
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    to: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_int,
) -> Result {
    let real = of_driver(DRIVER, c"cuGetProcAddress_v2");
    if real.is_null() {
        return NOT_FOUND;
    }
    type Real =
        unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> Result;
    // SAFETY: the driver's function of this name has this signature.
    let real: Real = unsafe { std::mem::transmute(real) };
    // SAFETY: the caller's arguments.
    let result = unsafe { real(name, to, version, flags, status) };
    if result == 0 {
        // SAFETY: as above.
        unsafe { replaced(name, to, version, flags) };
    }
    result
}
