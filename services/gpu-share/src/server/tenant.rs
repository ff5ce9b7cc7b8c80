//! One container: its socket, its page, and what was counted of it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use super::{Part, Usage};
use crate::page::{Counters, DEVICES, Mapped, SLOTS, now_ns, uuid_numbers};
use crate::scheduler::Device;
use crate::wire;

/// More memory than a device has, where a container has no cap: 16 TiB.
const MOST_MEMORY_BYTES: u64 = 16 << 40;

/// A container and its page.
pub struct Shared {
    pub name: String,
    pub listener: OwnedFd,
    pub page: Mapped,
    /// The page's descriptor, for its processes.
    pub page_fd: OwnedFd,
    /// By part of the page.
    pub devices: Vec<Device>,
    /// The caps on memory by part; its processes can write over those of the page.
    caps_bytes: [Option<u64>; DEVICES],
    since_ns: u64,
    /// What was charged, by part.
    pub charged_ns: [u64; DEVICES],
    /// The grant in force by part: its epoch, when it began, and what was charged of it.
    pub grants: [Option<Grant>; DEVICES],
    /// What processes did that ended.
    gone: [Usage; DEVICES],
    /// What was told of it: it never becomes less.
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

    /// Writes the terms into the page.
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

    /// The part of the page that is `device`.
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

    /// How long its processes have been occupied with a device, those that ended among them: at
    /// most as long as the container has had its part, whatever they write.
    pub fn occupied_ns(&self, part: usize) -> u64 {
        let live = self.page.slots.iter();
        let live = live.map(|it| it.counters[part].occupied_ns.load(Relaxed));
        let sum = live.fold(self.gone[part].occupied_ns, u64::saturating_add);
        sum.min(self.age_ns())
    }

    fn age_ns(&self) -> u64 {
        now_ns().saturating_sub(self.since_ns)
    }

    /// The usage of a part by the counters of its processes, which they can write: bounded by the
    /// time that has passed, and never less than what was told before.
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
            // One in a nanosecond is more than any device takes.
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

    /// A process is gone: its counters are kept, its memory is free.
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

/// A counter that its container can write.
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
