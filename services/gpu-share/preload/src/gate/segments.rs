//! Segments of launches: begun, ended and measured by events.

use super::{
    FEW, Inside, Lane, MANY, MOST_LAUNCHES, PAUSE_MS, Pass, Phase, SEGMENT_NS, SHORT, Segment,
    Stream, now_ns,
};
use crate::driver::Driver;
use crate::symbols::{Handle, NOT_READY, Result};

impl Inside {
    pub(super) fn lane(&mut self, stream: Stream) -> Option<&mut Lane> {
        self.lanes.iter_mut().find(|lane| lane.stream == stream)
    }

    pub(super) fn is_full(&self) -> bool {
        self.running.len() >= if self.contended { FEW } else { MANY }
    }

    #[must_use]
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    pub fn drain(&mut self, told: bool) {
        self.phase = Phase::Draining { told };
        self.passes.invalidate_all();
    }

    #[must_use]
    pub const fn is_contended(&self) -> bool {
        self.contended
    }

    pub fn contend(&mut self, contended: bool) {
        self.contended = contended;
        self.shut_if_full();
    }

    fn shut_if_full(&self) {
        if self.is_full() {
            self.passes.invalidate_all();
        }
    }

    pub(super) fn let_in(&mut self, stream: Stream) {
        let Some(at) = self.lanes.iter().position(|it| it.stream == stream) else {
            return;
        };
        let lane = &mut self.lanes[at];
        let had_room = lane.pass(&self.passes).let_in();
        if lane.begun.is_null() {
            self.measured.launches += 1;
        } else if !had_room {
            lane.beyond += 1;
        } else if lane.place.is_some() {
            lane.pass(&self.passes).validate();
        }
    }

    /// A launch that entered under the lock still counts as inside.
    pub(super) fn is_over(&self, stream: Stream, inside: bool) -> bool {
        let Some(lane) = self.lanes.iter().find(|it| it.stream == stream) else {
            return false;
        };
        let pass = lane.pass(&self.passes);
        let last = if inside { pass.leave() } else { true };
        last && pass.left() == 0 && pass.inside() == 0 && !lane.begun.is_null()
    }

    pub(super) fn forget_lanes(&mut self, gone: impl Fn(&Lane) -> bool) {
        let passes = &self.passes;
        self.lanes.retain(|lane| {
            let goes = gone(lane);
            if let (true, Some(place)) = (goes, lane.place) {
                passes.give(place);
            }
            !goes
        });
    }

    fn event(&mut self, driver: &Driver, context: Handle) -> Option<Handle> {
        if let Some(at) = self.spare.iter().position(|(it, _)| *it == context) {
            return Some(self.spare.swap_remove(at).1);
        }
        let mut event = std::ptr::null_mut();
        // SAFETY: `event` is writable. Flags 0: with times.
        let result = unsafe { (driver.event_create)(&raw mut event, 0) };
        (result == 0).then_some(event)
    }

    pub(super) fn begin(&mut self, driver: &Driver, stream: Stream) {
        let context = driver.current();
        if self.lane(stream).is_none() {
            // Keeps the list short.
            if self.lanes.len() >= 64 {
                // A thread may be about to use a lane's pass.
                let rests = |it: &Lane| it.begun.is_null() && it.own.inside() == 0;
                self.forget_lanes(|it| it.place.is_none() && rests(it));
            }
            self.lanes.push(Lane {
                stream,
                context,
                begun: std::ptr::null_mut(),
                allotted: 0,
                beyond: 0,
                place: if stream.of_thread {
                    None
                } else {
                    self.passes.take(stream.handle.addr())
                },
                own: Pass::default(),
            });
        }
        if self.lane(stream).is_none_or(|it| !it.begun.is_null()) {
            return;
        }
        let Some(event) = self.event(driver, context) else {
            return;
        };
        let record = record(driver, stream);
        // SAFETY: the event is of the current context, as is the caller's stream.
        if driver.quietly(|| unsafe { record(event, stream.handle) }) != 0 {
            self.spare.push((context, event));
            return;
        }
        if self.base.is_none() {
            self.base = Some((context, event));
            self.last_end_ms = f64::NEG_INFINITY;
        }
        if let Some(at) = self.lanes.iter().position(|it| it.stream == stream) {
            self.lanes[at].context = context;
            self.allot(at, event);
        }
        self.last_launch_ns = now_ns();
    }

    fn allot(&mut self, at: usize, begun: Handle) {
        let most = self.most(self.lanes[at].stream);
        let lane = &mut self.lanes[at];
        lane.begun = begun;
        lane.beyond = 0;
        lane.allotted = most;
        lane.pass(&self.passes).allot(most);
    }

    fn most(&self, stream: Stream) -> u32 {
        if stream.of_thread {
            1
        } else {
            (SEGMENT_NS / self.launch_ns.max(1)).clamp(1, MOST_LAUNCHES) as u32
        }
    }

    pub fn end(&mut self, driver: &Driver, which: impl Fn(&Lane) -> bool) {
        for at in 0..self.lanes.len() {
            if which(&self.lanes[at]) {
                self.end_lane(driver, at, false);
            }
        }
        self.shut_if_full();
    }

