//! The gate of one device: a launching process holds the token, and its work is measured.
//!
//! 1. A launch passes while the gate is open and little work is in flight, else its thread waits. A capturing
//!    stream always passes, and nothing is recorded there. Within a segment launches pass without the gate's
//!    lock ([`Passes`]).
//! 2. A stream's launches are measured in *segments* of about a millisecond: an event before the first
//!    launch, one after the last.
//! 3. While others wait for the device, at most two segments are in flight, so that returning the token takes
//!    about two milliseconds.
//! 4. To close, the gate admits nobody, ends every segment, and waits until all are done.
//!
//! Invariant: after a token is returned, none of its work is in flight.

mod segments;

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dormouse_gpu_share::page::now_ns;
use dormouse_gpu_share::passes::{Pass, Passes};

use crate::driver::Driver;
use crate::symbols::Handle;

/// Work of a segment: long compared with its events, short compared with a grant.
const SEGMENT_NS: u64 = 1_000_000;
/// Bounds the delay if kernels suddenly take longer.
const MOST_LAUNCHES: u64 = 64;
/// Events are a noticeable cost for short launches, so consecutive segments share one.
const SHORT: u32 = 8;
/// Segments in flight while others wait, and while nobody does.
const FEW: usize = 2;
const MANY: usize = 16;
/// Nobody else can use shorter pauses, so they are charged.
const PAUSE_MS: f64 = 0.3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    pub handle: Handle,
    /// No other thread can record in a thread's own default stream.
    pub of_thread: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Closed,
    Open,
    Draining {
        /// Revoked: a new launch does not reopen the gate.
        told: bool,
    },
}

#[derive(Debug)]
pub struct Lane {
    stream: Stream,
    context: Handle,
    begun: Handle,
    /// Launches within the open segment's allotment, and those beyond.
    allotted: u32,
    beyond: u32,
    /// `None` if `own` is used, which nobody else finds.
    place: Option<usize>,
    own: Pass,
}

impl Lane {
    #[must_use]
    pub const fn is_of_thread(&self) -> bool {
        self.stream.of_thread
    }

    fn pass<'a>(&'a self, passes: &'a Passes) -> &'a Pass {
        match self.place {
            Some(place) => passes.at(place),
            None => &self.own,
        }
    }

    fn launches(&self, passes: &Passes) -> u64 {
        let left = self.pass(passes).left();
        u64::from(self.allotted.saturating_sub(left) + self.beyond)
    }
}

#[derive(Debug, Clone, Copy)]
pub enum Entry<'a> {
    Passed(&'a Pass),
    Asked,
    /// Part of a capture, without a `leave`.
    Captured,
}

#[derive(Debug)]
struct Segment {
    begun: Handle,
    ended: Handle,
    context: Handle,
    launches: u64,
    goes_on: bool,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Measured {
    pub launches: u64,
    pub completions: u64,
    pub busy_ns: u64,
    pub occupied_ns: u64,
    pub waits: u64,
    pub waited_ns: u64,
}

#[derive(Debug)]
pub struct Inside {
    phase: Phase,
    pub epoch: u64,
    pub wanted: bool,
    pub asked: bool,
    pub last_launch_ns: u64,
    contended: bool,
    pub measured: Measured,
    passes: Arc<Passes>,
    lanes: Vec<Lane>,
    running: VecDeque<Segment>,
    spare: Vec<(Handle, Handle)>,
    /// Context and event at time zero.
    base: Option<(Handle, Handle)>,
    last_end_ms: f64,
    launch_ns: u64,
}

// SAFETY: the handles are the driver's, which any thread may use.
unsafe impl Send for Inside {}

#[derive(Debug)]
pub struct Gate {
    inside: Mutex<Inside>,
    opened: Condvar,
    passes: Arc<Passes>,
}

impl Default for Gate {
    fn default() -> Self {
        let passes = Arc::<Passes>::default();
        Self {
            passes: Arc::clone(&passes),
            inside: Mutex::new(Inside {
                phase: Phase::Closed,
                epoch: 0,
                wanted: false,
                asked: false,
                last_launch_ns: 0,
                contended: true,
                measured: Measured::default(),
                passes,
                lanes: Vec::new(),
                running: VecDeque::new(),
                spare: Vec::new(),
                base: None,
                last_end_ms: 0.0,
                launch_ns: SEGMENT_NS,
            }),
            opened: Condvar::new(),
        }
    }
}

impl Gate {
    pub fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn open(&self, inside: &mut Inside, epoch: u64) {
        inside.phase = Phase::Open;
        inside.epoch = epoch;
        inside.asked = false;
        inside.wanted = false;
        inside.last_launch_ns = now_ns();
        self.opened.notify_all();
    }

