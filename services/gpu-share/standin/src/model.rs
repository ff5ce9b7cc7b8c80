//! The modelled machine, in a mapped file. Whichever process looks advances it to the present.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{io, mem, ptr};

pub use crate::process::now_ns;
use crate::process::{me, runs};

pub const DEVICES: usize = 2;
const CONTEXTS: usize = 16;
const QUEUE: usize = 1024;
const EVENTS: usize = 8192;
const LEDGER: usize = 1 << 17;
const SLICE_NS: u64 = 2_000_000;
const CHECK_NS: u64 = 2_000_000;

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Busy {
    pub device: u32,
    pub pid: u32,
    pub begin_ns: u64,
    pub end_ns: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Item {
    left_ns: u64,
    /// Event to mark, plus one; 0 for a kernel.
    event: u32,
}

#[repr(C)]
pub struct Context {
    pub pid: u32,
    head: u64,
    tail: u64,
    next_event: u64,
    pub memory_bytes: u64,
    pub peak_bytes: u64,
    queue: [Item; QUEUE],
    times: [u64; EVENTS],
}

#[repr(C)]
struct Device {
    time_ns: u64,
    turn: u32,
    turn_ends_ns: u64,
    checked_ns: u64,
    memory_bytes: u64,
    contexts: [Context; CONTEXTS],
}

#[repr(C)]
pub struct Gpu {
    lock: AtomicU32,
    pub devices: u32,
    pub total_bytes: u64,
    device: [Device; DEVICES],
    busy_count: u64,
    busy: [Busy; LEDGER],
}

#[derive(Debug, Clone, Copy)]
pub struct Machine(*mut Gpu);

// SAFETY: every access is under the machine's lock.
unsafe impl Send for Machine {}
// SAFETY: as above.
unsafe impl Sync for Machine {}

impl Machine {
    pub fn create(path: &Path, devices: u32, total_bytes: u64) -> io::Result<Self> {
        let file = std::fs::File::create(path)?;
        file.set_len(mem::size_of::<Gpu>() as u64)?;
        drop(file);
        let machine = Self::open(path)?;
        machine.with(|gpu| {
            gpu.devices = devices;
            gpu.total_bytes = total_bytes;
            for device in &mut gpu.device {
                device.time_ns = now_ns();
            }
        });
        Ok(machine)
    }

    /// A hard link settles races between processes.
    pub fn open_or_create(path: &Path, total_bytes: u64) -> io::Result<Self> {
        if !path.exists() {
            let mut own = path.as_os_str().to_owned();
            own.push(format!(".{}", std::process::id()));
            let own = Path::new(&own);
            Self::create(own, 1, total_bytes)?;
            let made = std::fs::hard_link(own, path);
            std::fs::remove_file(own)?;
            match made {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Self::open(path)
    }

    pub fn open(path: &Path) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: a C string; a new mapping of a file of the machine's size, never unmapped.
        let at = unsafe {
            let fd = libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let size = mem::size_of::<Gpu>();
            let at = libc::mmap(ptr::null_mut(), size, access, libc::MAP_SHARED, fd, 0);
            libc::close(fd);
            at
        };
        if at == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(Self(at.cast()))
        }
    }

    /// Locks the machine and advances it.
    pub fn with<T>(&self, what: impl FnOnce(&mut Gpu) -> T) -> T {
        // SAFETY: mapped for good; the lock word is an atomic.
        let lock = unsafe { &(*self.0).lock };
        let me = me();
        let mut tries = 0_u32;
        while let Err(owner) = lock.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
            tries += 1;
            // SAFETY: no arguments.
            unsafe { libc::sched_yield() };
            if tries.is_multiple_of(10_000) && owner != me && !runs(owner) {
                // The owner was killed inside: at worst one entry is missing.
                let _ = lock.compare_exchange(owner, 0, Ordering::Acquire, Ordering::Relaxed);
            }
        }
        // SAFETY: nobody else has the lock.
        let gpu = unsafe { &mut *self.0 };
        gpu.advance(now_ns());
        let answer = what(gpu);
        lock.store(0, Ordering::Release);
        answer
    }

    pub fn busy(&self, from_ns: u64, until_ns: u64) -> Vec<Busy> {
        self.with(|gpu| {
            let count = usize::try_from(gpu.busy_count)
                .unwrap_or(LEDGER)
                .min(LEDGER);
            let within = gpu.busy[..count].iter().filter_map(|it| {
                let (begin_ns, end_ns) = (it.begin_ns.max(from_ns), it.end_ns.min(until_ns));
                (begin_ns < end_ns).then_some(Busy {
                    begin_ns,
                    end_ns,
                    ..*it
                })
            });
            within.collect()
        })
    }

    pub fn used_ns(&self, pid: u32, device: u32, from_ns: u64, until_ns: u64) -> u64 {
        let its = self.busy(from_ns, until_ns);
        let its = its.iter().filter(|it| it.pid == pid && it.device == device);
        its.map(|it| it.end_ns - it.begin_ns).sum()
    }

    pub fn peak_bytes(&self, device: usize) -> u64 {
        self.with(|gpu| {
            gpu.device[device]
                .contexts
                .iter()
                .map(|it| it.peak_bytes)
                .max()
        })
        .unwrap_or(0)
    }
}

