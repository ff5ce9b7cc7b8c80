//! Exported functions of loaded objects, read from their own tables without `dlsym`. Nothing here allocates.
//!
//! Source: the System V ABI, chapter 5 (dynamic section); the GNU hash table as in glibc's `elf/dl-lookup.c`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::{mem, ptr};

const TABLE_OF_SYMBOLS: i64 = 6;
const TABLE_OF_NAMES: i64 = 5;
const GNU_HASH: i64 = 0x6fff_fef5;
const LOADED: u32 = 1;
const DYNAMIC: u32 = 2;

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
    found: *mut c_void,
}

/// Null if no object but this library exports the function.
#[must_use]
pub fn function(name: &[u8]) -> *mut c_void {
    let mut wanted = Wanted {
        name,
        found: ptr::null_mut(),
    };
    // SAFETY: `look` gets `wanted`, which lives until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut wanted).cast()) };
    wanted.found
}

unsafe extern "C" fn look(
    object: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    wanted: *mut c_void,
) -> c_int {
    // SAFETY: the loader's description of an object, and `function`'s argument.
    let (object, wanted) = unsafe { (&*object, &mut *wanted.cast::<Wanted<'_>>()) };
    // SAFETY: the loader gives the number of headers.
    let headers =
        unsafe { std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)) };
    let Some(section) = headers.iter().find(|it| it.p_type == DYNAMIC) else {
        return 0;
    };
    let base = object.dlpi_addr;
    if is_this_library(base, headers) {
        return 0;
    }
    // SAFETY: the object is loaded; its headers locate its tables.
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

fn is_this_library(base: u64, headers: &[libc::Elf64_Phdr]) -> bool {
    let own = (look as *const c_void as u64).wrapping_sub(base);
    let mut loaded = headers.iter().filter(|it| it.p_type == LOADED);
    loaded.any(|it| own.wrapping_sub(it.p_vaddr) < it.p_memsz)
}

struct Tables {
    base: u64,
    symbols: *const Entry,
    names: *const c_char,
    hash: *const u32,
}

impl Tables {
    unsafe fn read(base: u64, section: u64) -> Option<Self> {
        let (mut symbols, mut names, mut hash) = (0, 0, 0);
        let mut entry = section as *const [u64; 2];
        loop {
            // SAFETY: the section ends with an entry of kind 0.
            let [kind, value] = unsafe { entry.read() };
            // The loader relocates addresses, except for the vDSO's.
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
        // SAFETY: the buckets follow the filter, and the chains follow the buckets.
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
            // SAFETY: chains index symbols of the table, and symbols index its strings.
            let (symbol, name) = unsafe {
                let symbol = &*self.symbols.add(at as usize);
                (symbol, CStr::from_ptr(self.names.add(symbol.name as usize)))
            };
            let address = (self.base + symbol.value) as *mut c_void;
            let is_function = symbol.info & 0xf == 2 && symbol.section != 0;
            if is_function && name.to_bytes() == wanted.name {
                return Some(address);
            }
        }
        None
    }
}

/// Bernstein's hash, as in GNU's table.
fn hash(name: &[u8]) -> u32 {
    let step = |hash: u32, byte: &u8| hash.wrapping_mul(33).wrapping_add(u32::from(*byte));
    name.iter().fold(5381, step)
}

const _: () = assert!(mem::size_of::<Entry>() == 24 && mem::size_of::<usize>() == 8);
