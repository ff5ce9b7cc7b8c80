//! Kubernetes' Horizontal Pod Autoscaler on concurrency (`replica_calculator.go`, `v2/defaults.go`).
//!
//! Every 15 s: ⌈ready · metric ÷ target⌉ replicas; the metric is a ready replica's mean concurrency.
//! Tolerance 0.1. On growth, unready replicas count as idle; no change if that turns the direction. Up at
//! once, by at most the larger of 100 % and 4 each 15 s; down to the highest wish of 300 s.

use super::{TARGET_SHARE, View, Wish, whole_above};

const PERIOD_S: i64 = 15;
const TOLERANCE: f64 = 0.1;
const STABLE_S: i64 = 300;

/// Returns HPA's wish.
#[must_use]
pub fn wish(view: &View<'_>) -> Wish {
    let tick = view.until.div_euclid(PERIOD_S) * PERIOD_S;
    let scaled_in_period = view.since_scaled_s() < view.until - tick;
    if scaled_in_period || tick < view.history().begin() {
        return view.stay();
    }
    let unready = view.service.replicas.unready_count();
    let wished = at(view, tick, unready);
    let target = view.target();
    let most = target.saturating_add(target.max(4));
    let ticks = (0..STABLE_S / PERIOD_S).map(|back| tick - back * PERIOD_S);
    let ticks = ticks.filter(|at| *at > view.history().begin());
    let highest = ticks.map(|tick| at(view, tick, 0)).max().unwrap_or(0);
    let replicas = match wished {
        up if up > target => up.min(most),
        _ => highest.max(wished).min(target),
    };
    let reason = format!(
        "{:.1} requests in the system, {:.0} % of what a replica works on at once are aimed at",
        concurrency(view, tick),
        TARGET_SHARE * 100.0
    );
    Wish::of(replicas, view.rate(PERIOD_S), reason)
}

fn concurrency(view: &View<'_>, tick: i64) -> f64 {
    view.history()
        .mean(tick, PERIOD_S, |second| second.concurrency)
}

fn at(view: &View<'_>, tick: i64, unready: u32) -> u32 {
    let ready = view.history().newest(tick).ready;
    let per_replica = TARGET_SHARE * f64::from(view.servers_each());
    let concurrency = concurrency(view, tick);
    let usage = |replicas: u32| concurrency / (f64::from(replicas.max(1)) * per_replica);
    let present = usage(ready);
    if (present - 1.0).abs() <= TOLERANCE {
        return ready.max(unready.saturating_add(ready));
    }
    let counted = if present > 1.0 {
        ready.saturating_add(unready)
    } else {
        ready
    };
    let ratio = usage(counted);
    if present > 1.0 && ratio <= 1.0 + TOLERANCE {
        return counted;
    }
    whole_above(ratio * f64::from(counted.max(1)))
}
