//! Clients that ask again as soon as they are answered: their number is the load, not their
//! requests, of which there are as many as the replicas can answer.
//!
//! 1. They are known by replicas that are always busy, and by a number in the system that neither
//!    grows nor falls: arrivals that do not wait for answers would pile up.
//! 2. N clients on k replicas are answered after N·S/k (Little), so that k = N·S ÷ objective.
//! 3. A promise that one jump an hour would break is insured, but while the clients become fewer: two
//!    replicas before three rises were seen, the largest rise of the last hour from then on.

use super::{View, Wish, whole_above};

/// So long nothing may have moved.
const STABLE_S: i64 = 6;

/// A jump is a jump of the clients if they were known within so many seconds.
const REMEMBERED_S: i64 = 16;

/// So much it may have moved. What waits before replicas that are nearly always busy moves by half of
/// itself when arrivals are nobody's answer.
const STABLE_PART: f64 = 0.05;

/// Replicas that are busy for this part of the time have always something to do.
const BUSY: f64 = 0.95;

/// The clients become fewer as long as they were more within so many seconds.
const FALLING_S: i64 = 75;

/// Rises that were seen before the largest of them is believed, and the replicas until then.
const RISES_SEEN: usize = 3;
const SPARE_REPLICAS: f64 = 2.0;

/// What such clients need; `None` where the clients are others.
#[must_use]
pub fn wish(view: &View<'_>, start_s: f64) -> Option<Wish> {
    let history = view.history();
    let clients = history.newest(view.until).concurrency;
    // Those that have just become ready have answered nothing yet.
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
    // More than all of them can do is asked for by others.
    let most = f64::from(view.service.replicas.ready_count()).max(f64::from(ready));
    let most = most * f64::from(view.servers_each());
    let working = rate * times.mean_s;
    let busy = working >= BUSY * servers && working * BUSY <= most;
    let mut ends = (0..=REMEMBERED_S / 2).map(|back| view.until - 2 * back);
    if !busy || !ends.any(|end| is_stable(view, end)) {
        return None;
    }
    // All servers are busy: what they do not need for answers is work as well.
    let work_s = times.mean_s.max(servers / rate);
    let each = view.objective.latency_s / work_s * f64::from(view.servers_each());
    let rise = match view.objective.late * 3600.0 < start_s {
        true => insured(view, each),
        false => 0.0,
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

/// Whether the number in the system stood still before `end`, at more than there were replicas.
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

/// The clients that may come at any time.
fn insured(view: &View<'_>, each: f64) -> f64 {
    let minutes = view.history().minutes_inside();
    let rises = minutes.windows(2).map(|pair| pair[1] - pair[0]);
    let rises: Vec<f64> = rises.filter(|rise| *rise > 1.0).collect();
    let largest = rises.iter().copied().fold(0.0, f64::max);
    match rises.len() >= RISES_SEEN {
        true => largest,
        false => largest.max(SPARE_REPLICAS * each),
    }
}
