//! A thread in each process that handles grants and revocations, returns tokens, and looks for an agent.
//!
//! Without an agent a process limits itself to its request. Requests never exceed a device, so nobody is
//! worse off, but nobody gets the rest.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use dormouse_gpu_share::page::{DEVICES, now_ns};
use dormouse_gpu_share::wire;

use crate::gate::{Inside, Phase};
use crate::link::Link;
use crate::state::{State, create};

/// Idle time before a holder returns the token: while others wait (three times the cost of a change), and
/// while nobody does.
const IDLE_NS: u64 = 300_000;
const LONG_IDLE_NS: u64 = 5_000_000;
const STILL_NS: u64 = 150_000;
/// A stopped agent holds nobody up after a grant's deadline.
const GRACE_NS: u64 = 100_000_000;
const RETRY_NS: u64 = 200_000_000;
/// Credit without an agent: 20 ms of the device.
const SAVED_NS: i64 = 20_000_000;

struct Monitor {
    state: &'static State,
    path: OsString,
    retry_at_ns: u64,
    at_ns: u64,
    passed_ns: u64,
    credit_ns: [i64; DEVICES],
}

/// Creates the state, and tends it from a thread.
pub fn start() {
    let Some((state, path)) = create() else {
        return;
    };
    let monitor = Monitor {
        state,
        path,
        retry_at_ns: 0,
        at_ns: now_ns(),
        passed_ns: 0,
        credit_ns: [SAVED_NS; DEVICES],
    };
    let named = std::thread::Builder::new().name("gpu-gate".to_owned());
    // SAFETY: the sets are valid; the thread starts with all signals blocked, because signals are the
    // program's.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
        let _ = named.spawn(move || monitor.run());
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
    }
}

impl Monitor {
    fn run(mut self) {
        loop {
            let now = now_ns();
            self.passed_ns = now.saturating_sub(self.at_ns);
            self.at_ns = now;
            let connected = self.state.link().socket.is_some();
            let mut busy = false;
            for part in 0..DEVICES {
                busy |= self.tend(part, connected);
            }
            if connected {
                self.listen(if busy { 200 } else { 50_000 })
            } else {
                std::thread::sleep(Duration::from_micros(500));
                self.look();
            }
        }
    }

