//! The functions that stand in the driver's place: same name, same signature, the driver's own
//! called within.

use crate::symbols::Symbol;

/// Functions of ours. `$real` calls the driver's with the same arguments.
macro_rules! ours {
    ($library:expr; $($name:ident ( $($arg:ident : $ty:ty),* ) |$real:ident| $body:expr ;)*) => {
        /// What each of these functions knows of the driver's.
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

        /// All of them.
        pub static ALL: &[&$crate::symbols::Symbol] = &[$(&symbol::$name),*];
    };
}

pub mod allocations;
pub mod copies;
pub mod launches;
pub mod life;
pub mod reports;
pub mod sets;
pub mod shapes;

/// Every function of ours but the resolvers, by the file that has it.
pub static LISTS: [&[&Symbol]; 8] = [
    launches::ALL,
    copies::ALL,
    shapes::ALL,
    sets::ALL,
    allocations::ALL,
    life::ALL,
    reports::ALL,
    reports::nvml::ALL,
];
