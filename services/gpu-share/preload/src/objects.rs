//! The objects that the process has loaded, and the functions that they export: read from their own
//! tables, without the loader's `dlsym`. Nothing here allocates.
//!
//! Source: the System V ABI, chapter 5 (dynamic section); the GNU hash table as glibc's
//! `elf/dl-lookup.c` reads it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::{mem, ptr};

/// Entries of the dynamic section.
const TABLE_OF_SYMBOLS: i64 = 6;
const TABLE_OF_NAMES: i64 = 5;
const GNU_HASH: i64 = 0x6fff_fef5;
/// The section's kind among the program headers.
const DYNAMIC: u32 = 2;

/// A symbol of a 64-bit object.
#[repr(C)]
struct Entry {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

struct Wanted<'a> {
    name: &'a [u8],
    /// Not this one.
    but: *const c_void,
    found: *mut c_void,
}

/// The first function of a name that an object of the process exports, but for `but`; null if there
/// is none.
#[must_use]
pub fn function(name: &[u8], but: *const c_void) -> *mut c_void {
    let mut wanted = Wanted {
        name,
        but,
        found: ptr::null_mut(),
    };
    // SAFETY: `look` is called with `wanted`, which lives until this returns.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut wanted).cast()) };
    wanted.found
}

unsafe extern "C" fn look(
    object: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    wanted: *mut c_void,
) -> c_int {
    // SAFETY: the loader's description of an object, and what `function` passed.
    let (object, wanted) = unsafe { (&*object, &mut *wanted.cast::<Wanted<'_>>()) };
    // SAFETY: so many headers, by the loader.
    let headers =
        unsafe { std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)) };
    let Some(section) = headers.iter().find(|it| it.p_type == DYNAMIC) else {
        return 0;
    };
    let base = object.dlpi_addr;
    // SAFETY: the object is loaded; its tables are where its headers say.
    let found =
        unsafe { Tables::read(base, base + section.p_vaddr).and_then(|it| it.find(wanted)) };
    match found {
        Some(found) => {
            wanted.found = found;
            1
        }
        None => 0,
    }
}

struct Tables {
    base: u64,
    symbols: *const Entry,
    names: *const c_char,
    hash: *const u32,
}

impl Tables {
    /// Nothing for an object without a GNU hash table.
    unsafe fn read(base: u64, section: u64) -> Option<Self> {
        let (mut symbols, mut names, mut hash) = (0, 0, 0);
        let mut entry = section as *const [u64; 2];
        loop {
            // SAFETY: the section ends with an entry of kind 0.
            let [kind, value] = unsafe { entry.read() };
            // The loader has made addresses of them, but for the kernel's own object.
            let address = if value < base {
                base.wrapping_add(value)
            } else {
                value
            };
            match kind.cast_signed() {
                0 => break,
                TABLE_OF_SYMBOLS => symbols = address,
                TABLE_OF_NAMES => names = address,
                GNU_HASH => hash = address,
                _ => {}
            }
            // SAFETY: not the last one.
            entry = unsafe { entry.add(1) };
        }
        (symbols != 0 && names != 0 && hash != 0).then_some(Self {
            base,
            symbols: symbols as *const Entry,
            names: names as *const c_char,
            hash: hash as *const u32,
        })
    }

    unsafe fn find(&self, wanted: &Wanted<'_>) -> Option<*mut c_void> {
        // SAFETY: the table begins with these four numbers.
        let [buckets, first, filter, _] = unsafe { self.hash.cast::<[u32; 4]>().read() };
        if buckets == 0 {
            return None;
        }
        let hash = hash(wanted.name);
        let words_of_filter = filter as usize * 2;
        // SAFETY: behind the filter's words stand the buckets, behind them the chains.
        let chains = unsafe {
            let bucket = self.hash.add(4 + words_of_filter);
            let mut at = bucket.add((hash % buckets) as usize).read();
            let chains = bucket.add(buckets as usize);
            if at < first {
                return None;
            }
            std::iter::from_fn(move || {
                (at != 0).then(|| {
                    let its = chains.add((at - first) as usize).read();
                    let this = at;
                    at = if its & 1 == 1 { 0 } else { at + 1 };
                    (this, its)
                })
            })
        };
        for (at, its) in chains {
            if its | 1 != hash | 1 {
                continue;
            }
            // SAFETY: chains name symbols of the table, symbols name strings of theirs.
            let (symbol, name) = unsafe {
                let symbol = &*self.symbols.add(at as usize);
                (symbol, CStr::from_ptr(self.names.add(symbol.name as usize)))
            };
            let address = (self.base + symbol.value) as *mut c_void;
            let is_function = symbol.info & 0xf == 2 && symbol.section != 0;
            if is_function && name.to_bytes() == wanted.name && address.cast_const() != wanted.but {
                return Some(address);
            }
        }
        None
    }
}

/// Bernstein's hash, as GNU's table has it.
fn hash(name: &[u8]) -> u32 {
    let step = |hash: u32, byte: &u8| hash.wrapping_mul(33).wrapping_add(u32::from(*byte));
    name.iter().fold(5381, step)
}

const _: () = assert!(mem::size_of::<Entry>() == 24 && mem::size_of::<usize>() == 8);