    /// `ask` requests the token.
    #[inline]
    pub fn enter(&self, driver: &Driver, stream: Stream, ask: impl Fn(&mut Inside)) -> Entry<'_> {
        // A thread's default stream has no pass: its handle differs in meaning per thread.
        match self.passes.of(stream.handle.addr()) {
            Some(pass) if !stream.of_thread && pass.enter() => Entry::Passed(pass),
            _ => self.enter_by_lock(driver, stream, ask),
        }
    }

    #[cold]
    fn enter_by_lock(
        &self,
        driver: &Driver,
        stream: Stream,
        ask: impl Fn(&mut Inside),
    ) -> Entry<'_> {
        let mut inside = self.lock();
        let fits = |inside: &Inside| inside.phase == Phase::Open && !inside.is_full();
        let known = inside.lane(stream).is_some_and(|it| !it.begun.is_null());
        if !known || !fits(&inside) {
            if driver.captures(stream.handle, stream.of_thread) {
                return Entry::Captured;
            }
            if !fits(&inside) {
                inside = self.wait(driver, inside, ask);
            }
            inside.begin(driver, stream);
        }
        inside.let_in(stream);
        Entry::Asked
    }

    fn wait<'a>(
        &'a self,
        driver: &Driver,
        mut inside: MutexGuard<'a, Inside>,
        ask: impl Fn(&mut Inside),
    ) -> MutexGuard<'a, Inside> {
        let from_ns = now_ns();
        let mut for_token = false;
        loop {
            match inside.phase {
                Phase::Draining { told: false } => inside.phase = Phase::Open,
                Phase::Open => {
                    driver.quietly(|| inside.reap(driver));
                    if !inside.is_full() {
                        break;
                    }
                    drop(inside);
                    std::thread::sleep(Duration::from_micros(50));
                    inside = self.lock();
                }
                Phase::Closed | Phase::Draining { told: true } => {
                    for_token = true;
                    inside.wanted = true;
                    if inside.phase == Phase::Closed && !inside.asked {
                        inside.asked = true;
                        ask(&mut inside);
                    }
                    let patience = Duration::from_millis(100);
                    let woken = self.opened.wait_timeout(inside, patience);
                    inside = woken.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
        if for_token {
            inside.measured.waits += 1;
            inside.measured.waited_ns += now_ns().saturating_sub(from_ns);
        }
        inside
    }

    #[inline]
    pub fn leave(&self, driver: &Driver, stream: Stream, entry: Entry<'_>) {
        match entry {
            Entry::Captured => {}
            Entry::Passed(pass) if !pass.leave() => {}
            Entry::Passed(_) => self.leave_by_lock(driver, stream, false),
            Entry::Asked => self.leave_by_lock(driver, stream, true),
        }
    }

    #[cold]
    fn leave_by_lock(&self, driver: &Driver, stream: Stream, counted: bool) {
        let mut inside = self.lock();
        if !inside.is_over(stream, counted) {
            return;
        }
        driver.quietly(|| inside.turn(driver, stream));
        inside.last_launch_ns = now_ns();
    }

    /// Called before a capture or the stream's destruction.
    pub fn settle(&self, driver: &Driver, which: impl Fn(Stream, Handle) -> bool, forget: bool) {
        let mut inside = self.lock();
        driver.quietly(|| inside.end(driver, |lane| which(lane.stream, lane.context)));
        if forget {
            inside.forget_lanes(|lane| which(lane.stream, lane.context));
        }
    }

    /// Called before the context's destruction.
    pub fn forget(&self, context: Handle) {
        let mut inside = self.lock();
        let gone = |it: Handle| context.is_null() || it == context;
        inside.forget_lanes(|lane| gone(lane.context));
        inside.running.retain(|it| !gone(it.context));
        inside.spare.retain(|(it, _)| !gone(*it));
        inside.base = None;
    }
}
