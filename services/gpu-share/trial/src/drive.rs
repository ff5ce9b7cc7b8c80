//! The ways to use a GPU that tests drive.

use std::ffi::c_int;
use std::mem;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cuda::{Cuda, check};
use crate::{calls, cost, management, memory};

pub fn run(way: &str, numbers: &[&str]) -> Result<()> {
    let numbers: Vec<u64> = numbers
        .iter()
        .map(|it| it.parse().with_context(|| format!("{it} is no number")))
        .collect::<Result<_>>()?;
    let number = |at: usize| numbers.get(at).copied().unwrap_or(0);
    match way {
        "spin" => spin(0, number(0), number(1), false),
        "spin-on" => spin(number(2) as c_int, number(0), number(1), false),
        "spin-own-stream" => spin(0, number(0), number(1), true),
        "sync" => sync(number(0), number(1), number(2)),
        "graph" => graph(number(0), number(1), number(2)),
        "threads" => threads(number(0), number(1), number(2)),
        "both" => both(number(0), number(1)),
        "fork" => fork(number(0), number(1)),
        "memory" => memory::run(number(0)),
        "hold" => memory::hold(number(0), number(1)),
        "formats" => memory::formats(),
        "mapped" => memory::mapped(number(0)),
        "call" => calls::one(usize::try_from(number(0))?),
        "poll" => poll(number(0), number(1), number(2)),
        "cost" => cost(number(0)),
        "paired" => cost::paired(number(0)),
        "nvml" => management::run(number(0), number(1)),
        _ => bail!("no such way: {way}"),
    }
}

fn until(ms: u64) -> impl Fn() -> bool {
    let end = Instant::now() + Duration::from_millis(ms);
    move || Instant::now() < end
}

fn counted(ms: u64, mut step: impl FnMut() -> Result<u64>) -> Result<u64> {
    let (goes_on, mut count) = (until(ms), 0);
    while goes_on() {
        count += step()?;
    }
    Ok(count)
}

/// Prints `ready`, takes steps for `ms` milliseconds, and prints the launches.
fn launching(ms: u64, step: impl FnMut() -> Result<u64>) -> Result<()> {
    println!("ready");
    println!("launched {}", counted(ms, step)?);
    Ok(())
}

/// Waits after every sixteenth launch.
fn spin(device: c_int, kernel_ns: u64, ms: u64, own_stream: bool) -> Result<()> {
    let cuda = Cuda::load(own_stream)?;
    cuda.on(device)?;
    let kernel = cuda.kernel(kernel_ns)?;
    let stream = if own_stream { 0 } else { cuda.stream()? };
    launching(ms, || {
        for _ in 0..16 {
            cuda.launch(kernel, stream)?;
        }
        cuda.synchronise()?;
        Ok(16)
    })
}

fn sync(kernel_ns: u64, think_us: u64, ms: u64) -> Result<()> {
    let cuda = Cuda::load(false)?;
    cuda.on(0)?;
    let kernel = cuda.kernel(kernel_ns)?;
    launching(ms, || {
        cuda.launch(kernel, 0)?;
        cuda.synchronise()?;
        std::thread::sleep(Duration::from_micros(think_us));
        Ok(1)
    })
}

/// Captures ten kernels once.
fn graph(kernel_ns: u64, ms: u64, captures: u64) -> Result<()> {
    let cuda = Cuda::load(false)?;
    cuda.on(0)?;
    let kernel = cuda.kernel(kernel_ns)?;
    let stream = cuda.stream()?;
    // SAFETY: the driver's functions of these names have these signatures.
    let (begin, end, make, launch) = unsafe {
        type Begin = unsafe extern "C" fn(u64, c_int) -> c_int;
        type End = unsafe extern "C" fn(u64, *mut u64) -> c_int;
        type Make = unsafe extern "C" fn(*mut u64, u64, u64) -> c_int;
        type Launch = unsafe extern "C" fn(u64, u64) -> c_int;
        (
            mem::transmute::<*mut libc::c_void, Begin>(cuda.find(
                "cuStreamBeginCapture",
                10010,
                0,
            )?),
            mem::transmute::<*mut libc::c_void, End>(cuda.find("cuStreamEndCapture", 10000, 0)?),
            mem::transmute::<*mut libc::c_void, Make>(cuda.find(
                "cuGraphInstantiateWithFlags",
                11040,
                0,
            )?),
            mem::transmute::<*mut libc::c_void, Launch>(cuda.find("cuGraphLaunch", 10000, 0)?),
        )
    };
    let (mut count, mut made) = (0_u64, 0);
    launching(ms, || {
        if made < captures.max(1) {
            let (mut graph, mut instance) = (0, 0);
            cuda.launch(kernel, stream)?;
            // SAFETY: a valid stream.
            check("cuStreamBeginCapture", unsafe { begin(stream, 0) })?;
            for _ in 0..10 {
                cuda.launch(kernel, stream)?;
            }
            // SAFETY: as above, and writable places.
            unsafe {
                check("cuStreamEndCapture", end(stream, &raw mut graph))?;
                check("cuGraphInstantiate", make(&raw mut instance, graph, 0))?;
            }
            made = instance;
        }
        // SAFETY: a valid instance.
        check("cuGraphLaunch", unsafe { launch(made, stream) })?;
        count += 1;
        if count % 4 == 0 {
            cuda.synchronise()?;
        }
        Ok(1)
    })
}

