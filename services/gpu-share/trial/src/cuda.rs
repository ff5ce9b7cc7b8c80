//! The driver, found like the CUDA runtime finds it: `dlopen`, one `dlsym` for `cuGetProcAddress_v2`, which
//! finds the rest.

use std::ffi::{CString, c_char, c_int, c_void};
use std::{mem, ptr};

use anyhow::{Context, Result, bail, ensure};

type Resolve =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> c_int;

pub type Launch = unsafe extern "C" fn(
    u64,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    u64,
    *mut c_void,
    *mut c_void,
) -> c_int;

#[derive(Debug, Clone, Copy)]
pub struct Cuda {
    resolve: Resolve,
    pub launch: Launch,
    synchronise: unsafe extern "C" fn() -> c_int,
}

pub fn check(what: &str, result: c_int) -> Result<()> {
    ensure!(result == 0, "{what} says {result}");
    Ok(())
}

impl Cuda {
    /// With `per_thread` the default stream is the thread's own.
    pub fn load(per_thread: bool) -> Result<Self> {
        // SAFETY: C strings; the driver's initialiser runs.
        let resolve = unsafe {
            let driver = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
            if driver.is_null() {
                bail!("there is no libcuda.so.1 here: no GPU's driver, no stand-in");
            }
            libc::dlsym(driver, c"cuGetProcAddress_v2".as_ptr())
        };
        ensure!(!resolve.is_null(), "the driver has no cuGetProcAddress_v2");
        // SAFETY: the driver's function of this name.
        let resolve: Resolve = unsafe { mem::transmute(resolve) };
        let flags = if per_thread { 2 } else { 0 };
        // SAFETY: the driver's functions of these names have these signatures.
        let cuda =
            unsafe {
                let init = find(resolve, "cuInit", 2000, 0)?;
                let init: unsafe extern "C" fn(u32) -> c_int = mem::transmute(init);
                check("cuInit", init(0))?;
                Self {
                    resolve,
                    launch: mem::transmute::<*mut c_void, Launch>(find(
                        resolve,
                        "cuLaunchKernel",
                        7000,
                        flags,
                    )?),
                    synchronise: mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(
                        find(resolve, "cuCtxSynchronize", 2000, 0)?,
                    ),
                }
            };
        Ok(cuda)
    }

    pub fn find(&self, name: &str, version: c_int, flags: u64) -> Result<*mut c_void> {
        find(self.resolve, name, version, flags)
    }

    pub fn on(&self, device: c_int) -> Result<()> {
        // SAFETY: the driver's functions of these names have these signatures.
        unsafe {
            let retain: unsafe extern "C" fn(*mut u64, c_int) -> c_int =
                mem::transmute(self.find("cuDevicePrimaryCtxRetain", 7000, 0)?);
            let set: unsafe extern "C" fn(u64) -> c_int =
                mem::transmute(self.find("cuCtxSetCurrent", 4000, 0)?);
            let mut context = 0;
            check("cuDevicePrimaryCtxRetain", retain(&raw mut context, device))?;
            check("cuCtxSetCurrent", set(context))
        }
    }

    /// By name on the stand-in, by code on a real device.
    pub fn kernel(&self, duration_ns: u64) -> Result<u64> {
        // SAFETY: as above; the module is a zero-terminated text.
        unsafe {
            let load: unsafe extern "C" fn(*mut u64, *const c_void) -> c_int =
                mem::transmute(self.find("cuModuleLoadData", 2010, 0)?);
            let function: unsafe extern "C" fn(*mut u64, u64, *const c_char) -> c_int =
                mem::transmute(self.find("cuModuleGetFunction", 2000, 0)?);
            let text = CString::new(spin(duration_ns))?;
            let (mut module, mut kernel) = (0, 0);
            check(
                "cuModuleLoadData",
                load(&raw mut module, text.as_ptr().cast()),
            )?;
            let name = CString::new(format!("spin_{duration_ns}"))?;
            check(
                "cuModuleGetFunction",
                function(&raw mut kernel, module, name.as_ptr()),
            )?;
            Ok(kernel)
        }
    }

    pub fn uuid(&self, device: c_int) -> Result<String> {
        let mut bytes = [0_u8; 16];
        // SAFETY: as above.
        unsafe {
            let ask: unsafe extern "C" fn(*mut [u8; 16], c_int) -> c_int =
                mem::transmute(self.find("cuDeviceGetUuid", 9020, 0)?);
            check("cuDeviceGetUuid", ask(&raw mut bytes, device))?;
        }
        let text: String = bytes.iter().map(|it| format!("{it:02x}")).collect();
        let parts = [
            &text[..8],
            &text[8..12],
            &text[12..16],
            &text[16..20],
            &text[20..],
        ];
        Ok(format!("GPU-{}", parts.join("-")))
    }

    pub fn stream(&self) -> Result<u64> {
        let mut stream = 0;
        // SAFETY: as above. Flag 1: no waiting for the default stream.
        unsafe {
            let create: unsafe extern "C" fn(*mut u64, u32) -> c_int =
                mem::transmute(self.find("cuStreamCreate", 2000, 0)?);
            check("cuStreamCreate", create(&raw mut stream, 1))?;
        }
        Ok(stream)
    }

    pub fn launch(&self, kernel: u64, stream: u64) -> Result<()> {
        let null = ptr::null_mut();
        // SAFETY: a kernel without arguments.
        let result = unsafe { (self.launch)(kernel, 1, 1, 1, 1, 1, 1, 0, stream, null, null) };
        check("cuLaunchKernel", result)
    }

    pub fn synchronise(&self) -> Result<()> {
        // SAFETY: no arguments.
        check("cuCtxSynchronize", unsafe { (self.synchronise)() })
    }
}

fn find(resolve: Resolve, name: &str, version: c_int, flags: u64) -> Result<*mut c_void> {
    let text = CString::new(name).context("a name")?;
    let (mut found, mut status) = (ptr::null_mut(), 0);
    // SAFETY: a C string, and writable places.
    let result = unsafe {
        resolve(
            text.as_ptr(),
            &raw mut found,
            version,
            flags,
            &raw mut status,
        )
    };
    ensure!(
        result == 0 && !found.is_null(),
        "the driver has no {name} at {version}"
    );
    Ok(found)
}

/// Spins on the global timer.
fn spin(duration_ns: u64) -> String {
    format!(
        ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry spin_{duration_ns}()\n{{\n\
         .reg .pred %p; .reg .b64 %a, %b;\n mov.u64 %a, %globaltimer;\n\
         again: mov.u64 %b, %globaltimer;\n sub.u64 %b, %b, %a;\n\
         setp.lt.u64 %p, %b, {duration_ns};\n @%p bra again;\n ret;\n}}\n"
    )
}
