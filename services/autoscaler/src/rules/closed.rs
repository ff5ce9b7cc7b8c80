//! Clients that send the next request once answered. Replicas limit their request rate, so their number is
//! the load.
//!
//! 1. Signs: replicas always busy, and a stable number in the system.
//! 2. k replicas answer N clients after N·S/k (Little), so k = N·S ÷ objective.
//! 3. If one jump an hour would break the promise, and clients do not decrease: two spare replicas until
//!    three rises were seen, then the last hour's largest rise.

use super::{View, Wish, whole_above};

/// Seconds without movement.
const STABLE_S: i64 = 6;

/// A jump within this time of a stable phase is the clients'.
const REMEMBERED_S: i64 = 16;

/// With independent arrivals the queue before saturated replicas moves by half of itself.
const STABLE_PART: f64 = 0.05;

/// Saturated replicas are busy for this part.
const BUSY: f64 = 0.95;

/// Clients decrease if more were seen within this time.
const FALLING_S: i64 = 75;

/// Rises needed to trust the largest one; spare replicas until then.
const RISES_SEEN: usize = 3;
const SPARE_REPLICAS: f64 = 2.0;

/// Returns the wish for closed-loop clients; `None` for others.
#[must_use]
pub fn wish(view: &View<'_>, start_s: f64) -> Option<Wish> {
    let history = view.history();
    let clients = history.newest(view.until).concurrency;
    // New replicas have answered nothing yet.
    let ready = history
        .between(view.until - 4, view.until)
        .map(|it| it.ready);
    let ready = ready.min().unwrap_or(0);
    let servers = f64::from(ready) * f64::from(view.servers_each());
    if servers <= 0.0 || clients <= servers {
        return None;
    }
    let rate = view.rate(2);
    let times = view.service.times.times()?;
    // Demand above full capacity comes from independent arrivals.
    let most = f64::from(view.service.replicas.ready_count()).max(f64::from(ready));
    let most = most * f64::from(view.servers_each());
    let working = rate * times.mean_s;
    let busy = working >= BUSY * servers && working * BUSY <= most;
    let mut ends = (0..=REMEMBERED_S / 2).map(|back| view.until - 2 * back);
    if !busy || !ends.any(|end| is_stable(view, end)) {
        return None;
    }
    // All servers are busy, so idle overhead counts as work.
    let work_s = times.mean_s.max(servers / rate);
    let each = view.objective.latency_s / work_s * f64::from(view.servers_each());
    let rise = if view.objective.late * 3600.0 < start_s {
        insured(view, each)
    } else {
        0.0
    };
    let highest = |window_s: i64| {
        let seconds = history.between(view.until - window_s, view.until);
        seconds.map(|second| second.concurrency).fold(0.0, f64::max)
    };
    let falling = highest(FALLING_S) > clients + 1.0;
    let spare = if falling { 0.0 } else { rise };
    #[expect(
        clippy::cast_possible_truncation,
        reason = "starts take minutes at most"
    )]
    let hold_s = start_s as i64;
    let needed = whole_above((clients + spare) / each);
    let held = needed.max(whole_above(highest(hold_s) / each));
    let target = view.target();
    Some(Wish {
        replicas: if needed > target {
            needed
        } else {
            held.min(target)
        },
        needed: whole_above(clients / each),
        held,
        forecast: rate,
        reason: format!(
            "{clients:.0} clients that ask again once they are answered, {each:.1} a replica"
        ),
    })
}

/// Reports a stable number above the servers.
fn is_stable(view: &View<'_>, end: i64) -> bool {
    let (mut most, mut least, mut count) = (0.0_f64, f64::MAX, 0);
    let mut waited = true;
    for second in view.history().between(end - STABLE_S, end) {
        most = most.max(second.concurrency);
        least = least.min(second.concurrency);
        waited &= second.concurrency > f64::from(second.ready) * f64::from(view.servers_each());
        count += 1;
    }
    waited && count > 1 && most - least <= STABLE_PART * most
}

fn insured(view: &View<'_>, each: f64) -> f64 {
    let minutes = view.history().minutes_inside();
    let rises = minutes.windows(2).map(|pair| pair[1] - pair[0]);
    let rises: Vec<f64> = rises.filter(|rise| *rise > 1.0).collect();
    let largest = rises.iter().copied().fold(0.0, f64::max);
    if rises.len() >= RISES_SEEN {
        largest
    } else {
        largest.max(SPARE_REPLICAS * each)
    }
}
