//! Every call that allocates memory, tried below the cap and beyond it.

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;

use anyhow::{Result, ensure};

use crate::cuda::{Cuda, check};

type Result32 = c_int;

struct Way {
    name: &'static str,
    allocate: Box<dyn Fn(u64) -> (Result32, u64)>,
    free: Box<dyn Fn(u64) -> Result32>,
}

macro_rules! call {
    ($cuda:expr, $name:literal, $version:expr, ($($arg:ty),*)) => {{
        let found = $cuda.find($name, $version, 0)?;
        // SAFETY: the driver's function of this name has this signature.
        unsafe { mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> Result32>(found) }
    }};
}

/// `$give` makes a call's arguments from the bytes.
macro_rules! way {
    ($name:literal, $free:expr, |$to:ident, $bytes:ident| $give:expr) => {{
        let free = $free;
        Way {
            name: $name,
            allocate: Box::new(move |$bytes| {
                let mut at = 0_u64;
                let $to = &raw mut at;
                // SAFETY: writable places, and descriptors that live until the call returns.
                let result = unsafe { $give };
                (result, at)
            }),
            // SAFETY: `at` comes from the previous call.
            free: Box::new(move |at| unsafe { free(at) }),
        }
    }};
}

fn plain(cuda: &Cuda) -> Result<Vec<Way>> {
    let free = call!(cuda, "cuMemFree", 3020, (u64));
    let later = call!(cuda, "cuMemFreeAsync", 11020, (u64, u64));
    let later = move |at: u64| -> Result32 {
        // SAFETY: allocated before, in the default stream.
        unsafe { later(at, 0) }
    };
    unsafe fn safe(call: impl Fn(u64) -> Result32, at: u64) -> Result32 {
        call(at)
    }
    let alloc = call!(cuda, "cuMemAlloc", 3020, (*mut u64, usize));
    let managed = call!(cuda, "cuMemAllocManaged", 6000, (*mut u64, usize, u32));
    let pitch = call!(
        cuda,
        "cuMemAllocPitch",
        3020,
        (*mut u64, *mut usize, usize, usize, u32)
    );
    let soon = call!(cuda, "cuMemAllocAsync", 11020, (*mut u64, usize, u64));
    let pool = call!(
        cuda,
        "cuMemAllocFromPoolAsync",
        11020,
        (*mut u64, usize, u64, u64)
    );
    let mut ways = vec![
        way!("cuMemAlloc", free, |to, bytes| alloc(to, bytes as usize)),
        way!("cuMemAllocManaged", free, |to, bytes| managed(
            to,
            bytes as usize,
            1
        )),
        way!("cuMemAllocPitch", free, |to, bytes| {
            let mut row = 0;
            pitch(to, &raw mut row, 513, (bytes / 1024) as usize, 4)
        }),
    ];
    let default = call!(cuda, "cuDeviceGetDefaultMemPool", 11020, (*mut u64, c_int));
    let mut own = 0;
    // SAFETY: a writable place.
    check("cuDeviceGetDefaultMemPool", unsafe {
        default(&raw mut own, 0)
    })?;
    let after = move |at: u64| later(at);
    for (name, from_pool) in [
        ("cuMemAllocAsync", false),
        ("cuMemAllocFromPoolAsync", true),
    ] {
        ways.push(Way {
            name,
            allocate: Box::new(move |bytes| {
                let mut at = 0;
                // SAFETY: a writable place; the default pool and stream.
                let result = unsafe {
                    if from_pool {
                        pool(&raw mut at, bytes as usize, own, 0)
                    } else {
                        soon(&raw mut at, bytes as usize, 0)
                    }
                };
                (result, at)
            }),
            // SAFETY: `at` comes from `allocate`.
            free: Box::new(move |at| unsafe { safe(after, at) }),
        });
    }
    Ok(ways)
}

