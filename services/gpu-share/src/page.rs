//! The memory that a container's processes share with the scheduler: terms and caps, written by the
//! server; one slot a process with its counters, written by the process. All of it are atomics: a
//! process that dies leaves nothing locked.

use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::{io, mem, ptr};

/// Devices that a container may share.
pub const DEVICES: usize = 8;
/// Processes of a container that are counted.
pub const SLOTS: usize = 64;

/// A device, as its container sees it.
#[repr(C)]
#[derive(Debug)]
pub struct Part {
    /// The UUID's bytes, as two numbers, the first bytes first; zero if they are not known.
    pub uuid: [AtomicU64; 2],
    /// Guaranteed, in thousandths of the device's time.
    pub request_milli: AtomicU32,
    /// At most, in thousandths.
    pub limit_milli: AtomicU32,
    /// Whether another container waits for the token.
    pub contended: AtomicU32,
    /// Whether the device is shared: parts that are not are ignored.
    pub shared: AtomicU32,
    /// Memory that the container's processes may have together; the largest number for no cap.
    pub cap_bytes: AtomicU64,
    /// Memory that they have.
    pub memory_bytes: AtomicU64,
    /// The grant in force.
    pub epoch: AtomicU64,
    /// When it ends, by the machine's monotonic clock.
    pub deadline_ns: AtomicU64,
}

/// What one process did on one device, since it came.
#[repr(C)]
#[derive(Debug)]
pub struct Counters {
    /// Launches, and copies and sets that pass the gate.
    pub launches: AtomicU64,
    /// Launches known to be done.
    pub completions: AtomicU64,
    /// Time that its work took on the device, by the device's events.
    pub busy_ns: AtomicU64,
    /// The same with pauses too short for another container: what it is charged.
    pub occupied_ns: AtomicU64,
    /// Memory that it has.
    pub memory_bytes: AtomicU64,
    /// How often a thread waited for the token, and how long all of them did.
    pub waits: AtomicU64,
    /// See `waits`.
    pub waited_ns: AtomicU64,
    /// Allocations refused because of the cap.
    pub refusals: AtomicU64,
}

/// One process.
#[repr(C)]
#[derive(Debug)]
pub struct Slot {
    /// By device.
    pub counters: [Counters; DEVICES],
}

/// A container's page.
#[repr(C)]
#[derive(Debug)]
pub struct Page {
    /// Its devices.
    pub parts: [Part; DEVICES],
    /// Its processes.
    pub slots: [Slot; SLOTS],
}

/// A page in this process's memory.
#[derive(Debug)]
pub struct Mapped(NonNull<Page>);

// SAFETY: a page is made of atomics.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// A new page, all zero, and the descriptor by which others map it. It cannot be made shorter:
    /// who holds it cannot take it from under another's feet.
    ///
    /// # Errors
    /// If the kernel has no memory for it.
    pub fn create() -> io::Result<(Self, OwnedFd)> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a C string; the descriptor is new and ours.
        let fd = unsafe { libc::memfd_create(c"dormouse-gpu".as_ptr(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: see above.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let size = i64::try_from(mem::size_of::<Page>()).map_err(io::Error::other)?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: the descriptor is open.
        let sized = unsafe {
            libc::ftruncate(fd.as_raw_fd(), size) == 0
                && libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) == 0
        };
        if !sized {
            return Err(io::Error::last_os_error());
        }
        let page = Self::map(Some(fd.as_fd()))?;
        Ok((page, fd))
    }

    /// A page that somebody else made; without a descriptor one of this process alone.
    ///
    /// # Errors
    /// If it is too short, or cannot be mapped.
    pub fn map(fd: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        let size = mem::size_of::<Page>();
        let (flags, raw) = match fd {
            Some(fd) => (libc::MAP_SHARED, fd.as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        };
        if fd.is_some() {
            // SAFETY: a zeroed stat is one; the descriptor is open.
            let mut stat: libc::stat = unsafe { mem::zeroed() };
            // SAFETY: as above.
            let known = unsafe { libc::fstat(raw, &raw mut stat) } == 0;
            if !known || usize::try_from(stat.st_size).unwrap_or(0) < size {
                return Err(io::Error::other("the page is too short"));
            }
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, nowhere in particular.
        let at = unsafe { libc::mmap(ptr::null_mut(), size, access, flags, raw, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(at.cast::<Page>())
            .map(Self)
            .ok_or_else(|| io::Error::other("mapped at zero"))
    }
}

impl Deref for Mapped {
    type Target = Page;

    fn deref(&self) -> &Page {
        // SAFETY: mapped as long as `self` lives, aligned to a page, and any bytes are atomics.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: `map` made this mapping, and no reference outlives `self`.
        unsafe { libc::munmap(self.0.as_ptr().cast(), mem::size_of::<Page>()) };
    }
}

impl Part {
    /// Takes `bytes` of what the cap leaves; false if it leaves less.
    #[must_use]
    pub fn reserve(&self, bytes: u64) -> bool {
        let cap = self.cap_bytes.load(Ordering::Relaxed);
        let more = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= cap);
        let order = Ordering::AcqRel;
        self.memory_bytes
            .fetch_update(order, Ordering::Acquire, more)
            .is_ok()
    }

    /// Gives `bytes` back.
    pub fn release(&self, bytes: u64) {
        let less = |used: u64| Some(used.saturating_sub(bytes));
        let order = Ordering::AcqRel;
        let _ = self
            .memory_bytes
            .fetch_update(order, Ordering::Acquire, less);
    }
}

/// The bytes of `GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`, as two numbers; zeros for another form.
#[must_use]
pub fn uuid_numbers(text: &str) -> [u64; 2] {
    let digits: String = text
        .trim_start_matches("GPU-")
        .chars()
        .filter(|it| *it != '-')
        .collect();
    match (digits.len(), u128::from_str_radix(&digits, 16)) {
        (32, Ok(number)) => {
            let bytes = number.to_be_bytes();
            uuid_of(&bytes)
        }
        _ => [0, 0],
    }
}

/// The two numbers of a UUID's bytes.
#[must_use]
pub fn uuid_of(bytes: &[u8; 16]) -> [u64; 2] {
    let number = u128::from_be_bytes(*bytes);
    // The halves: both fit.
    [
        (number >> 64) as u64,
        (number & u128::from(u64::MAX)) as u64,
    ]
}

/// The machine's monotonic clock, the same for all its processes.
#[must_use]
pub fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}
