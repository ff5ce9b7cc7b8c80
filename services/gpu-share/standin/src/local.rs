//! The process's objects: contexts, streams, captures, allocations.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::model::{Gpu, Machine};
use crate::process::me;

pub const INVALID_VALUE: i32 = 1;
pub const OUT_OF_MEMORY: i32 = 2;
pub const NOT_INITIALIZED: i32 = 3;
pub const NO_DEVICE: i32 = 100;
pub const INVALID_CONTEXT: i32 = 201;
pub const NOT_FOUND: i32 = 500;
pub const NOT_READY: i32 = 600;
pub const NOT_SUPPORTED: i32 = 801;
pub const CAPTURE_UNSUPPORTED: i32 = 900;

const MEMORY_BYTES: u64 = 16 << 30;

static MACHINE: OnceLock<(Machine, u32)> = OnceLock::new();
static LOCAL: Mutex<Option<Local>> = Mutex::new(None);

thread_local! {
    /// Device of the current context, plus one.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
    static OWN: Cell<u64> = const { Cell::new(0) };
}

#[derive(Debug, Default)]
pub struct Local {
    next: u64,
    /// Streams with the kernels captured so far.
    captures: BTreeMap<u64, Vec<u64>>,
    last: BTreeMap<(usize, u64), u64>,
    graphs: BTreeMap<u64, Vec<u64>>,
    events: BTreeMap<u64, Event>,
    memory: BTreeMap<u64, (usize, u64)>,
}

#[derive(Debug, Clone, Copy)]
pub struct Event {
    device: usize,
    id: u32,
    number: u64,
}

/// For programs without the environment variable.
fn next_to_library() -> Option<PathBuf> {
    // SAFETY: zeros are a valid description; any address may be asked for.
    let file = unsafe {
        let mut about: libc::Dl_info = std::mem::zeroed();
        let known = libc::dladdr(next_to_library as *const _, &raw mut about) != 0;
        (known && !about.dli_fname.is_null()).then(|| CStr::from_ptr(about.dli_fname))?
    };
    let machine = Path::new(file.to_str().ok()?).with_file_name("gpu");
    machine.exists().then_some(machine)
}

pub fn init() -> i32 {
    let path = std::env::var_os("STANDIN_GPU").map(PathBuf::from);
    let Some(path) = path.or_else(next_to_library) else {
        return NO_DEVICE;
    };
    let Ok(machine) = Machine::open_or_create(&path, MEMORY_BYTES) else {
        return NO_DEVICE;
    };
    let (_, owner) = MACHINE.get_or_init(|| (machine, me()));
    // Like the real driver, initialisation does not survive a fork.
    if *owner == me() { 0 } else { NOT_INITIALIZED }
}

pub fn machine() -> Option<Machine> {
    let (machine, owner) = MACHINE.get()?;
    (*owner == me()).then_some(*machine)
}

fn local() -> MutexGuard<'static, Option<Local>> {
    LOCAL.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn with<T>(what: impl FnOnce(&mut Local) -> T) -> T {
    what(local().get_or_insert_with(Local::default))
}

pub fn current() -> usize {
    CURRENT.get()
}

pub fn set_current(context: usize) {
    CURRENT.set(context);
}

pub fn own_stream() -> u64 {
    if OWN.get() == 0 {
        OWN.set(with(Local::number));
    }
    OWN.get()
}

pub fn on_device<T>(what: impl FnOnce(&mut Gpu, usize, usize) -> T) -> Result<T, i32> {
    let machine = machine().ok_or(NOT_INITIALIZED)?;
    let device = current().checked_sub(1).ok_or(INVALID_CONTEXT)?;
    let pid = me();
    machine.with(|gpu| {
        let context = gpu.context(device, pid).ok_or(OUT_OF_MEMORY)?;
        Ok(what(gpu, device, context))
    })
}

fn until_done<T>(mut attempt: impl FnMut() -> Result<Result<T, u64>, i32>) -> Result<T, i32> {
    loop {
        match attempt()? {
            Ok(answer) => return Ok(answer),
            Err(left_ns) => {
                let nap_ns = left_ns.clamp(20_000, 2_000_000);
                std::thread::sleep(Duration::from_nanos(nap_ns));
            }
        }
    }
}

pub fn launch(stream: u64, left_ns: u64) -> i32 {
    if machine().is_none() {
        // Before any lock: another thread may have held it during the fork.
        return NOT_INITIALIZED;
    }
    let captured = with(|it| it.captures.get_mut(&stream).map(|them| them.push(left_ns)));
    if captured.is_some() {
        return 0;
    }
    let number = until_done(|| {
        on_device(|gpu, device, context| {
            let number = gpu.launch(device, context, left_ns);
            number.map(|it| (device, it)).ok_or(100_000)
        })
    });
    match number {
        Ok((device, number)) => {
            with(|it| it.last.insert((device, stream), number));
            0
        }
        Err(result) => result,
    }
}

pub fn synchronise(stream: Option<u64>) -> i32 {
    let Some(device) = current().checked_sub(1) else {
        return INVALID_CONTEXT;
    };
    let wanted = stream.map(|it| with(|local| local.last.get(&(device, it)).copied().unwrap_or(0)));
    let done = until_done(|| {
        on_device(|gpu, device, context| {
            let number = wanted.unwrap_or_else(|| gpu.last(device, context));
            gpu.left_ns(device, context, number).map_or(Ok(()), Err)
        })
    });
    done.err().unwrap_or(0)
}

