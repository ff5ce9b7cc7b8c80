//! Segments of launches: begun and ended by the driver's events, measured when they are done.

use super::{FEW, Inside, Lane, MANY, PAUSE_MS, Phase, Segment, Stream, now_ns};
use crate::driver::Driver;
use crate::symbols::{Handle, NOT_READY, Result};

impl Inside {
    pub(super) fn lane(&mut self, stream: Stream) -> Option<&mut Lane> {
        self.lanes.iter_mut().find(|lane| lane.stream == stream)
    }

    pub(super) fn is_full(&self) -> bool {
        self.running.len() >= if self.contended { FEW } else { MANY }
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
            // Streams come and go: those at rest are forgotten before there are many.
            if self.lanes.len() >= 64 {
                self.lanes.retain(|it| !it.begun.is_null() || it.inside > 0);
            }
            self.lanes.push(Lane {
                stream,
                context,
                begun: std::ptr::null_mut(),
                launches: 0,
                inside: 0,
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
        if let Some(lane) = self.lane(stream) {
            lane.context = context;
            lane.begun = event;
            lane.launches = 0;
        }
        self.last_launch_ns = now_ns();
    }

    /// Ends the open segments of some lanes.
    pub fn end(&mut self, driver: &Driver, which: impl Fn(&Lane) -> bool) {
        for at in 0..self.lanes.len() {
            let lane = &self.lanes[at];
            if lane.begun.is_null() || lane.inside > 0 || !which(lane) {
                continue;
            }
            let (context, stream) = (lane.context, lane.stream);
            let before = driver.current();
            if before != context {
                // SAFETY: a context that has not been destroyed: `forget` is told before.
                unsafe { (driver.set_context)(context) };
            }
            let event = self.event(driver, context);
            let record = record(driver, stream);
            let free = !driver.captures(stream.handle, stream.of_thread);
            // SAFETY: event and stream are of the context, which is current.
            let ended = event.filter(|it| free && unsafe { record(*it, stream.handle) } == 0);
            if before != context {
                // SAFETY: what was current before.
                unsafe { (driver.set_context)(before) };
            }
            let lane = &mut self.lanes[at];
            let (begun, launches) = (lane.begun, lane.launches);
            lane.begun = std::ptr::null_mut();
            lane.launches = 0;
            match ended {
                Some(ended) => self.running.push_back(Segment {
                    begun,
                    ended,
                    context,
                    launches,
                }),
                None => self.spare.extend(event.map(|it| (context, it))),
            }
        }
    }

    /// Measures the segments that are done.
    pub fn reap(&mut self, driver: &Driver) {
        let mut at = 0;
        while at < self.running.len() {
            // SAFETY: an event of ours.
            if unsafe { (driver.event_query)(self.running[at].ended) } == NOT_READY {
                at += 1;
                continue;
            }
            let Some(segment) = self.running.remove(at) else {
                return;
            };
            self.measure(driver, &segment);
            self.spare.push((segment.context, segment.ended));
            if self.base != Some((segment.context, segment.begun)) {
                self.spare.push((segment.context, segment.begun));
            }
        }
    }

    fn measure(&mut self, driver: &Driver, segment: &Segment) {
        let Some((_, base)) = self.base else {
            return;
        };
        let (mut begin, mut end) = (0.0_f32, 0.0_f32);
        // SAFETY: events of ours, recorded; the results are writable.
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
        // The mean of about four segments.
        self.launch_ns = (self.launch_ns * 3 + launch_ns) / 4;
    }

    /// Whether nothing is under way, nor a segment open.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.lanes.iter().all(|it| it.begun.is_null())
    }

    /// Closes the gate, once nothing is under way.
    pub fn close(&mut self) {
        self.phase = Phase::Closed;
        self.spare.extend(self.base.take());
    }
}

fn record(driver: &Driver, stream: Stream) -> unsafe extern "C" fn(Handle, Handle) -> Result {
    match stream.of_thread {
        true => driver.event_record_thread,
        false => driver.event_record,
    }
}

/// From the driver's milliseconds.
fn nanoseconds(ms: f64) -> u64 {
    // Not negative, and far below the largest number.
    (ms.max(0.0) * 1e6) as u64
}
