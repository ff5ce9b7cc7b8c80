//! The fewest replicas that keep the tail of the response time.
//!
//! 1. Rate: level, uncertainty, and forecast for when new replicas are ready ([`crate::estimate`]).
//! 2. Replicas at that rate ([`crate::staffing`]), with a service time to spare.
//! 3. If one jump an hour would break the promise: capacity for the last hour's largest rise.
//! 4. Backlogs are worked off within [`DRAIN_S`].
//! 5. Clients that wait for answers are counted instead ([`closed`]).
//! 6. Up at once, including the uncertainty. Down to the highest wish of [`HOLD_S`], or of [`LONG_HOLD_S`]
//!    for small changes. The gap between needed and kept replicas prevents oscillation.
//!
//! A trend over 16 s was measured and left out: on the traces of docs/benchmarks.md it raises no attainment, and
//! costs replicas.

use super::{View, Wish, closed, whole_above};
use crate::estimate::{Level, Series, largest_rise};
use crate::history::KEPT_S;
use crate::staffing::{Goal, Load};
use crate::times::Times;

/// Seconds to work off a backlog.
const DRAIN_S: f64 = 5.0;

/// Three starts of a fast model, longer than a lull in a load stepped by the minute.
const HOLD_S: i64 = 45;

/// Kubernetes' hold, for a scale-down by less than a fifth.
const LONG_HOLD_S: i64 = 300;
const DEEP: f64 = 0.8;

/// One step down, not five.
const QUIET_S: i64 = 60;

/// The assumed start time before one was measured.
const START_S: f64 = 15.0;

/// From a change of the rate to the response.
const REACTION_S: f64 = 10.0;

/// Bounds extrapolated rises, as a multiple.
const MOST_RISE: f64 = 2.0;

/// Standard deviations added when scaling up or holding.
const DOUBTS: f64 = 2.0;

/// Standard deviations subtracted from a level over more than [`SETTLED_S`] before more replicas count as
/// needed, so chance rarely changes the number.
const SETTLED_DOUBTS: f64 = 3.0;
const SETTLED_S: f64 = 16.0;

/// Spare service times: a rise by a third breaks no promise. More replicas are needed below [`NEEDED_SPARE`].
const SPARE: f64 = 1.0;
const NEEDED_SPARE: f64 = 0.9;

#[derive(Debug, Clone, Copy)]
struct Rates {
    level: Level,
    forecast: f64,
}

impl Rates {
    fn likely(&self) -> f64 {
        let settled = self.level.window_s > SETTLED_S;
        let doubts = if settled { SETTLED_DOUBTS } else { 0.0 };
        (self.forecast - doubts * self.level.doubt).max(0.0)
    }

    fn safe(&self) -> f64 {
        self.forecast + DOUBTS * self.level.doubt
    }
}

struct Planned<'a> {
    view: &'a View<'a>,
    times: Times,
    series: Series,
    dispersion: f64,
    start_s: f64,
    /// Requests per second, and relative.
    insured: (f64, f64),
}

/// Returns the objective's wish.
#[must_use]
pub fn wish(view: &View<'_>) -> Wish {
    let Some(times) = view.service.times.times() else {
        return unknown(view);
    };
    if let Some(wish) = closed::wish(view, start_s(view)) {
        return wish;
    }
    let planned = Planned::new(view, times);
    let now = planned.rates(view.until);
    let backlog = planned.backlog(now.likely().max(now.level.recent));
    let needed = planned.replicas(now.likely(), NEEDED_SPARE).max(backlog);
    let target = view.target();
    let mut held = planned.highest(HOLD_S).max(needed);
    if held < target && f64::from(held) > f64::from(target) * DEEP {
        held = planned.highest(LONG_HOLD_S).max(needed);
    }
    let replicas = if needed > target {
        let given = now.safe().max(now.level.recent);
        needed.max(planned.replicas(given, SPARE))
    } else if view.since_scaled_s() < QUIET_S {
        target
    } else {
        held.min(target)
    };
    Wish {
        replicas,
        needed,
        held,
        forecast: now.forecast,
        reason: planned.reason(&now, backlog, replicas),
    }
}

/// Before any answer, waiting requests need one replica.
fn unknown(view: &View<'_>) -> Wish {
    let waits = view.history().newest(view.until).queued > 0.0;
    let replicas = view.target().max(u32::from(waits));
    Wish::of(replicas, view.rate(10), "nothing was answered yet")
}

