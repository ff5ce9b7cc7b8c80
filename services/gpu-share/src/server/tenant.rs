//! One container: its socket, its page and its counts.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use super::{Part, Usage};
use crate::page::{Counters, DEVICES, Mapped, SLOTS, now_ns, uuid_numbers};
use crate::scheduler::Device;
use crate::wire;

/// More than any device has (16 TiB).
const MOST_MEMORY_BYTES: u64 = 16 << 40;

/// A container and its page.
pub struct Shared {
    pub name: String,
    pub listener: OwnedFd,
    pub page: Mapped,
    pub page_fd: OwnedFd,
    pub devices: Vec<Device>,
    /// Processes can overwrite the page's caps.
    caps_bytes: [Option<u64>; DEVICES],
    since_ns: u64,
    pub charged_ns: [u64; DEVICES],
    pub grants: [Option<Grant>; DEVICES],
    gone: [Usage; DEVICES],
    /// Never decreases.
    told: [Usage; DEVICES],
    socket: PathBuf,
}

/// A grant in force.
#[derive(Debug, Clone, Copy)]
pub struct Grant {
    pub epoch: u64,
    pub since_ns: u64,
    pub charged_ns: u64,
    pub revoked: bool,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl Shared {
    pub fn new(name: &str, socket: &Path) -> io::Result<Self> {
        let listener = wire::listen(socket)?;
        let (page, page_fd) = Mapped::create()?;
        Ok(Self {
            name: name.to_owned(),
            listener,
            page,
            page_fd,
            devices: Vec::new(),
            caps_bytes: [None; DEVICES],
            since_ns: now_ns(),
            charged_ns: [0; DEVICES],
            grants: [None; DEVICES],
            gone: [Usage::default(); DEVICES],
            told: [Usage::default(); DEVICES],
            socket: socket.to_owned(),
        })
    }

    pub fn terms(&mut self, parts: &[Part], devices: &[Device]) {
        self.devices = devices.to_vec();
        for (index, (to, from)) in self.page.parts.iter().zip(parts).enumerate() {
            self.caps_bytes[index] = from.cap_bytes;
            let [first, second] = uuid_numbers(&from.uuid);
            to.uuid[0].store(first, Relaxed);
            to.uuid[1].store(second, Relaxed);
            to.request_milli.store(from.terms.request_milli, Relaxed);
            to.limit_milli.store(from.terms.limit_milli, Relaxed);
            to.cap_bytes
                .store(from.cap_bytes.unwrap_or(u64::MAX), Relaxed);
            to.shared.store(1, Relaxed);
        }
    }

    pub fn part(&self, device: Device) -> Option<usize> {
        self.devices.iter().position(|it| *it == device)
    }

    pub fn deadline(&self, device: Device, until_ns: u64) {
        if let Some(part) = self.part(device) {
            self.page.parts[part].deadline_ns.store(until_ns, Relaxed);
        }
    }

    pub fn contended(&self, part: usize, contended: bool) {
        let word = &self.page.parts[part].contended;
        word.store(u32::from(contended), Relaxed);
    }

    /// Processes write the counters: bounded by the container's age.
    pub fn occupied_ns(&self, part: usize) -> u64 {
        let live = self.page.slots.iter();
        let live = live.map(|it| it.counters[part].occupied_ns.load(Relaxed));
        let sum = live.fold(self.gone[part].occupied_ns, u64::saturating_add);
        sum.min(self.age_ns())
    }

    fn age_ns(&self) -> u64 {
        now_ns().saturating_sub(self.since_ns)
    }

    /// Processes write the counters: bounded by time and the last report.
    pub fn usage(&mut self, part: usize, slots: &[usize]) -> Usage {
        let mut sum = self.gone[part];
        for slot in slots {
            add(&mut sum, &self.page.slots[*slot].counters[part]);
        }
        let (age_ns, told) = (self.age_ns(), self.told[part]);
        let waited_ns = age_ns.saturating_mul(SLOTS as u64);
        let cap_bytes = self.caps_bytes[part];
        let memory_bytes = self.page.parts[part].memory_bytes.load(Relaxed);
        let usage = Usage {
            // One per nanosecond is more than any device handles.
            launches: bounded(sum.launches, age_ns, told.launches),
            busy_ns: bounded(sum.busy_ns, age_ns, told.busy_ns),
            occupied_ns: bounded(sum.occupied_ns, age_ns, told.occupied_ns),
            waits: bounded(sum.waits, age_ns, told.waits),
            waited_ns: bounded(sum.waited_ns, waited_ns, told.waited_ns),
            refusals: bounded(sum.refusals, age_ns, told.refusals),
            memory_bytes: memory_bytes.min(cap_bytes.unwrap_or(MOST_MEMORY_BYTES)),
            processes: slots.len() as u64,
            cap_bytes,
        };
        self.told[part] = usage;
        usage
    }

    /// Keeps a gone process's counters and frees its memory.
    pub fn clear(&mut self, slot: usize) {
        for (part, counters) in self.page.slots[slot].counters.iter().enumerate() {
            add(&mut self.gone[part], counters);
            self.page.parts[part].release(counters.memory_bytes.load(Relaxed));
            for word in [
                &counters.launches,
                &counters.completions,
                &counters.busy_ns,
                &counters.occupied_ns,
                &counters.memory_bytes,
                &counters.waits,
                &counters.waited_ns,
                &counters.refusals,
            ] {
                word.store(0, Relaxed);
            }
        }
    }
}

fn bounded(counted: u64, most: u64, told: u64) -> u64 {
    counted.min(most).max(told)
}

fn add(sum: &mut Usage, counters: &Counters) {
    for (to, from) in [
        (&mut sum.launches, &counters.launches),
        (&mut sum.busy_ns, &counters.busy_ns),
        (&mut sum.occupied_ns, &counters.occupied_ns),
        (&mut sum.waits, &counters.waits),
        (&mut sum.waited_ns, &counters.waited_ns),
        (&mut sum.refusals, &counters.refusals),
    ] {
        *to = to.saturating_add(from.load(Relaxed));
    }
}