fn others(cuda: &Cuda) -> Result<Vec<Way>> {
    let release = call!(cuda, "cuMemRelease", 10020, (u64));
    let create = call!(
        cuda,
        "cuMemCreate",
        10020,
        (*mut u64, usize, *const [i32; 8], u64)
    );
    let drop_array = call!(cuda, "cuArrayDestroy", 2000, (u64));
    let array = call!(cuda, "cuArrayCreate", 3020, (*mut u64, *const [usize; 3]));
    let array3 = call!(cuda, "cuArray3DCreate", 3020, (*mut u64, *const [usize; 5]));
    let drop_mipmap = call!(cuda, "cuMipmappedArrayDestroy", 5000, (u64));
    let mipmap = call!(
        cuda,
        "cuMipmappedArrayCreate",
        5000,
        (*mut u64, *const [usize; 5], u32)
    );
    let forget = call!(cuda, "cuDestroyExternalMemory", 10000, (u64));
    let import = call!(
        cuda,
        "cuImportExternalMemory",
        10000,
        (*mut u64, *const [u64; 16])
    );
    // Format 0x20 (float) with four channels: sixteen bytes an element.
    let kind = 0x4_0000_0020_usize;
    Ok(vec![
        way!("cuMemCreate", release, |to, bytes| {
            let properties = [1, 0, 1, 0, 0, 0, 0, 0];
            create(to, bytes as usize, &raw const properties, 0)
        }),
        way!("cuArrayCreate", drop_array, |to, bytes| {
            let wanted = [1024, (bytes / 16384) as usize, kind];
            array(to, &raw const wanted)
        }),
        way!("cuArray3DCreate", drop_array, |to, bytes| {
            let wanted = [1024, 2, (bytes / 32768) as usize, kind, 0];
            array3(to, &raw const wanted)
        }),
        way!("cuMipmappedArrayCreate", drop_mipmap, |to, bytes| {
            let wanted = [1024, 1, (bytes / 16384) as usize, kind, 0];
            mipmap(to, &raw const wanted, 3)
        }),
        way!("cuImportExternalMemory", forget, |to, bytes| {
            let mut wanted = [0; 16];
            wanted[0] = 1;
            wanted[3] = bytes;
            import(to, &raw const wanted)
        }),
    ])
}

/// Half of the cap succeeds, another three quarters do not, and half succeeds again after the release.
pub fn run(cap: u64) -> Result<()> {
    let cuda = Cuda::load(false)?;
    cuda.on(0)?;
    let mut ways = plain(&cuda)?;
    ways.extend(others(&cuda)?);
    let information = call!(cuda, "cuMemGetInfo", 3020, (*mut usize, *mut usize));
    let total = call!(cuda, "cuDeviceTotalMem", 3020, (*mut usize, c_int));
    for way in &ways {
        // A mipmapped array counts a third more.
        let (first, second) = (cap / 2, cap * 3 / 4);
        let (result, at) = (way.allocate)(first);
        check(way.name, result)?;
        let (beyond, _) = (way.allocate)(second);
        let mut free = 0;
        // SAFETY: a writable place, and null for the total.
        check("cuMemGetInfo", unsafe {
            information(&raw mut free, ptr::null_mut())
        })?;
        check("free", (way.free)(at))?;
        let (again, at) = (way.allocate)(first);
        check(way.name, again)?;
        check("free", (way.free)(at))?;
        println!("{} beyond {beyond} free {free}", way.name);
    }
    let (mut free, mut all, mut whole) = (0, 0, 0);
    // SAFETY: writable places.
    unsafe {
        check("cuMemGetInfo", information(&raw mut free, &raw mut all))?;
        check("cuDeviceTotalMem", total(&raw mut whole, 0))?;
    }
    println!("free {free} total {all} device {whole}");
    Ok(())
}

