//! The library's state, created after the real `cuInit`. A child of `fork` has none until its own `cuInit`,
//! because the driver does not survive a fork.

use std::ffi::{OsString, c_int};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use dormouse_gpu_share::page::{DEVICES, uuid_of};
use dormouse_gpu_share::wire;

use crate::driver::Driver;
use crate::gate::{Gate, Stream};
use crate::ledger::Ledger;
use crate::link::Link;
use crate::symbols::Handle;

#[derive(Debug)]
pub struct State {
    pub driver: Driver,
    pub gates: [Gate; DEVICES],
    pub ledger: Mutex<Ledger>,
    link: RwLock<Arc<Link>>,
    /// By the driver's device number.
    parts: Vec<Option<usize>>,
    /// Saves asking for the current device.
    only: Option<usize>,
}

static STATE: AtomicPtr<State> = AtomicPtr::new(ptr::null_mut());
/// Closed in a child, so that the parent's end is noticed.
static SOCKET: AtomicI32 = AtomicI32::new(-1);
static STARTING: AtomicU32 = AtomicU32::new(0);

/// `None` before `cuInit`.
#[must_use]
pub fn get() -> Option<&'static State> {
    // SAFETY: made by `create`, and never freed.
    unsafe { STATE.load(Ordering::Acquire).as_ref() }
}

extern "C" fn in_child() {
    STATE.store(ptr::null_mut(), Ordering::Release);
    STARTING.store(0, Ordering::Release);
    let socket = SOCKET.swap(-1, Ordering::AcqRel);
    if socket >= 0 {
        // SAFETY: the child's copy; nobody in the child uses it.
        unsafe { libc::close(socket) };
    }
}

/// Once per process: the state, and the path of the scheduler's socket.
pub fn create() -> Option<(&'static State, OsString)> {
    if !crate::symbols::is_wanted() || STARTING.swap(1, Ordering::AcqRel) != 0 {
        return None;
    }
    let driver = Driver::load()?;
    let path = std::env::var_os("DORMOUSE_GPU_SOCKET")?;
    let link = Link::connect(&path).or_else(Link::alone)?;
    let parts = parts(&driver, &link);
    let only = match parts.as_slice() {
        [only] => *only,
        _ => None,
    };
    note_socket(&link);
    let state = Box::leak(Box::new(State {
        driver,
        gates: Default::default(),
        ledger: Mutex::default(),
        link: RwLock::new(Arc::new(link)),
        parts,
        only,
    }));
    // SAFETY: the handler is a function of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    STATE.store(state, Ordering::Release);
    Some((state, path))
}

fn note_socket(link: &Link) {
    let socket = link.socket.as_ref();
    let socket = socket.map_or(-1, std::os::fd::AsRawFd::as_raw_fd);
    SOCKET.store(socket, Ordering::Release);
}

/// By UUID; a single device maps to a single part.
fn parts(driver: &Driver, link: &Link) -> Vec<Option<usize>> {
    let mut count: c_int = 0;
    // SAFETY: `count` is writable.
    unsafe { (driver.count)(&raw mut count) };
    let shared: Vec<usize> = (0..DEVICES)
        .filter(|part| link.page().parts[*part].shared.load(Ordering::Relaxed) == 1)
        .collect();
    if let ([only], 1) = (shared.as_slice(), count) {
        return vec![Some(*only)];
    }
    let part_of = |device: c_int| {
        let mut uuid = [0_u8; 16];
        // SAFETY: sixteen bytes are writable.
        unsafe { (driver.uuid)(&raw mut uuid, device) };
        let wanted = uuid_of(&uuid);
        shared.iter().copied().find(|part| {
            let uuid = &link.page().parts[*part].uuid;
            [0, 1].map(|half: usize| uuid[half].load(Ordering::Relaxed)) == wanted
        })
    };
    (0..count).map(part_of).collect()
}

impl State {
    #[must_use]
    pub fn link(&self) -> Arc<Link> {
        Arc::clone(&self.link.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn relink(&self, link: Link) {
        note_socket(&link);
        let ledger = self.ledger();
        for (part, bytes) in ledger.sums() {
            let counters = link.counters(part);
            counters.memory_bytes.fetch_add(bytes, Ordering::AcqRel);
            let sum = &link.page().parts[part].memory_bytes;
            sum.fetch_add(bytes, Ordering::AcqRel);
        }
        *self.link.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(link);
    }

    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` if the calling thread's device is not shared.
    #[must_use]
    pub fn part(&self) -> Option<usize> {
        if self.only.is_some() {
            return self.only;
        }
        let mut device: c_int = 0;
        // SAFETY: `device` is writable.
        let result = unsafe { (self.driver.device)(&raw mut device) };
        match result {
            0 => self.part_of(device),
            _ => None,
        }
    }

    #[must_use]
    pub fn part_of(&self, device: c_int) -> Option<usize> {
        let index = usize::try_from(device).ok()?;
        self.parts.get(index).copied().flatten()
    }

    #[must_use]
    pub fn all_parts(&self) -> Vec<usize> {
        let mut parts: Vec<usize> = self.parts.iter().copied().flatten().collect();
        parts.sort_unstable();
        parts
    }

    pub fn ask(&self, part: usize) {
        self.link().say(wire::WANT, part, 0);
    }
}

pub fn gated<T>(handle: Handle, of_thread: bool, launch: impl FnOnce() -> T) -> T {
    let Some((state, part)) = get().and_then(|it| Some((it, it.part()?))) else {
        return launch();
    };
    // Two more names of the thread's default stream.
    let of_thread = (of_thread && handle.is_null()) || handle.addr() == 2;
    let stream = Stream { handle, of_thread };
    let gate = &state.gates[part];
    let entry = gate.enter(&state.driver, stream, |_| state.ask(part));
    let answer = launch();
    gate.leave(&state.driver, stream, entry);
    answer
}