fn threads(kernel_ns: u64, ms: u64, count: u64) -> Result<()> {
    let cuda = Cuda::load(true)?;
    cuda.on(0)?;
    println!("ready");
    let threads: Vec<_> = (0..count)
        .map(|_| {
            std::thread::spawn(move || -> Result<u64> {
                cuda.on(0)?;
                let kernel = cuda.kernel(kernel_ns)?;
                counted(ms, || {
                    cuda.launch(kernel, 0)?;
                    cuda.launch(kernel, 2)?;
                    cuda.synchronise()?;
                    Ok(2)
                })
            })
        })
        .collect();
    let mut sum = 0;
    for thread in threads {
        sum += thread.join().ok().context("a thread panicked")??;
    }
    println!("launched {sum}");
    Ok(())
}

fn both(kernel_ns: u64, ms: u64) -> Result<()> {
    let cuda = Cuda::load(false)?;
    cuda.on(0)?;
    let kernel = cuda.kernel(kernel_ns)?;
    launching(ms, || {
        for device in [0, 1] {
            cuda.on(device)?;
            cuda.launch(kernel, 0)?;
            cuda.launch(kernel, 0)?;
        }
        cuda.synchronise()?;
        Ok(4)
    })
}

/// Polls by stream, by a thread's own stream or by event (0, 1, 2).
fn poll(kernel_ns: u64, ms: u64, by: u64) -> Result<()> {
    let cuda = Cuda::load(by == 1)?;
    cuda.on(0)?;
    let kernel = cuda.kernel(kernel_ns)?;
    let flags = if by == 1 { 2 } else { 0 };
    // SAFETY: the driver's functions of these names have these signatures.
    let (ask, ask_event, create, record) = unsafe {
        type Ask = unsafe extern "C" fn(u64) -> c_int;
        type Create = unsafe extern "C" fn(*mut u64, u32) -> c_int;
        type Record = unsafe extern "C" fn(u64, u64) -> c_int;
        let ask = cuda.find("cuStreamQuery", 2000, flags)?;
        let ask_event = cuda.find("cuEventQuery", 2000, 0)?;
        let create = cuda.find("cuEventCreate", 2000, 0)?;
        let record = cuda.find("cuEventRecord", 2000, flags)?;
        (
            mem::transmute::<*mut libc::c_void, Ask>(ask),
            mem::transmute::<*mut libc::c_void, Ask>(ask_event),
            mem::transmute::<*mut libc::c_void, Create>(create),
            mem::transmute::<*mut libc::c_void, Record>(record),
        )
    };
    let mut event = 0;
    // SAFETY: a writable place.
    check("cuEventCreate", unsafe { create(&raw mut event, 0) })?;
    let asked = launching(ms, || {
        for _ in 0..8 {
            cuda.launch(kernel, 0)?;
        }
        // SAFETY: a valid event, and the default stream.
        check("cuEventRecord", unsafe { record(event, 0) })?;
        loop {
            // SAFETY: as above.
            match unsafe { if by == 2 { ask_event(event) } else { ask(0) } } {
                600 => std::thread::sleep(Duration::from_micros(200)),
                result => {
                    check("the question", result)?;
                    return Ok(8);
                }
            }
        }
    });
    std::thread::sleep(calls::REST);
    asked
}

/// A child forked before the driver's initialisation works; a later one gets errors, and does not hang.
fn fork(kernel_ns: u64, ms: u64) -> Result<()> {
    // SAFETY: there is only one thread yet.
    let first = unsafe { libc::fork() };
    if first == 0 {
        let done = spin(0, kernel_ns, ms, false);
        std::process::exit(i32::from(done.is_err()));
    }
    let cuda = Cuda::load(false)?;
    cuda.on(0)?;
    let kernel = cuda.kernel(kernel_ns)?;
    cuda.launch(kernel, 0)?;
    // SAFETY: the child calls the driver, which refuses, and ends.
    let second = unsafe { libc::fork() };
    if second == 0 {
        let refused = cuda.launch(kernel, 0).is_err();
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let count = counted(ms, || {
        cuda.launch(kernel, 0)?;
        cuda.synchronise()?;
        Ok(1)
    })?;
    for child in [first, second] {
        let mut status = 0;
        // SAFETY: a child of this process.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        println!("child {status}");
    }
    println!("launched {count}");
    Ok(())
}

/// The least time of an empty launch in ns.
fn cost(rounds: u64) -> Result<()> {
    let cuda = Cuda::load(false)?;
    cuda.on(0)?;
    let kernel = cuda.kernel(0)?;
    let stream = cuda.stream()?;
    let mut least = u128::MAX;
    for _ in 0..rounds {
        let begun = Instant::now();
        for _ in 0..256 {
            cuda.launch(kernel, stream)?;
        }
        least = least.min(begun.elapsed().as_nanos() / 256);
        cuda.synchronise()?;
    }
    println!("cost {least}");
    Ok(())
}

/// On the stand-in the runtime finds all functions, then lacks private interfaces.
pub fn runtime(path: &str) -> Result<()> {
    let path = std::ffi::CString::new(path)?;
    // SAFETY: C strings; the function of this name has this signature.
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        anyhow::ensure!(!library.is_null(), "no CUDA runtime at {path:?}");
        let count = libc::dlsym(library, c"cudaGetDeviceCount".as_ptr());
        anyhow::ensure!(!count.is_null(), "the runtime has no cudaGetDeviceCount");
        let count =
            mem::transmute::<*mut libc::c_void, unsafe extern "C" fn(*mut c_int) -> c_int>(count);
        let mut devices = 0;
        println!("cudaGetDeviceCount says {}", count(&raw mut devices));
        let set = libc::dlsym(library, c"cudaFree".as_ptr());
        let set = mem::transmute::<
            *mut libc::c_void,
            unsafe extern "C" fn(*mut libc::c_void) -> c_int,
        >(set);
        println!("cudaFree says {}", set(std::ptr::null_mut()));
    }
    Ok(())
}
