//! Replacements of the driver's functions: equal names and signatures. `launches`, `copies`, `sets` and
//! `shapes` pass the gate; `allocations` and `reports` handle memory, `contexts` handles contexts and
//! waits.

use crate::symbols::Symbol;

/// `$real` calls the driver's function with the given arguments.
macro_rules! ours {
    ($library:expr; $($name:ident ( $($arg:ident : $ty:ty),* ) |$real:ident| $body:expr ;)*) => {
        #[allow(non_upper_case_globals)]
        pub mod symbol {
            use std::ffi::{CStr, c_void};
            use $crate::symbols::Symbol;
            $(pub static $name: Symbol = Symbol::new(
                match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                },
                $library,
                super::$name as *const c_void,
            );)*
        }

        $(#[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $crate::symbols::Result {
            let real = symbol::$name.real();
            if real.is_null() {
                return $crate::symbols::NOT_FOUND;
            }
            // SAFETY: the driver's function of this name has this signature.
            let real: unsafe extern "C" fn($($ty),*) -> $crate::symbols::Result =
                unsafe { std::mem::transmute(real) };
            // SAFETY: the arguments are the caller's.
            let $real = move || unsafe { real($($arg),*) };
            $body
        })*

        pub static ALL: &[&$crate::symbols::Symbol] = &[$(&symbol::$name),*];
    };
}

pub mod allocations;
pub mod contexts;
pub mod copies;
pub mod launches;
pub mod reports;
pub mod sets;
pub mod shapes;

pub static LISTS: [&[&Symbol]; 8] = [
    launches::ALL,
    copies::ALL,
    shapes::ALL,
    sets::ALL,
    allocations::ALL,
    contexts::ALL,
    reports::ALL,
    reports::nvml::ALL,
];