pub fn query(stream: u64) -> i32 {
    let Some(device) = current().checked_sub(1) else {
        return INVALID_CONTEXT;
    };
    let number = with(|local| local.last.get(&(device, stream)).copied().unwrap_or(0));
    match on_device(|gpu, device, context| gpu.left_ns(device, context, number)) {
        Ok(None) => 0,
        Ok(Some(_)) => NOT_READY,
        Err(result) => result,
    }
}

impl Local {
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        (self.next << 12) | 0x1000_0000
    }

    pub fn begin_capture(&mut self, stream: u64) {
        self.captures.insert(stream, Vec::new());
    }

    pub fn is_capturing(&self, stream: u64) -> bool {
        self.captures.contains_key(&stream)
    }

    pub fn any_captures(&self) -> bool {
        !self.captures.is_empty()
    }

    pub fn end_capture(&mut self, stream: u64) -> Option<u64> {
        let kernels = self.captures.remove(&stream)?;
        let graph = self.number();
        self.graphs.insert(graph, kernels);
        Some(graph)
    }

    pub fn graph(&self, graph: u64) -> Option<Vec<u64>> {
        self.graphs.get(&graph).cloned()
    }

    pub fn allocated(&mut self, at: u64, device: usize, bytes: u64) {
        self.memory.insert(at, (device, bytes));
    }

    pub fn freed(&mut self, at: u64) -> Option<(usize, u64)> {
        self.memory.remove(&at)
    }
}

pub fn create_event() -> Result<u64, i32> {
    let (device, id) = on_device(|gpu, device, context| (device, gpu.event(device, context)))?;
    Ok(with(|it| {
        let number = it.number();
        let event = Event {
            device,
            id,
            number: 0,
        };
        it.events.insert(number, event);
        number
    }))
}

pub fn record_event(event: u64, stream: u64) -> i32 {
    if with(|it| it.is_capturing(stream)) {
        return CAPTURE_UNSUPPORTED;
    }
    let Some(known) = with(|it| it.events.get(&event).copied()) else {
        return INVALID_VALUE;
    };
    if current() != known.device + 1 {
        return INVALID_CONTEXT;
    }
    let number = until_done(|| {
        on_device(|gpu, device, context| gpu.mark(device, context, known.id).ok_or(100_000))
    });
    match number {
        Ok(number) => {
            with(|it| {
                if let Some(event) = it.events.get_mut(&event) {
                    event.number = number;
                }
                it.last.insert((known.device, stream), number);
            });
            0
        }
        Err(result) => result,
    }
}

fn of_event<T>(event: u64, what: impl Fn(&mut Gpu, Event, usize) -> T) -> Result<T, i32> {
    let known = with(|it| it.events.get(&event).copied()).ok_or(INVALID_VALUE)?;
    let machine = machine().ok_or(NOT_INITIALIZED)?;
    machine.with(|gpu| {
        let context = gpu.context(known.device, me());
        Ok(what(gpu, known, context.ok_or(INVALID_CONTEXT)?))
    })
}

pub fn query_event(event: u64) -> i32 {
    match of_event(event, |gpu, it, context| {
        gpu.left_ns(it.device, context, it.number)
    }) {
        Ok(None) => 0,
        Ok(Some(_)) => NOT_READY,
        Err(result) => result,
    }
}

pub fn wait_event(event: u64) -> i32 {
    let done = until_done(|| {
        of_event(event, |gpu, it, context| {
            gpu.left_ns(it.device, context, it.number)
                .map_or(Ok(()), Err)
        })
    });
    done.err().unwrap_or(0)
}

pub fn time_of_event(event: u64) -> Result<u64, i32> {
    match query_event(event) {
        0 => of_event(event, |gpu, it, context| {
            gpu.marked_ns(it.device, context, it.id)
        }),
        result => Err(result),
    }
}

pub fn destroy_event(event: u64) {
    with(|it| it.events.remove(&event));
}

/// Without a device, uses the current one; returns the allocation's number.
pub fn take(device: Option<usize>, bytes: u64) -> Result<u64, i32> {
    let machine = machine().ok_or(NOT_INITIALIZED)?;
    let device = match device {
        Some(device) => device,
        None => current().checked_sub(1).ok_or(INVALID_CONTEXT)?,
    };
    let taken = machine.with(|gpu| {
        let context = gpu.context(device, me());
        context.is_some_and(|it| gpu.take(device, it, bytes))
    });
    if !taken {
        return Err(OUT_OF_MEMORY);
    }
    Ok(with(|it| {
        let at = it.number();
        it.allocated(at, device, bytes);
        at
    }))
}

pub fn give(at: u64) -> i32 {
    let Some((device, bytes)) = with(|it| it.freed(at)) else {
        return INVALID_VALUE;
    };
    let Some(machine) = machine() else {
        return NOT_INITIALIZED;
    };
    machine.with(|gpu| {
        if let Some(context) = gpu.context(device, me()) {
            gpu.give(device, context, bytes);
        }
    });
    0
}