    fn listen(&self, micros: i64) {
        let link = self.state.link();
        let Some(socket) = &link.socket else {
            return;
        };
        let mut poll = libc::pollfd {
            fd: socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let wait = libc::timespec {
            tv_sec: 0,
            tv_nsec: micros * 1000,
        };
        // SAFETY: one descriptor, and a time that lives until the call returns.
        unsafe { libc::ppoll(&raw mut poll, 1, &raw const wait, std::ptr::null()) };
        loop {
            match wire::receive(socket.as_fd(), false, wire::Takes::Nothing) {
                Ok(Some((message, _))) => self.heard(message),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Ok(None) | Err(_) => {
                    self.lost(&link);
                    return;
                }
            }
        }
    }

    fn heard(&self, message: wire::Message) {
        let Some(gate) = self.state.gates.get(message.device as usize) else {
            return;
        };
        let mut inside = gate.lock();
        match message.kind {
            wire::GRANT => gate.open(&mut inside, message.epoch),
            wire::REVOKE if inside.epoch == message.epoch && inside.phase() != Phase::Closed => {
                inside.drain(true);
            }
            _ => {}
        }
    }

    /// Keeps the terms and the cap of the old page.
    fn lost(&self, link: &Link) {
        // SAFETY: shutting a socket down needs no memory.
        unsafe {
            libc::shutdown(
                link.socket.as_ref().map_or(-1, AsRawFd::as_raw_fd),
                libc::SHUT_RDWR,
            )
        };
        let Some(alone) = Link::alone() else {
            return;
        };
        let before = link.page().parts.iter();
        for (to, from) in alone.page().parts.iter().zip(before) {
            to.request_milli
                .store(from.request_milli.load(Acquire), Relaxed);
            to.limit_milli
                .store(from.limit_milli.load(Acquire), Relaxed);
            to.cap_bytes.store(from.cap_bytes.load(Acquire), Relaxed);
            to.shared.store(from.shared.load(Acquire), Relaxed);
        }
        self.state.relink(alone);
    }

    /// All tokens are requested again.
    fn look(&mut self) {
        if now_ns() < self.retry_at_ns {
            return;
        }
        self.retry_at_ns = now_ns() + RETRY_NS;
        let Some(link) = Link::connect(&self.path) else {
            return;
        };
        self.state.relink(link);
        for gate in &self.state.gates {
            let mut inside = gate.lock();
            inside.asked = false;
            inside.epoch = 0;
            if inside.phase() != Phase::Closed {
                inside.drain(true);
            }
        }
    }

    /// True if the device needs attention soon.
    fn tend(&mut self, part: usize, connected: bool) -> bool {
        let state = self.state;
        let gate = &state.gates[part];
        let link = state.link();
        let shared = &link.page().parts[part];
        if shared.shared.load(Relaxed) == 0 {
            return false;
        }
        let now = now_ns();
        let mut inside = gate.lock();
        inside.contend(!connected || shared.contended.load(Relaxed) == 1);
        if inside.phase() != Phase::Closed {
            state.driver.quietly(|| self.watch(&mut inside, now));
        }
        let used_ns = self.count(&link, part, &mut inside);
        if connected {
            let late = now > shared.deadline_ns.load(Relaxed) + GRACE_NS;
            if inside.phase() == Phase::Open && late {
                inside.drain(true);
            }
        } else {
            self.alone(
                part,
                shared.request_milli.load(Relaxed),
                used_ns,
                &mut inside,
            );
            if self.credit_ns[part] > 0 && inside.phase() == Phase::Closed && inside.wanted {
                gate.open(&mut inside, 0);
            }
        }
        if matches!(inside.phase(), Phase::Draining { .. }) && inside.is_idle() {
            let epoch = inside.epoch;
            inside.close();
            if connected {
                link.say(wire::RETURN, part, epoch);
            }
        }
        if connected && inside.phase() == Phase::Closed && inside.wanted && !inside.asked {
            inside.asked = link.say(wire::WANT, part, 0);
        }
        inside.phase() != Phase::Closed
    }

    fn watch(&self, inside: &mut Inside, now: u64) {
        let driver = &self.state.driver;
        let still = now.saturating_sub(inside.last_launch_ns);
        let draining = matches!(inside.phase(), Phase::Draining { .. });
        if draining || still > STILL_NS {
            inside.end(driver, |lane| draining || !lane.is_of_thread());
        }
        inside.reap(driver);
        let patience = if inside.is_contended() {
            IDLE_NS
        } else {
            LONG_IDLE_NS
        };
        if inside.phase() == Phase::Open && inside.is_idle() {
            if still > patience + STILL_NS {
                inside.drain(false);
            }
        } else if inside.phase() == Phase::Open {
            // Work is in flight: the pause starts when it ends.
            inside.last_launch_ns = inside.last_launch_ns.max(now.saturating_sub(STILL_NS));
        }
    }

    fn count(&self, link: &Link, part: usize, inside: &mut Inside) -> u64 {
        let measured = std::mem::take(&mut inside.measured);
        let counters = link.counters(part);
        counters.launches.fetch_add(measured.launches, Relaxed);
        counters
            .completions
            .fetch_add(measured.completions, Relaxed);
        counters.busy_ns.fetch_add(measured.busy_ns, Relaxed);
        counters
            .occupied_ns
            .fetch_add(measured.occupied_ns, Relaxed);
        counters.waits.fetch_add(measured.waits, Relaxed);
        counters.waited_ns.fetch_add(measured.waited_ns, Relaxed);
        measured.occupied_ns
    }

    fn alone(&mut self, part: usize, request: u32, used_ns: u64, inside: &mut Inside) {
        let passed = i64::try_from(self.passed_ns).unwrap_or(0);
        let used = i64::try_from(used_ns).unwrap_or(i64::MAX);
        let credit = &mut self.credit_ns[part];
        *credit = (*credit + passed * i64::from(request) / 1000 - used).min(SAVED_NS);
        if *credit <= 0 && inside.phase() == Phase::Open {
            inside.drain(true);
        }
    }
}
