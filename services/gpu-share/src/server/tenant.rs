//! One container: its socket, its page, and what was counted of it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use super::{Part, Usage};
use crate::page::{Counters, DEVICES, Mapped, uuid_numbers};
use crate::scheduler::Device;
use crate::wire;

/// A container and its page.
pub struct Shared {
    pub name: String,
    pub listener: OwnedFd,
    pub page: Mapped,
    /// The page's descriptor, for its processes.
    pub page_fd: OwnedFd,
    /// By part of the page.
    pub devices: Vec<Device>,
    /// What was charged, by part.
    pub charged_ns: [u64; DEVICES],
    /// The grant in force by part: its epoch, when it began, and what was charged of it.
    pub grants: [Option<Grant>; DEVICES],
    /// What processes did that ended.
    gone: [Usage; DEVICES],
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
            charged_ns: [0; DEVICES],
            grants: [None; DEVICES],
            gone: [Usage::default(); DEVICES],
            socket: socket.to_owned(),
        })
    }

    /// Writes the terms into the page.
    pub fn terms(&mut self, parts: &[Part], devices: &[Device]) {
        self.devices = devices.to_vec();
        for (to, from) in self.page.parts.iter().zip(parts) {
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

    /// What its processes have been occupied with a device, those that ended among them.
    pub fn occupied_ns(&self, part: usize) -> u64 {
        let live = self.page.slots.iter();
        let live: u64 = live
            .map(|it| it.counters[part].occupied_ns.load(Relaxed))
            .sum();
        live + self.gone[part].occupied_ns
    }

    pub fn usage(&self, part: usize, slots: &[usize]) -> Usage {
        let mut sum = self.gone[part];
        for slot in slots {
            add(&mut sum, &self.page.slots[*slot].counters[part]);
        }
        sum.memory_bytes = self.page.parts[part].memory_bytes.load(Relaxed);
        sum.processes = slots.len() as u64;
        let cap = self.page.parts[part].cap_bytes.load(Relaxed);
        sum.cap_bytes = (cap != u64::MAX).then_some(cap);
        sum
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

fn add(sum: &mut Usage, counters: &Counters) {
    sum.launches += counters.launches.load(Relaxed);
    sum.busy_ns += counters.busy_ns.load(Relaxed);
    sum.occupied_ns += counters.occupied_ns.load(Relaxed);
    sum.waits += counters.waits.load(Relaxed);
    sum.waited_ns += counters.waited_ns.load(Relaxed);
    sum.refusals += counters.refusals.load(Relaxed);
}