impl Gpu {
    fn advance(&mut self, now_ns: u64) {
        for index in 0..DEVICES {
            if now_ns > self.device[index].checked_ns + CHECK_NS {
                self.device[index].bury();
                self.device[index].checked_ns = now_ns;
            }
            while let Some(busy) = self.device[index].run(now_ns, index) {
                self.note(busy);
            }
            self.device[index].time_ns = self.device[index].time_ns.max(now_ns);
        }
    }

    fn note(&mut self, busy: Busy) {
        let count = usize::try_from(self.busy_count).unwrap_or(LEDGER);
        let recent = count.saturating_sub(2)..count.min(LEDGER);
        for last in self.busy[recent].iter_mut().rev() {
            let same = last.device == busy.device && last.pid == busy.pid;
            if same && last.end_ns == busy.begin_ns {
                last.end_ns = busy.end_ns;
                return;
            }
        }
        if count < LEDGER {
            self.busy[count] = busy;
            self.busy_count += 1;
        }
    }

    pub fn context(&mut self, device: usize, pid: u32) -> Option<usize> {
        let contexts = &mut self.device[device].contexts;
        let known = contexts.iter().position(|it| it.pid == pid);
        known.or_else(|| {
            let free = contexts.iter().position(|it| it.pid == 0)?;
            let context = &mut contexts[free];
            (context.pid, context.head, context.tail) = (pid, 0, 0);
            (context.memory_bytes, context.peak_bytes) = (0, 0);
            Some(free)
        })
    }

    /// `None` while the queue is full.
    pub fn launch(&mut self, device: usize, context: usize, left_ns: u64) -> Option<u64> {
        self.push(device, context, Item { left_ns, event: 0 })
    }

    pub fn event(&mut self, device: usize, context: usize) -> u32 {
        let context = &mut self.device[device].contexts[context];
        context.next_event += 1;
        (context.next_event % EVENTS as u64) as u32
    }

    pub fn mark(&mut self, device: usize, context: usize, event: u32) -> Option<u64> {
        let item = Item {
            left_ns: 0,
            event: event + 1,
        };
        self.push(device, context, item)
    }

    fn push(&mut self, device: usize, context: usize, item: Item) -> Option<u64> {
        let context = &mut self.device[device].contexts[context];
        if context.tail - context.head >= QUEUE as u64 {
            return None;
        }
        context.queue[(context.tail % QUEUE as u64) as usize] = item;
        context.tail += 1;
        let number = context.tail;
        self.advance(now_ns());
        Some(number)
    }

