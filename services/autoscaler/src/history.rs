//! What clients of a service saw, second by second, summed over the gateways.
//!
//! 1. Each gateway reports windows that follow one another. A window ends when the gateway says it
//!    does, to the whole second; one that follows the gateway's last within a second is joined to it.
//! 2. Its numbers are added to the seconds that it covers.
//! 3. The history reaches to where every gateway has reported that reports often; one that has
//!    less to tell (10 s windows while nothing moves) is not waited for.
//!
//! Bounded: [`KEPT_S`] seconds, [`MOST_GATEWAYS`] gateways.

use std::collections::{BTreeMap, VecDeque};

use dormouse_messages::GatewayId;
use dormouse_messages::events::ServiceMeasured;
use serde::{Deserialize, Serialize};

/// Ray Serve's rule looks back farthest: 600 s, and the mean of 30 s before.
pub const KEPT_S: i64 = 640;

/// A service has a few gateways; more names are a flood.
const MOST_GATEWAYS: usize = 64;

/// A gateway that reported within so many seconds of the newest report is waited for.
const WAITED_FOR_S: i64 = 3;

/// A gateway that was silent for so long counts as gone.
const SILENT_S: i64 = 60;

/// Means of minutes are kept for an hour.
const MINUTES_KEPT: usize = 60;

/// A minute's mean is taken so long after its end: reports are late.
const MINUTE_LATE_S: i64 = 5;

/// One second at all gateways.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Second {
    /// Requests that arrived.
    pub arrivals: f64,
    /// Requests in the system, waiting ones too.
    pub concurrency: f64,
    /// Requests that waited at the gateways.
    pub queued: f64,
    /// Requests that were answered.
    pub answered: f64,
    /// Those that were answered too late, or not.
    pub late: f64,
    /// Replicas that were ready.
    pub ready: u32,
}

/// Without names: there are many of them in a snapshot.
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

/// A gateway's newest window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Reported {
    until: i64,
    queued: u32,
}

/// What clients saw.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// The second behind the newest one, since 1970.
    end: i64,
    /// The newest last.
    seconds: VecDeque<Second>,
    gateways: BTreeMap<GatewayId, Reported>,
    /// Requests a second and requests in the system of whole minutes, the newest last.
    minutes: VecDeque<(f64, f64)>,
    /// The second behind the newest of them.
    minutes_end: i64,
    /// The second behind the last one in which a request arrived.
    last_request: Option<i64>,
}

impl History {
    /// Adds a window that ends at `until`, of which so many answers were in time. Whether it was
    /// new.
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

    /// Why a window that ends at `until` is passed over, if it is.
    #[must_use]
    pub fn doubts(&self, measured: &ServiceMeasured, until: i64) -> Option<String> {
        self.doubts_of(measured, self.follows(measured, until))
    }

    /// Reports come a little early or late; the windows follow one another all the same.
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

    /// Makes room up to `until`; seconds that nobody has reported yet are empty.
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
            let arrivals = match listed {
                true => f64::from(measured.arrivals[in_window]),
                false => measured.requests as f64 / window,
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

    /// The means of the minutes that are over.
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

    /// Requests a second of the whole minutes of the last hour, the newest last.
    #[must_use]
    pub fn minutes(&self) -> Vec<f64> {
        self.minutes.iter().map(|(rate, _)| *rate).collect()
    }

    /// Requests in the system in the whole minutes of the last hour, the newest last.
    #[must_use]
    pub fn minutes_inside(&self) -> Vec<f64> {
        self.minutes.iter().map(|(_, inside)| *inside).collect()
    }

    /// What waits now, at all gateways.
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

    /// The second behind the last one that is complete; `None` before the first report.
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

    /// The first second that is kept.
    #[must_use]
    pub fn begin(&self) -> i64 {
        self.end - i64::try_from(self.seconds.len()).unwrap_or(0)
    }

    /// The second behind the last one in which a request arrived.
    #[must_use]
    pub fn last_request(&self) -> Option<i64> {
        self.last_request
    }

    /// The seconds from `from` to `until`, as far as they are kept, the oldest first.
    pub fn between(&self, from: i64, until: i64) -> impl DoubleEndedIterator<Item = &Second> {
        let clip = |at: i64| {
            let at = (at - self.begin()).max(0);
            usize::try_from(at).unwrap_or(0).min(self.seconds.len())
        };
        let (from, until) = (clip(from), clip(until));
        self.seconds.range(from.min(until)..until)
    }

    /// The mean of `of` over so many seconds before `until`, as far as they are kept; 0 without
    /// any.
    pub fn mean(&self, until: i64, window_s: i64, of: impl Fn(&Second) -> f64) -> f64 {
        let (mut sum, mut count) = (0.0, 0.0);
        for second in self.between(until - window_s, until) {
            sum += of(second);
            count += 1.0;
        }
        if count > 0.0 { sum / count } else { 0.0 }
    }

    /// The newest second before `until`.
    #[must_use]
    pub fn newest(&self, until: i64) -> Second {
        let newest = self.between(until - 1, until).next();
        newest.copied().unwrap_or_default()
    }

    /// Whether it is within its bounds.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        let kept = i64::try_from(self.seconds.len()).unwrap_or(i64::MAX);
        kept <= KEPT_S && self.minutes.len() <= MINUTES_KEPT && self.gateways.len() <= MOST_GATEWAYS
    }
}
