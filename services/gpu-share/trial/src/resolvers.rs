//! Every way of the loader to find a function, and the object that provides it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::{mem, ptr};

use anyhow::{Result, ensure};

unsafe extern "C" {
    fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
}

/// `-` for none.
fn owner(function: *mut c_void) -> String {
    // SAFETY: zeros are a valid description; any address may be asked for.
    let file = unsafe {
        let mut about: libc::Dl_info = mem::zeroed();
        let known = libc::dladdr(function, &raw mut about) != 0 && !about.dli_fname.is_null();
        known.then(|| CStr::from_ptr(about.dli_fname).to_string_lossy())
    };
    let file = file.unwrap_or_else(|| "-".into());
    file.rsplit('/').next().unwrap_or_default().to_owned()
}

pub fn run(library: &str, version: &str, names: &[&str]) -> Result<()> {
    let (path, version) = (CString::new(library)?, CString::new(version)?);
    // SAFETY: C strings; the library's initialiser runs.
    let driver = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    ensure!(!driver.is_null(), "there is no {library} here");
    let all = libc::RTLD_DEFAULT;
    for name in names {
        let text = CString::new(*name)?;
        // SAFETY: C strings and handles of the loader.
        let found = unsafe {
            [
                libc::dlsym(driver, text.as_ptr()),
                libc::dlsym(all, text.as_ptr()),
                dlvsym(driver, text.as_ptr(), version.as_ptr()),
                dlvsym(all, text.as_ptr(), version.as_ptr()),
            ]
        };
        println!("{name} {}", found.map(owner).join(" "));
    }
    // SAFETY: as above. The next object's `dlsym` is glibc's; the other version does not exist.
    let (next, none) = unsafe {
        (
            dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), c"GLIBC_2.34".as_ptr()),
            dlvsym(all, c"malloc".as_ptr(), c"GLIBC_0.0".as_ptr()),
        )
    };
    println!("next {} none {}", owner(next), owner(none));
    Ok(())
}

type First = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> c_int;
type Second =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> c_int;

fn whose(function: *mut c_void) -> String {
    // SAFETY: zeros are a valid description; any address may be asked for.
    let name = unsafe {
        let mut about: libc::Dl_info = mem::zeroed();
        let known = libc::dladdr(function, &raw mut about) != 0 && !about.dli_sname.is_null();
        known.then(|| CStr::from_ptr(about.dli_sname).to_string_lossy())
    };
    format!("{} {}", owner(function), name.as_deref().unwrap_or("-"))
}

/// Asks with and without per-thread default streams. Prints name, version, flags and both functions with
/// their objects.
pub fn asked(names: &str, versions: &[&str]) -> Result<()> {
    // SAFETY: C strings; the driver's functions of these names have these signatures.
    let (first, second) = unsafe {
        let driver = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
        ensure!(!driver.is_null(), "there is no libcuda.so.1 here");
        let first = libc::dlsym(driver, c"cuGetProcAddress".as_ptr());
        let second = libc::dlsym(driver, c"cuGetProcAddress_v2".as_ptr());
        ensure!(!first.is_null() && !second.is_null(), "no resolvers");
        (
            mem::transmute::<*mut c_void, First>(first),
            mem::transmute::<*mut c_void, Second>(second),
        )
    };
    for name in std::fs::read_to_string(names)?.lines() {
        let text = CString::new(name)?;
        for version in versions {
            let number: c_int = version.parse()?;
            for flags in [0, 2] {
                let (mut one, mut other, mut status) = (ptr::null_mut(), ptr::null_mut(), 0);
                // SAFETY: a C string, and writable places.
                unsafe {
                    first(text.as_ptr(), &raw mut one, number, flags);
                    second(
                        text.as_ptr(),
                        &raw mut other,
                        number,
                        flags,
                        &raw mut status,
                    );
                }
                println!("{name} {version} {flags} {} {}", whose(one), whose(other));
            }
        }
    }
    Ok(())
}