    /// `None` if the first `number` items are done.
    pub fn left_ns(&self, device: usize, context: usize, number: u64) -> Option<u64> {
        let context = &self.device[device].contexts[context];
        if context.head >= number {
            return None;
        }
        let items = context.head..number;
        let left = items.map(|at| context.queue[(at % QUEUE as u64) as usize].left_ns);
        Some(left.sum())
    }

    pub fn last(&self, device: usize, context: usize) -> u64 {
        self.device[device].contexts[context].tail
    }

    pub fn marked_ns(&self, device: usize, context: usize, event: u32) -> u64 {
        self.device[device].contexts[context].times[event as usize]
    }

    pub fn take(&mut self, device: usize, context: usize, bytes: u64) -> bool {
        let total_bytes = self.total_bytes;
        let device = &mut self.device[device];
        if device.memory_bytes + bytes > total_bytes {
            return false;
        }
        device.memory_bytes += bytes;
        let context = &mut device.contexts[context];
        context.memory_bytes += bytes;
        context.peak_bytes = context.peak_bytes.max(context.memory_bytes);
        true
    }

    pub fn give(&mut self, device: usize, context: usize, bytes: u64) {
        let device = &mut self.device[device];
        device.memory_bytes = device.memory_bytes.saturating_sub(bytes);
        let context = &mut device.contexts[context];
        context.memory_bytes = context.memory_bytes.saturating_sub(bytes);
    }

    pub fn processes(&self, device: usize) -> Vec<(u32, u64)> {
        let there = self.device[device].contexts.iter();
        let there = there.filter(|it| it.pid != 0);
        there.map(|it| (it.pid, it.memory_bytes)).collect()
    }

    pub fn free_bytes(&self, device: usize) -> u64 {
        self.total_bytes - self.device[device].memory_bytes
    }
}

impl Device {
    /// Drops contexts of ended processes.
    fn bury(&mut self) {
        for context in &mut self.contexts {
            if context.pid != 0 && !runs(context.pid) {
                self.memory_bytes = self.memory_bytes.saturating_sub(context.memory_bytes);
                context.pid = 0;
                context.head = context.tail;
            }
        }
    }

    /// `None` if there is no kernel, or the present is reached.
    fn run(&mut self, now_ns: u64, index: usize) -> Option<Busy> {
        loop {
            let has = |it: &Context| it.pid != 0 && it.head < it.tail;
            let ready = self.contexts.iter().filter(|it| has(it)).count();
            let turn = self.turn as usize;
            let over = self.time_ns >= self.turn_ends_ns && ready > 1;
            if ready == 0 {
                return None;
            }
            if !has(&self.contexts[turn]) || over {
                let next = (1..=CONTEXTS).map(|by| (turn + by) % CONTEXTS);
                let next = next.into_iter().find(|at| has(&self.contexts[*at]))?;
                self.turn = next as u32;
                self.turn_ends_ns = self.time_ns + SLICE_NS;
                continue;
            }
            let time_ns = self.time_ns;
            let context = &mut self.contexts[turn];
            let at = (context.head % QUEUE as u64) as usize;
            let item = context.queue[at];
            if item.event > 0 {
                context.times[item.event as usize - 1] = time_ns;
                context.head += 1;
                continue;
            }
            if time_ns >= now_ns {
                return None;
            }
            let turn_ns = match ready {
                1 => u64::MAX,
                _ => self.turn_ends_ns - time_ns,
            };
            let run_ns = item.left_ns.min(now_ns - time_ns).min(turn_ns);
            context.queue[at].left_ns -= run_ns;
            if context.queue[at].left_ns == 0 {
                context.head += 1;
            }
            self.time_ns += run_ns;
            if run_ns == 0 {
                continue;
            }
            return Some(Busy {
                device: index as u32,
                pid: context.pid,
                begin_ns: time_ns,
                end_ns: self.time_ns,
            });
        }
    }
}
