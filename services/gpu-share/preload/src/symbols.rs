//! The driver's functions: the real `dlsym` and `dlvsym`, and for each function of ours a slot that holds the
//! driver's own. Nothing here allocates, locks or reads the environment.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The driver's result; 0 is success.
pub type Result = c_int;
/// A handle of the driver.
pub type Handle = *mut c_void;
/// An address on a device.
pub type Address = u64;

/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: Result = 2;
/// `CUDA_ERROR_NOT_READY`.
pub const NOT_READY: Result = 600;
/// `CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND`.
pub const NOT_FOUND: Result = 302;

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// glibc's `dlsym` and `dlvsym`, once they were asked for; jumps in [`crate::resolve`] read them.
pub(crate) static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// See [`REAL_DLSYM`].
pub(crate) static REAL_DLVSYM: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// glibc's `dlvsym`: read from the tables of the object that exports it, as this library's own
/// stands in front of it for everybody who asks by name.
#[must_use]
pub fn real_dlvsym() -> Option<Dlvsym> {
    let mut real = REAL_DLVSYM.load(Ordering::Acquire);
    if real.is_null() {
        let ours = crate::resolve::dlvsym as *const c_void;
        real = crate::objects::function(b"dlvsym", ours);
        REAL_DLVSYM.store(real, Ordering::Release);
    }
    // SAFETY: it is `dlvsym`, or null.
    unsafe { std::mem::transmute::<*mut c_void, Option<Dlvsym>>(real) }
}

/// glibc's `dlsym`: by `dlvsym` of the next object, under the versions that it has had.
#[must_use]
pub fn real_dlsym() -> Option<Dlsym> {
    let mut real = REAL_DLSYM.load(Ordering::Acquire);
    if real.is_null() {
        let dlvsym = real_dlvsym()?;
        for version in [c"GLIBC_2.34", c"GLIBC_2.2.5", c"GLIBC_2.17"] {
            // SAFETY: C strings; the pseudo handle asks for the objects after this one.
            real = unsafe { dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
            if !real.is_null() {
                REAL_DLSYM.store(real, Ordering::Release);
                break;
            }
        }
    }
    // SAFETY: it is `dlsym`, or null.
    unsafe { std::mem::transmute::<*mut c_void, Option<Dlsym>>(real) }
}

/// The driver's function of a name, if the process has the driver loaded.
#[must_use]
pub fn of_driver(library: &CStr, name: &CStr) -> *mut c_void {
    let flags = libc::RTLD_NOLOAD | libc::RTLD_LAZY;
    // SAFETY: a C string; nothing is loaded, so no code of others runs.
    let handle = unsafe { libc::dlopen(library.as_ptr(), flags) };
    match (handle.is_null(), real_dlsym()) {
        // SAFETY: an open handle and a C string.
        (false, Some(dlsym)) => unsafe { dlsym(handle, name.as_ptr()) },
        _ => ptr::null_mut(),
    }
}

/// One function of ours, and the driver's that it calls.
#[derive(Debug)]
pub struct Symbol {
    /// The name that the driver exports.
    pub name: &'static CStr,
    /// The library that exports it.
    pub library: &'static CStr,
    /// Ours.
    pub ours: *const c_void,
    real: AtomicPtr<c_void>,
}

// SAFETY: `ours` is the address of a function.
unsafe impl Sync for Symbol {}

impl Symbol {
    /// Not asked for yet.
    #[must_use]
    pub const fn new(name: &'static CStr, library: &'static CStr, ours: *const c_void) -> Self {
        Self {
            name,
            library,
            ours,
            real: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Remembers the driver's function; never our own.
    pub fn found(&self, real: *mut c_void) {
        if real.cast_const() != self.ours {
            self.real.store(real, Ordering::Release);
        }
    }

    /// The driver's function; null where the driver has none.
    #[must_use]
    pub fn real(&self) -> *mut c_void {
        let real = self.real.load(Ordering::Acquire);
        if !real.is_null() {
            return real;
        }
        self.found(of_driver(self.library, self.name));
        self.real.load(Ordering::Acquire)
    }
}

/// Whether the environment names the scheduler's socket: otherwise nothing of ours is handed out.
/// Reads the memory of the environment as it is, without a lock.
#[must_use]
pub fn is_wanted() -> bool {
    // SAFETY: a C string; the pointer is only compared.
    let value = unsafe { libc::getenv(c"DORMOUSE_GPU_SOCKET".as_ptr()) };
    !value.is_null()
}
