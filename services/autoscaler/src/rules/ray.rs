//! Ray Serve's rule (`autoscaling_policy.py`, `config.py`).
//!
//! ⌈ongoing and queued ÷ target⌉, a mean of 30 s, if wished throughout 30 s (up) or 600 s (down); from 0 at
//! once. The default target is 2 of a replica's 5 concurrent requests; other limits scale alike.

use super::{View, Wish, whole_above};

const TICK_S: i64 = 10;
const WINDOW_S: i64 = 30;
const UP_S: i64 = 30;
const DOWN_S: i64 = 600;
const SHARE: f64 = 2.0 / 5.0;

/// Returns Ray Serve's wish.
#[must_use]
pub fn wish(view: &View<'_>) -> Wish {
    let now = over(view, view.until);
    let target = view.target();
    let throughout = |delay_s: i64, holds: &dyn Fn(u32) -> bool| {
        let ticks = (0..=delay_s / TICK_S).map(|back| view.until - back * TICK_S);
        let kept = view.until - delay_s >= view.history().begin();
        kept && view.since_scaled_s() >= delay_s && ticks.map(|at| over(view, at)).all(holds)
    };
    let changes = match now {
        up if up > target => target == 0 || throughout(UP_S, &|wish| wish > target),
        down if down < target => throughout(DOWN_S, &|wish| wish < target),
        _ => false,
    };
    if !changes {
        return view.stay();
    }
    let reason = format!(
        "{:.1} requests in the system over 30 s",
        mean(view, view.until)
    );
    Wish::of(now, view.rate(WINDOW_S), reason)
}

fn mean(view: &View<'_>, until: i64) -> f64 {
    view.history()
        .mean(until, WINDOW_S, |second| second.concurrency)
}

fn over(view: &View<'_>, until: i64) -> u32 {
    whole_above(mean(view, until) / (SHARE * f64::from(view.servers_each())))
}
