//! Memory shared by a container's processes and the scheduler: terms and caps, and a slot of counters per
//! process. Everything is atomic, so a dying process leaves nothing locked.

use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::{io, mem, ptr};

/// Most devices that a container may share.
pub const DEVICES: usize = 8;
/// Most processes of a container that are counted.
pub const SLOTS: usize = 64;

/// A device as its container sees it.
#[repr(C)]
#[derive(Debug)]
pub struct Part {
    /// Two big-endian halves; zero if unknown.
    pub uuid: [AtomicU64; 2],
    pub request_milli: AtomicU32,
    pub limit_milli: AtomicU32,
    /// 1 if another container waits for the token.
    pub contended: AtomicU32,
    /// 1 if the device is shared; other parts are ignored.
    pub shared: AtomicU32,
    /// The largest number for no cap.
    pub cap_bytes: AtomicU64,
    pub memory_bytes: AtomicU64,
    pub epoch: AtomicU64,
    /// Monotonic clock.
    pub deadline_ns: AtomicU64,
}

/// One process's use of one device.
#[repr(C)]
#[derive(Debug)]
pub struct Counters {
    /// Launches, copies and sets through the gate.
    pub launches: AtomicU64,
    pub completions: AtomicU64,
    pub busy_ns: AtomicU64,
    /// Includes pauses too short for another container: the charge.
    pub occupied_ns: AtomicU64,
    pub memory_bytes: AtomicU64,
    /// `waited_ns` sums the durations.
    pub waits: AtomicU64,
    pub waited_ns: AtomicU64,
    pub refusals: AtomicU64,
}

/// The counters of one process.
#[repr(C)]
#[derive(Debug)]
pub struct Slot {
    pub counters: [Counters; DEVICES],
}

/// A container's page.
#[repr(C)]
#[derive(Debug)]
pub struct Page {
    pub parts: [Part; DEVICES],
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
    /// Creates a zeroed page and the descriptor to map it. Seals keep a holder from truncating it under
    /// others.
    /// # Errors
    /// If the kernel has no memory for it.
    pub fn create() -> io::Result<(Self, OwnedFd)> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a C string; the descriptor is new and owned.
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

    /// Maps an existing page; without a descriptor a private one.
    /// # Errors
    /// If the page is too short, or cannot be mapped.
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
        // SAFETY: a new mapping at an address of the kernel's choice.
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
        // SAFETY: mapped as long as `self` lives, page-aligned, and any bytes are valid atomics.
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
    /// Reserves `bytes`; false if the cap leaves less.
    #[must_use]
    pub fn reserve(&self, bytes: u64) -> bool {
        let cap = self.cap_bytes.load(Ordering::Relaxed);
        let more = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= cap);
        let order = Ordering::AcqRel;
        self.memory_bytes
            .fetch_update(order, Ordering::Acquire, more)
            .is_ok()
    }

    /// Releases `bytes`.
    pub fn release(&self, bytes: u64) {
        let less = |used: u64| Some(used.saturating_sub(bytes));
        let order = Ordering::AcqRel;
        let _ = self
            .memory_bytes
            .fetch_update(order, Ordering::Acquire, less);
    }
}

/// Parses `GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` into two numbers; zeros for other forms.
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

/// Splits a UUID's bytes into two numbers.
#[must_use]
pub fn uuid_of(bytes: &[u8; 16]) -> [u64; 2] {
    let number = u128::from_be_bytes(*bytes);
    [
        (number >> 64) as u64,
        (number & u128::from(u64::MAX)) as u64,
    ]
}

/// Returns the machine's monotonic time, equal for all processes.
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
