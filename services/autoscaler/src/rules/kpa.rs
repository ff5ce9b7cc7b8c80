//! Knative's autoscaler (`autoscaler.go`, `config-autoscaler`).
//!
//! Every 2 s: ⌈concurrency ÷ target⌉ over 60 s and over 6 s; the target is 70 % of a replica's concurrency. A
//! 6 s wish of twice the ready replicas starts panic: the larger wish, never down, until 60 s pass without
//! one. Otherwise down at most by half.

use super::{TARGET_SHARE, View, Wish, whole_above};

const TICK_S: i64 = 2;
const STABLE_S: i64 = 60;
const PANIC_S: i64 = 6;
const PANIC: f64 = 2.0;

/// Returns KPA's wish.
#[must_use]
pub fn wish(view: &View<'_>) -> Wish {
    let stable = over(view, view.until, STABLE_S);
    let ticks = (0..STABLE_S / TICK_S).map(|back| view.until - back * TICK_S);
    let mut ticks = ticks.filter(|at| *at - TICK_S >= view.history().begin());
    let panics = ticks.any(|at| {
        let ready = view.history().newest(at).ready.max(1);
        f64::from(over(view, at, PANIC_S)) / f64::from(ready) >= PANIC
    });
    let target = view.target();
    let replicas = if panics {
        stable.max(over(view, view.until, PANIC_S)).max(target)
    } else {
        let ready = view.history().newest(view.until).ready;
        let least = ready.div_ceil(2);
        stable.max(least.min(target))
    };
    let reason = format!(
        "{:.1} requests in the system over 60 s, {:.1} over 6 s{}",
        concurrency(view, view.until, STABLE_S),
        concurrency(view, view.until, PANIC_S),
        if panics { ", in panic" } else { "" }
    );
    Wish::of(replicas, view.rate(STABLE_S), reason)
}

fn concurrency(view: &View<'_>, until: i64, window_s: i64) -> f64 {
    view.history()
        .mean(until, window_s, |second| second.concurrency)
}

fn over(view: &View<'_>, until: i64, window_s: i64) -> u32 {
    let per_replica = TARGET_SHARE * f64::from(view.servers_each());
    whole_above(concurrency(view, until, window_s) / per_replica)
}
