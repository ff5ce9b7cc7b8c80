//! What the library knows of its process: the driver's functions, the link to the scheduler, the
//! gates. Made after the real `cuInit`; none in a child of `fork`, where the driver does not work
//! either, until the child itself calls `cuInit`.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use dormouse_gpu_share::page::{DEVICES, uuid_of};
use dormouse_gpu_share::wire;

use crate::driver::Driver;
use crate::gate::{Gate, Stream};
use crate::link::Link;
use crate::memory::Ledger;
use crate::monitor;
use crate::symbols::Handle;

/// Everything.
#[derive(Debug)]
pub struct State {
    pub driver: Driver,
    pub gates: [Gate; DEVICES],
    pub ledger: Mutex<Ledger>,
    link: RwLock<Arc<Link>>,
    /// By the driver's number of a device, its part of the page.
    parts: Vec<Option<usize>>,
    /// The part, where there is one device only: nobody need ask which is current.
    only: Option<usize>,
}

static STATE: AtomicPtr<State> = AtomicPtr::new(ptr::null_mut());
/// The socket, for a child to close: its parent's end must be heard.
static SOCKET: AtomicI32 = AtomicI32::new(-1);
static STARTING: AtomicU32 = AtomicU32::new(0);

/// The state; nothing before `cuInit`.
#[must_use]
pub fn get() -> Option<&'static State> {
    // SAFETY: made by `start`, and never freed.
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

/// Makes the state, once in a process. The driver is initialised.
pub fn start() {
    if !crate::symbols::is_wanted() || STARTING.swap(1, Ordering::AcqRel) != 0 {
        return;
    }
    let Some(driver) = Driver::load() else {
        return;
    };
    let Some(path) = std::env::var_os("DORMOUSE_GPU_SOCKET") else {
        return;
    };
    let Some(link) = Link::connect(&path).or_else(Link::alone) else {
        return;
    };
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
    monitor::start(state, path);
}

fn note_socket(link: &Link) {
    let socket = link.socket.as_ref();
    let socket = socket.map_or(-1, std::os::fd::AsRawFd::as_raw_fd);
    SOCKET.store(socket, Ordering::Release);
}

/// Which part of the page each of the process's devices is: by UUID; where there is one of each
/// they are the same.
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
    /// The link of now.
    #[must_use]
    pub fn link(&self) -> Arc<Link> {
        Arc::clone(&self.link.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Another link from now on; what the process has allocated is counted there.
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

    /// What the process has allocated.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The part of the page that is the calling thread's device; nothing if it is not shared.
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

    /// The part of the page that is a device of the process.
    #[must_use]
    pub fn part_of(&self, device: c_int) -> Option<usize> {
        let index = usize::try_from(device).ok()?;
        self.parts.get(index).copied().flatten()
    }

    /// The parts of all its devices, in the order of the page.
    #[must_use]
    pub fn all_parts(&self) -> Vec<usize> {
        let mut parts: Vec<usize> = self.parts.iter().copied().flatten().collect();
        parts.sort_unstable();
        parts
    }

    /// Says that the process wants the token of a part.
    pub fn ask(&self, part: usize) {
        self.link().say(wire::WANT, part, 0);
    }
}

/// Launches through the gate of the calling thread's device.
pub fn gated<T>(handle: Handle, of_thread: bool, launch: impl FnOnce() -> T) -> T {
    let Some((state, part)) = get().and_then(|it| Some((it, it.part()?))) else {
        return launch();
    };
    // The default stream's two other names.
    let of_thread = (of_thread && handle.is_null()) || handle.addr() == 2;
    let stream = Stream { handle, of_thread };
    let gate = &state.gates[part];
    let entry = gate.enter(&state.driver, stream, |_| state.ask(part));
    let answer = launch();
    gate.leave(&state.driver, stream, entry);
    answer
}
