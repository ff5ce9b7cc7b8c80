//! Which measurements can be true. The others are passed over: no window, numbers that are none or
//! that no gateway reaches, a histogram that is not one, a time that has not come yet. The
//! autoscaler passes over these, too.

use dormouse_messages::Recorded;
use dormouse_messages::events::{Histogram, ServiceMeasured};

/// The longest window that says anything about now.
const MOST_WINDOW_S: u32 = 60;

/// A gateway's clock may be so far ahead of the broker's.
const MOST_AHEAD_US: i64 = 5_000_000;

/// No gateway passes on so many requests a second.
const MOST_PER_SECOND: u64 = 10_000_000;

/// Whether it can be true.
pub fn is_sound(event: &ServiceMeasured, recorded: &Recorded) -> bool {
    let absent = Histogram::default();
    let most = u64::from(event.window_s) * MOST_PER_SECOND;
    let few = |count: u64| count <= most;
    let counted =
        |it: &Histogram| *it == absent || (it.is_sound() && it.counts.iter().all(|it| few(*it)));
    let ahead_us = recorded
        .envelope
        .time
        .as_micros()
        .saturating_sub(recorded.stored_at.as_micros());
    (1..=MOST_WINDOW_S).contains(&event.window_s)
        && event.concurrency.is_finite()
        && (0.0..=1e9).contains(&event.concurrency)
        && [event.requests, event.errors, event.shed]
            .into_iter()
            .all(few)
        && event.arrivals.len() <= event.window_s as usize
        && event.arrivals.iter().all(|it| few(u64::from(*it)))
        && counted(&event.latency_ms)
        && counted(&event.service_ms)
        && ahead_us <= MOST_AHEAD_US
}
