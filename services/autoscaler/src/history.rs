//! Client load by second, summed over gateways.
//!
//! 1. A window ends at the reported second. A window that follows the gateway's last within a second
//!    continues that one.
//! 2. A window's numbers spread over its seconds.
//! 3. The history ends where all frequent reporters have reported; slow reporters (10 s windows when idle)
//!    are not awaited.
//!
//! Bounded: [`KEPT_S`] seconds, [`MOST_GATEWAYS`] gateways.

use std::collections::{BTreeMap, VecDeque};

use dormouse_messages::GatewayId;
use dormouse_messages::events::ServiceMeasured;
use serde::{Deserialize, Serialize};

/// Ray Serve's rule looks back 600 s, plus 30 s.
pub const KEPT_S: i64 = 640;

/// A service has few gateways; more names are a flood.
const MOST_GATEWAYS: usize = 64;

/// Reporters this far behind the newest report are not awaited.
const WAITED_FOR_S: i64 = 3;

/// A silent gateway expires after this time.
const SILENT_S: i64 = 60;

const MINUTES_KEPT: usize = 60;

/// Reports come late, so a minute is averaged this long after its end.
const MINUTE_LATE_S: i64 = 5;

/// One second at all gateways.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Second {
    pub arrivals: f64,
    /// Including queued requests.
    pub concurrency: f64,
    pub queued: f64,
    pub answered: f64,
    /// Answered late, or not at all.
    pub late: f64,
    pub ready: u32,
}

/// Snapshots hold many, so without names.
type Written = (f64, f64, f64, f64, f64, u32);

impl From<Written> for Second {
    fn from((arrivals, concurrency, queued, answered, late, ready): Written) -> Self {
        Self {
            arrivals,
            concurrency,
            queued,
            answered,
            late,
            ready,
        }
    }
}

impl From<Second> for Written {
    fn from(it: Second) -> Self {
        (
            it.arrivals,
            it.concurrency,
            it.queued,
            it.answered,
            it.late,
            it.ready,
        )
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Reported {
    until: i64,
    queued: u32,
}

/// A service's client load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// Exclusive, in seconds since 1970.
    end: i64,
    seconds: VecDeque<Second>,
    gateways: BTreeMap<GatewayId, Reported>,
    /// Rates and requests in the system, newest last.
    minutes: VecDeque<(f64, f64)>,
    minutes_end: i64,
    last_request: Option<i64>,
}

impl History {
    /// Adds a window with `late` late answers; reports whether the window was new.
    pub fn add(&mut self, measured: &ServiceMeasured, until: i64, late: f64, ready: u32) -> bool {
        let window = i64::from(measured.window_s);
        let known = self.gateways.get(&measured.gateway).copied();
        let until = self.follows(measured, until);
        if self.doubts_of(measured, until).is_some() {
            return false;
        }
        let from = known.map_or(until - window, |known| known.until.max(until - window));
        self.reach(until, ready);
        self.spread(measured, from.max(until - window), until, late);
        let reported = Reported {
            until,
            queued: measured.queued,
        };
        self.gateways.insert(measured.gateway.clone(), reported);
        self.gateways.retain(|_, it| it.until + SILENT_S > until);
        self.queue(until);
        self.pass_minutes();
        true
    }

    /// Explains why a window is ignored.
    #[must_use]
    pub fn rejects(&self, measured: &ServiceMeasured, until: i64) -> Option<String> {
        self.doubts_of(measured, self.follows(measured, until))
    }

    /// Report times jitter, but windows are contiguous.
    fn follows(&self, measured: &ServiceMeasured, until: i64) -> i64 {
        let known = self.gateways.get(&measured.gateway);
        let follows = known.map(|known| known.until + i64::from(measured.window_s));
        follows
            .filter(|follows| (follows - until).abs() <= 1)
            .unwrap_or(until)
    }

    fn doubts_of(&self, measured: &ServiceMeasured, until: i64) -> Option<String> {
        let gateway = &measured.gateway;
        match self.gateways.get(gateway) {
            Some(known) if until <= known.until => Some(format!(
                "{gateway} has told of this window before, or of a later one"
            )),
            None if self.gateways.len() >= MOST_GATEWAYS => Some(format!(
                "{gateway} is one more than the {MOST_GATEWAYS} gateways that are listened to"
            )),
            _ if until <= self.end - KEPT_S => {
                Some(format!("its window ended more than {KEPT_S} s ago"))
            }
            _ => None,
        }
    }