#[expect(clippy::cast_precision_loss, reason = "starts take less than 2^53 ms")]
fn start_s(view: &View<'_>) -> f64 {
    let start_ms = view.service.replicas.start_ms();
    start_ms.map_or(START_S, |ms| ms as f64 / 1000.0)
}

impl<'a> Planned<'a> {
    fn new(view: &'a View<'a>, times: Times) -> Self {
        let series = Series::of(view.history(), view.until, KEPT_S);
        let dispersion = series.dispersion(view.until);
        let start_s = start_s(view);
        // Seconds an hour in which all may be late.
        let budget_s = view.objective.late * 3600.0;
        let minutes = 1 + usize::from(start_s + REACTION_S > 60.0);
        let insured = if budget_s < start_s {
            largest_rise(&view.history().minutes(), minutes, dispersion)
        } else {
            (0.0, 0.0)
        };
        Self {
            view,
            times,
            series,
            dispersion,
            start_s,
            insured,
        }
    }

    fn rates(&self, until: i64) -> Rates {
        let level = self.series.level(until, self.dispersion);
        let rise = self.series.rise(until, self.dispersion);
        let ahead_s = level.window_s / 2.0 + self.start_s + REACTION_S;
        let risen = (level.rate + rise * ahead_s).min(level.rate * MOST_RISE);
        let (jump, ratio) = self.insured;
        let jumped = level.rate + jump.min(ratio * level.rate);
        Rates {
            level,
            forecast: risen.max(jumped),
        }
    }

    fn replicas(&self, rate: f64, spare: f64) -> u32 {
        let load = Load {
            rate,
            dispersion: self.dispersion,
            times: &self.times,
        };
        // Tight objectives have nothing to spare.
        let spare_s = (spare * self.times.mean_s).min(self.view.objective.latency_s / 4.0);
        let goal = Goal {
            latency_s: self.view.objective.latency_s - spare_s,
            late: self.view.objective.late,
        };
        let most = self.view.service.containers.max;
        load.replicas(goal, self.view.servers_each(), most)
    }

    fn highest(&self, hold_s: i64) -> u32 {
        let first = self.view.history().begin();
        let held = (0..hold_s / 2).map(|back| self.view.until - 2 * back);
        let held = held.filter(|at| *at > first);
        let rates = held.map(|at| self.rates(at).safe());
        self.replicas(rates.fold(0.0, f64::max), SPARE)
    }

    /// Returns the replicas that work off the expected backlog in [`DRAIN_S`].
    fn backlog(&self, rate: f64) -> u32 {
        let (view, mean_s) = (self.view, self.times.mean_s);
        let queued = view.history().newest(view.until).queued;
        let each = f64::from(view.servers_each());
        let ready = f64::from(view.service.replicas.ready_count());
        let per_second = |replicas: f64| replicas * each / mean_s;
        // Below half the objective, a queue is no backlog.
        if queued <= per_second(ready) * view.objective.latency_s / 2.0 {
            return 0;
        }
        let elapsed_s = view.service.replicas.starting_since().map(|since| {
            let since = since.as_micros().div_euclid(1_000_000);
            f64::from(i32::try_from(view.until - since).unwrap_or(i32::MAX))
        });
        // First until starting replicas are ready, then until new ones.
        let first_s = elapsed_s.map_or(self.start_s, |elapsed_s| {
            (self.start_s - elapsed_s).clamp(0.0, self.start_s)
        });
        let waits = (queued + (rate - per_second(ready)) * first_s).max(0.0);
        let present = f64::from(view.target()).max(ready);
        let waits = (waits + (rate - per_second(present)) * (self.start_s - first_s)).max(0.0);
        if waits <= 0.0 {
            return 0;
        }
        whole_above((rate + waits / DRAIN_S) * mean_s / each)
    }

    fn reason(&self, now: &Rates, backlog: u32, replicas: u32) -> String {
        let rate = now.level.rate;
        if backlog >= replicas && backlog > 0 {
            return format!("{rate:.1} requests a second, and what waits is to be worked off");
        }
        if now.forecast <= rate * 1.01 {
            return format!("{rate:.1} requests a second");
        }
        let why = if self.insured.0 > 0.0 {
            "as it has risen before"
        } else {
            "when replicas are ready"
        };
        format!("{rate:.1} requests a second, {:.1} {why}", now.forecast)
    }
}
