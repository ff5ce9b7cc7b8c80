//! This process and others, and the clock that all of them read.

use std::sync::atomic::{AtomicU32, Ordering};

/// The monotonic clock.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// This process, once it was asked for.
static ME: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    ME.store(0, Ordering::Relaxed);
}

/// This process's number: asked of the kernel once, as calls of the driver are to cost little.
pub fn me() -> u32 {
    let known = ME.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let me = std::process::id();
    // SAFETY: the handler is a function of this library, which is never unloaded.
    if unsafe { libc::pthread_atfork(None, None, Some(in_child)) } == 0 {
        ME.store(me, Ordering::Relaxed);
    }
    me
}

/// Whether a process runs: one that ended and was not waited for does not.
pub fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default();
    !matches!(state.trim().chars().next(), None | Some('Z' | 'X'))
}
