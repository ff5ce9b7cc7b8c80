//! Every way of the loader by which a program can ask for a function of the driver, and whose it gets.

use std::ffi::{CStr, CString, c_char, c_void};
use std::mem;

use anyhow::{Result, ensure};

unsafe extern "C" {
    fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
}

/// The file of the object that has a function; `-` for none.
fn owner(function: *mut c_void) -> String {
    // SAFETY: zeros are a description; any address may be asked for.
    let file = unsafe {
        let mut about: libc::Dl_info = mem::zeroed();
        let known = libc::dladdr(function, &raw mut about) != 0 && !about.dli_fname.is_null();
        known.then(|| CStr::from_ptr(about.dli_fname).to_string_lossy())
    };
    let file = file.unwrap_or_else(|| "-".into());
    file.rsplit('/').next().unwrap_or_default().to_owned()
}

/// Prints for each name whose function each way gives, and that `dlvsym` still knows versions.
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
    // SAFETY: as above. The next object's `dlsym` is glibc's, and there is none of this version.
    let (next, none) = unsafe {
        (
            dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), c"GLIBC_2.34".as_ptr()),
            dlvsym(all, c"malloc".as_ptr(), c"GLIBC_0.0".as_ptr()),
        )
    };
    println!("next {} none {}", owner(next), owner(none));
    Ok(())
}
