//! The gate of one device: who launches holds the token, and what was launched is measured.
//!
//! 1. A launch passes while the gate is open and little enough is under way; otherwise its thread
//!    waits. A stream that captures always passes, and nothing is recorded there. Within a segment
//!    launches pass without the gate's lock ([`Passes`]).
//! 2. Launches of a stream are measured in *segments*: an event before the first, one after the
//!    last. A segment has as many launches as take about a millisecond.
//! 3. While others wait for the device no more than two segments are under way: giving the token
//!    back takes about two milliseconds.
//! 4. To close, the gate lets nobody in, ends every segment, and is closed when all are done.
//!
//! The invariant: after a token was given back nothing of it is under way.

mod segments;

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dormouse_gpu_share::page::now_ns;
use dormouse_gpu_share::passes::{Pass, Passes};

use crate::driver::Driver;
use crate::symbols::Handle;

/// Work of a segment: long enough that its events cost nothing, short beside a grant.
const SEGMENT_NS: u64 = 1_000_000;
/// Launches in a segment at most: kernels that are suddenly longer hold the token as long as that
/// many of them take.
const MOST_LAUNCHES: u64 = 64;
/// Launches are short when so many of them fit into a segment: what its two events cost is then felt,
/// and two segments in a row share one.
const SHORT: u32 = 8;
/// Segments under way while others wait, and while nobody does.
const FEW: usize = 2;
const MANY: usize = 16;
/// Pauses shorter than this are charged: nobody else can use them. In milliseconds.
const PAUSE_MS: f64 = 0.3;

/// Where a launch goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// The driver's handle.
    pub handle: Handle,
    /// The default stream is the calling thread's own: no other thread can record there.
    pub of_thread: bool,
}

/// How far the gate is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The process does not hold the token.
    Closed,
    /// It does.
    Open,
    /// It gives it back when all is done.
    Draining {
        /// It was told to: a new launch does not change that.
        told: bool,
    },
}

/// A stream, and its open segment.
#[derive(Debug)]
pub struct Lane {
    stream: Stream,
    context: Handle,
    /// The event before the first launch of the open segment.
    begun: Handle,
    /// Launches that the open segment was given room for, and those that came beyond it.
    allotted: u32,
    beyond: u32,
    /// Its place among the passes; without one its pass is its own, which nobody else finds.
    place: Option<usize>,
    own: Pass,
}

impl Lane {
    /// Whether only the thread that launches can record there.
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

    /// Launches of the open segment.
    fn launches(&self, passes: &Passes) -> u64 {
        let left = self.pass(passes).left();
        u64::from(self.allotted.saturating_sub(left) + self.beyond)
    }
}

/// How a launch entered.
#[derive(Debug, Clone, Copy)]
pub enum Entry<'a> {
    /// By its stream's pass.
    Passed(&'a Pass),
    /// Under the gate's lock.
    Asked,
    /// It is a capture's: it is not to be left.
    Captured,
}

#[derive(Debug)]
struct Segment {
    begun: Handle,
    ended: Handle,
    context: Handle,
    launches: u64,
    /// The next segment of its stream begins with the event that ended it.
    goes_on: bool,
}

/// What was measured since it was last taken.
#[derive(Debug, Clone, Copy, Default)]
pub struct Measured {
    pub launches: u64,
    pub completions: u64,
    pub busy_ns: u64,
    pub occupied_ns: u64,
    pub waits: u64,
    pub waited_ns: u64,
}

/// The gate's state.
#[derive(Debug)]
pub struct Inside {
    phase: Phase,
    /// The grant that opened it.
    pub epoch: u64,
    /// A thread waits.
    pub wanted: bool,
    /// The wish was sent.
    pub asked: bool,
    pub last_launch_ns: u64,
    contended: bool,
    pub measured: Measured,
    passes: Arc<Passes>,
    lanes: Vec<Lane>,
    running: VecDeque<Segment>,
    spare: Vec<(Handle, Handle)>,
    /// Times are counted from here: its context and event.
    base: Option<(Handle, Handle)>,
    last_end_ms: f64,
    launch_ns: u64,
}

// SAFETY: the handles are the driver's, which any thread may use.
unsafe impl Send for Inside {}

/// The gate of one device.
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

    /// Lets the threads in that wait.
    pub fn open(&self, inside: &mut Inside, epoch: u64) {
        inside.phase = Phase::Open;
        inside.epoch = epoch;
        inside.asked = false;
        inside.wanted = false;
        inside.last_launch_ns = now_ns();
        self.opened.notify_all();
    }

    /// Before a launch. `ask` says that the process wants the token.
    #[inline]
    pub fn enter(&self, driver: &Driver, stream: Stream, ask: impl Fn(&mut Inside)) -> Entry<'_> {
        // A thread's own default stream has none: its handle means another in each thread.
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

    /// After a launch that `enter` let in so.
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

    /// A stream is about to capture or to be destroyed: its segment ends here.
    pub fn settle(&self, driver: &Driver, which: impl Fn(Stream, Handle) -> bool, forget: bool) {
        let mut inside = self.lock();
        driver.quietly(|| inside.end(driver, |lane| which(lane.stream, lane.context)));
        if forget {
            inside.forget_lanes(|lane| which(lane.stream, lane.context));
        }
    }

    /// A context is about to be destroyed, its events with it.
    pub fn forget(&self, context: Handle) {
        let mut inside = self.lock();
        let gone = |it: Handle| context.is_null() || it == context;
        inside.forget_lanes(|lane| gone(lane.context));
        inside.running.retain(|it| !gone(it.context));
        inside.spare.retain(|(it, _)| !gone(*it));
        inside.base = None;
    }
}
