//! The real `dlsym` and `dlvsym`, and the driver's own function per replacement. Nothing here allocates,
//! locks or reads the environment.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

pub type Result = c_int;
pub type Handle = *mut c_void;
pub type Address = u64;

pub const OUT_OF_MEMORY: Result = 2;
pub const NOT_READY: Result = 600;
pub const NOT_FOUND: Result = 302;

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// Jumps in [`crate::resolve`] read these.
pub(crate) static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
pub(crate) static REAL_DLVSYM: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Read from the object's tables, because this library's own `dlvsym` shadows the name.
#[must_use]
pub fn real_dlvsym() -> Option<Dlvsym> {
    let mut real = REAL_DLVSYM.load(Ordering::Acquire);
    if real.is_null() {
        real = crate::objects::function(b"dlvsym");
        REAL_DLVSYM.store(real, Ordering::Release);
    }
    // SAFETY: the pointer is `dlvsym` or null.
    unsafe { std::mem::transmute::<*mut c_void, Option<Dlvsym>>(real) }
}

/// Tries all versions of the symbol.
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
    // SAFETY: the pointer is `dlsym` or null.
    unsafe { std::mem::transmute::<*mut c_void, Option<Dlsym>>(real) }
}

#[must_use]
pub fn of_driver(library: &CStr, name: &CStr) -> *mut c_void {
    let flags = libc::RTLD_NOLOAD | libc::RTLD_LAZY;
    // SAFETY: a C string; nothing is loaded, so no foreign code runs.
    let handle = unsafe { libc::dlopen(library.as_ptr(), flags) };
    match (handle.is_null(), real_dlsym()) {
        // SAFETY: an open handle and a C string.
        (false, Some(dlsym)) => unsafe { dlsym(handle, name.as_ptr()) },
        _ => ptr::null_mut(),
    }
}

#[derive(Debug)]
pub struct Symbol {
    pub name: &'static CStr,
    pub library: &'static CStr,
    pub ours: *const c_void,
    real: AtomicPtr<c_void>,
}

// SAFETY: `ours` is the address of a function.
unsafe impl Sync for Symbol {}

impl Symbol {
    #[must_use]
    pub const fn new(name: &'static CStr, library: &'static CStr, ours: *const c_void) -> Self {
        Self {
            name,
            library,
            ours,
            real: AtomicPtr::new(ptr::null_mut()),
        }
    }

    pub fn found(&self, real: *mut c_void) {
        if real.cast_const() != self.ours {
            self.real.store(real, Ordering::Release);
        }
    }

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

/// True if the environment names the scheduler's socket. Reads the environment without a lock.
#[must_use]
pub fn is_wanted() -> bool {
    // SAFETY: a C string; the pointer is only compared.
    let value = unsafe { libc::getenv(c"DORMOUSE_GPU_SOCKET".as_ptr()) };
    !value.is_null()
}