/// Mappings hold memory without a handle; a handle holds memory without a mapping.
pub fn mapped(bytes: u64) -> Result<()> {
    let cuda = Cuda::load(false)?;
    cuda.on(0)?;
    let create = call!(
        cuda,
        "cuMemCreate",
        10020,
        (*mut u64, usize, *const [i32; 8], u64)
    );
    let release = call!(cuda, "cuMemRelease", 10020, (u64));
    let retain = call!(cuda, "cuMemRetainAllocationHandle", 11000, (*mut u64, u64));
    let reserve = call!(
        cuda,
        "cuMemAddressReserve",
        10020,
        (*mut u64, usize, usize, u64, u64)
    );
    let map = call!(cuda, "cuMemMap", 10020, (u64, usize, usize, u64, u64));
    let unmap = call!(cuda, "cuMemUnmap", 10020, (u64, usize));
    let properties = [1, 0, 1, 0, 0, 0, 0, 0];
    let length = usize::try_from(bytes)?;
    let mut places = Vec::new();
    let take = |places: &mut Vec<u64>| -> Result<c_int> {
        let (mut handle, mut at) = (0, 0);
        // SAFETY: writable places, and values from the driver.
        unsafe {
            match create(&raw mut handle, length, &raw const properties, 0) {
                0 => {}
                result => return Ok(result),
            }
            check("cuMemAddressReserve", reserve(&raw mut at, length, 0, 0, 0))?;
            check("cuMemMap", map(at, length, 0, handle, 0))?;
            check("cuMemRelease", release(handle))?;
        }
        places.push(at);
        Ok(0)
    };
    let last = loop {
        match take(&mut places)? {
            0 => {}
            result => break result,
        }
    };
    println!("{} mapped, then {last}", places.len());
    let (kept, mut handle) = (places[0], 0);
    // SAFETY: a writable place, and valid mappings.
    unsafe {
        check("cuMemRetainAllocationHandle", retain(&raw mut handle, kept))?;
        for at in places.drain(..) {
            check("cuMemUnmap", unmap(at, length))?;
        }
    }
    while take(&mut places)? == 0 {}
    println!("{} mapped beside one that is held", places.len());
    // SAFETY: a valid handle.
    check("cuMemRelease", unsafe { release(handle) })?;
    while take(&mut places)? == 0 {}
    println!("{} mapped", places.len());
    Ok(())
}

pub fn hold(bytes: u64, ms: u64) -> Result<()> {
    let cuda = Cuda::load(false)?;
    cuda.on(0)?;
    let allocate = call!(cuda, "cuMemAlloc", 3020, (*mut u64, usize));
    let mut at = 0_u64;
    // SAFETY: a writable place.
    let result = unsafe { allocate(&raw mut at, bytes as usize) };
    println!("result {result}");
    ensure!(result == 0 || at == 0, "memory was given, and an error");
    std::thread::sleep(std::time::Duration::from_millis(ms));
    Ok(())
}

/// Channels from the descriptor, named channels, packed, planar and compressed formats.
const FORMATS: [u64; 12] = [
    0x01, 0x09, 0x10, 0x20, 0xc2, 0xc5, 0xcb, 0xb1, 0xb0, 0x92, 0xa8, 0x9f,
];

pub fn formats() -> Result<()> {
    let cuda = Cuda::load(false)?;
    cuda.on(0)?;
    let array = call!(cuda, "cuArrayCreate", 3020, (*mut u64, *const [usize; 3]));
    let drop_array = call!(cuda, "cuArrayDestroy", 2000, (u64));
    for format in FORMATS {
        let wanted = [1024, 8192, (1 << 32) | usize::try_from(format)?];
        let mut arrays = Vec::new();
        let last = loop {
            let mut at = 0;
            // SAFETY: a writable place, and a descriptor that lives until the call returns.
            match unsafe { array(&raw mut at, &raw const wanted) } {
                0 => arrays.push(at),
                result => break result,
            }
        };
        println!("{format:#x} {} arrays, then {last}", arrays.len());
        for at in arrays {
            // SAFETY: a valid array.
            check("cuArrayDestroy", unsafe { drop_array(at) })?;
        }
    }
    Ok(())
}