    fn reach(&mut self, until: i64, ready: u32) {
        if self.seconds.is_empty() || until - self.end > KEPT_S {
            self.seconds.clear();
            self.end = until - 1;
        }
        while self.end < until {
            self.seconds.push_back(Second {
                ready,
                ..Second::default()
            });
            self.end += 1;
        }
        while i64::try_from(self.seconds.len()).unwrap_or(i64::MAX) > KEPT_S {
            self.seconds.pop_front();
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of a window lie far below 2^53"
    )]
    fn spread(&mut self, measured: &ServiceMeasured, from: i64, until: i64, late: f64) {
        let window = f64::from(measured.window_s);
        let listed = measured.arrivals.len() == measured.window_s as usize;
        let first = until - i64::from(measured.window_s);
        let answered = measured.latency_ms.total() as f64;
        for at in first..until {
            let in_window = usize::try_from(at - first).unwrap_or(0);
            let arrivals = if listed {
                f64::from(measured.arrivals[in_window])
            } else {
                measured.requests as f64 / window
            };
            if arrivals > 0.0 {
                self.last_request = self.last_request.max(Some(at + 1));
            }
            if at < from {
                continue;
            }
            let Some(second) = self.second_mut(at) else {
                continue;
            };
            second.arrivals += arrivals;
            second.concurrency += measured.concurrency;
            second.answered += answered / window;
            second.late += late / window;
        }
    }

    /// Appends the means of finished minutes.
    fn pass_minutes(&mut self) {
        if self.minutes_end + KEPT_S < self.end {
            let first = self.begin().div_euclid(60) + 1;
            self.minutes.clear();
            self.minutes_end = first * 60;
        }
        while self.minutes_end + 60 + MINUTE_LATE_S <= self.end {
            self.minutes_end += 60;
            let rate = self.mean(self.minutes_end, 60, |second| second.arrivals);
            let inside = self.mean(self.minutes_end, 60, |second| second.concurrency);
            self.minutes.push_back((rate, inside));
            if self.minutes.len() > MINUTES_KEPT {
                self.minutes.pop_front();
            }
        }
    }

    /// Returns the last hour's rates by minute.
    #[must_use]
    pub fn minutes(&self) -> Vec<f64> {
        self.minutes.iter().map(|(rate, _)| *rate).collect()
    }

    /// Returns the last hour's requests in the system by minute.
    #[must_use]
    pub fn minutes_inside(&self) -> Vec<f64> {
        self.minutes.iter().map(|(_, inside)| *inside).collect()
    }

    /// Sums the gateways' newest queues.
    fn queue(&mut self, until: i64) {
        let queued = self.gateways.values().map(|it| f64::from(it.queued)).sum();
        if let Some(second) = self.second_mut(until - 1) {
            second.queued = queued;
        }
    }

    fn index(&self, at: i64) -> Option<usize> {
        let back = usize::try_from(self.end - at).ok()?;
        self.seconds.len().checked_sub(back).filter(|_| back > 0)
    }

    fn second_mut(&mut self, at: i64) -> Option<&mut Second> {
        let index = self.index(at)?;
        self.seconds.get_mut(index)
    }

    /// Returns the end of complete seconds; `None` before the first report.
    #[must_use]
    pub fn until(&self) -> Option<i64> {
        if self.seconds.is_empty() {
            return None;
        }
        let recent = self.gateways.values().map(|it| it.until);
        recent
            .filter(|until| until + WAITED_FOR_S >= self.end)
            .min()
    }

    /// Returns the first kept second.
    #[must_use]
    pub fn begin(&self) -> i64 {
        self.end - i64::try_from(self.seconds.len()).unwrap_or(0)
    }

    /// Returns the end of the last second with a request.
    #[must_use]
    pub fn last_request(&self) -> Option<i64> {
        self.last_request
    }

    /// Iterates over the kept seconds from `from` to `until`.
    pub fn between(&self, from: i64, until: i64) -> impl DoubleEndedIterator<Item = &Second> {
        let clip = |at: i64| {
            let at = (at - self.begin()).max(0);
            usize::try_from(at).unwrap_or(0).min(self.seconds.len())
        };
        let (from, until) = (clip(from), clip(until));
        self.seconds.range(from.min(until)..until)
    }

    /// Returns the mean over kept seconds; 0 if empty.
    pub fn mean(&self, until: i64, window_s: i64, of: impl Fn(&Second) -> f64) -> f64 {
        let (mut sum, mut count) = (0.0, 0.0);
        for second in self.between(until - window_s, until) {
            sum += of(second);
            count += 1.0;
        }
        if count > 0.0 { sum / count } else { 0.0 }
    }

    /// Returns the newest second before `until`.
    #[must_use]
    pub fn newest(&self, until: i64) -> Second {
        let newest = self.between(until - 1, until).next();
        newest.copied().unwrap_or_default()
    }

    /// Reports whether all bounds hold.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        let kept = i64::try_from(self.seconds.len()).unwrap_or(i64::MAX);
        kept <= KEPT_S && self.minutes.len() <= MINUTES_KEPT && self.gateways.len() <= MOST_GATEWAYS
    }
}
