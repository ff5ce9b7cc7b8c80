//! Process ids and the shared clock.

use std::sync::atomic::{AtomicU32, Ordering};

pub fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

static ME: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    ME.store(0, Ordering::Relaxed);
}

/// Calls of the driver stay cheap with a cached pid.
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

/// False for a zombie.
pub fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default();
    !matches!(state.trim().chars().next(), None | Some('Z' | 'X'))
}