    /// Short launches share the ending event with the next segment; a pause then counts until the monitor or
    /// a wait ends the segment.
    pub(super) fn turn(&mut self, driver: &Driver, stream: Stream) {
        let goes_on = self.phase == Phase::Open && self.most(stream) >= SHORT;
        if let Some(at) = self.lanes.iter().position(|it| it.stream == stream) {
            self.end_lane(driver, at, goes_on);
        }
        if self.is_full() || self.running.len() >= FEW * 2 {
            self.reap(driver);
        }
        self.shut_if_full();
    }

    /// Empty segments do not continue after a wait.
    pub fn rest(&mut self, driver: &Driver) {
        let passes = std::sync::Arc::clone(&self.passes);
        self.end(driver, |lane| lane.launches(&passes) == 0);
    }

    fn end_lane(&mut self, driver: &Driver, at: usize, goes_on: bool) {
        let lane = &self.lanes[at];
        let pass = lane.pass(&self.passes);
        if lane.begun.is_null() {
            return;
        }
        // A thread inside ends the segment, or the next round does.
        pass.invalidate();
        if pass.inside() > 0 {
            return;
        }
        let (context, stream, begun) = (lane.context, lane.stream, lane.begun);
        let launches = lane.launches(&self.passes);
        pass.allot(0);
        self.lanes[at].begun = std::ptr::null_mut();
        if launches == 0 {
            match self.running.iter_mut().find(|it| it.ended == begun) {
                Some(before) => before.goes_on = false,
                None => self.recycle(context, begun),
            }
            return;
        }
        self.measured.launches += launches;
        let Some(ended) = self.mark(driver, context, stream) else {
            return;
        };
        self.running.push_back(Segment {
            begun,
            ended,
            context,
            launches,
            goes_on,
        });
        if goes_on {
            self.allot(at, ended);
            self.lanes[at].pass(&self.passes).validate();
        }
    }

    fn mark(&mut self, driver: &Driver, context: Handle, stream: Stream) -> Option<Handle> {
        let before = driver.current();
        if before != context {
            // SAFETY: a live context: `forget` is called before its destruction.
            unsafe { (driver.set_context)(context) };
        }
        let event = self.event(driver, context);
        let record = record(driver, stream);
        let free = !driver.captures(stream.handle, stream.of_thread);
        // SAFETY: event and stream are of the context, which is current.
        let marked = event.filter(|it| free && unsafe { record(*it, stream.handle) } == 0);
        if before != context {
            // SAFETY: the previously current context.
            unsafe { (driver.set_context)(before) };
        }
        if marked.is_none() {
            self.spare.extend(event.map(|it| (context, it)));
        }
        marked
    }

    fn recycle(&mut self, context: Handle, event: Handle) {
        if self.base != Some((context, event)) {
            self.spare.push((context, event));
        }
    }

    pub fn reap(&mut self, driver: &Driver) {
        let mut at = 0;
        while at < self.running.len() {
            let begun = self.running[at].begun;
            // A segment that shares an event is measured after the previous one.
            let waits = self.running.iter().take(at).any(|it| it.ended == begun);
            // SAFETY: an event of this library.
            if waits || unsafe { (driver.event_query)(self.running[at].ended) } == NOT_READY {
                at += 1;
                continue;
            }
            let Some(segment) = self.running.remove(at) else {
                return;
            };
            self.measure(driver, &segment);
            self.recycle(segment.context, segment.begun);
            if !segment.goes_on {
                self.recycle(segment.context, segment.ended);
            }
        }
    }

    fn measure(&mut self, driver: &Driver, segment: &Segment) {
        let Some((_, base)) = self.base else {
            return;
        };
        let (mut begin, mut end) = (0.0_f32, 0.0_f32);
        // SAFETY: recorded events of this library; the results are writable.
        let known = unsafe {
            (driver.event_elapsed)(&raw mut begin, base, segment.begun) == 0
                && (driver.event_elapsed)(&raw mut end, base, segment.ended) == 0
        };
        self.measured.completions += segment.launches;
        if !known {
            return;
        }
        let (begin, end) = (f64::from(begin), f64::from(end));
        if end > self.last_end_ms {
            let busy_from = begin.max(self.last_end_ms);
            let short = begin - self.last_end_ms <= PAUSE_MS;
            let occupied_from = if short { self.last_end_ms } else { begin };
            self.measured.busy_ns += nanoseconds(end - busy_from);
            self.measured.occupied_ns += nanoseconds(end - occupied_from);
            self.last_end_ms = end;
        }
        let launch_ns = nanoseconds(end - begin) / segment.launches.max(1);
        self.launch_ns = (self.launch_ns * 3 + launch_ns) / 4;
    }

    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.lanes.iter().all(|it| it.begun.is_null())
    }

    /// Requires that nothing is in flight.
    pub fn close(&mut self) {
        self.phase = Phase::Closed;
        self.passes.invalidate_all();
        self.spare.extend(self.base.take());
    }
}

fn record(driver: &Driver, stream: Stream) -> unsafe extern "C" fn(Handle, Handle) -> Result {
    if stream.of_thread {
        driver.event_record_thread
    } else {
        driver.event_record
    }
}

fn nanoseconds(ms: f64) -> u64 {
    (ms.max(0.0) * 1e6) as u64
}
