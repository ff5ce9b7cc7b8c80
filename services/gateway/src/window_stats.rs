//! Per-second sums of a service's traffic, for `service.measured`. Pure: time is an argument, in
//! microseconds.

use dormouse_messages::events::{Histogram, ServiceMeasured};
use dormouse_messages::{GatewayId, JobId};

use crate::balance::Micros;

const SECOND: Micros = 1_000_000;

const BUSY_S: u64 = 2;
const IDLE_S: u64 = 10;
/// Window while requests wait without a replica.
const WAITING_S: u64 = 1;
/// Longer windows are dropped: decisions use only the last minute.
const LONGEST_S: u64 = 60;

const FIRST_MS: f64 = 1.0;
/// Ratio of two bounds, hence a precision of a quarter.
const STEP: f64 = 1.25;
/// The bounds reach 56 s.
const BOUNDS: usize = 50;

/// Sums of a service's current window.
#[derive(Debug, Clone)]
pub struct WindowStats {
    bounds: Vec<f64>,
    began: Micros,
    /// Queued and running requests.
    inside: u32,
    changed: Micros,
    /// Integral of `inside` over microseconds.
    area: u128,
    arrivals: Vec<u32>,
    latency: Vec<u64>,
    service: Vec<u64>,
    errors: u64,
    shed: u64,
    touched: u64,
}

/// A service's state at the end of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Around {
    pub queued: u32,
    pub ready: u32,
    pub target: u32,
}

impl WindowStats {
    /// Starts a window. The objective is a bound, which makes its share exact.
    #[must_use]
    pub fn new(objective_ms: Option<u32>, now: Micros) -> Self {
        let mut bounds = Vec::with_capacity(BOUNDS + 1);
        let mut bound = FIRST_MS;
        for _ in 0..BOUNDS {
            bounds.push((bound * 1000.0).round() / 1000.0);
            bound *= STEP;
        }
        if let Some(objective) = objective_ms.map(f64::from)
            && !bounds.contains(&objective)
        {
            bounds.push(objective);
            bounds.sort_by(f64::total_cmp);
        }
        let counts = bounds.len() + 1;
        Self {
            bounds,
            began: now / SECOND * SECOND,
            inside: 0,
            changed: now,
            area: 0,
            arrivals: Vec::new(),
            latency: vec![0; counts],
            service: vec![0; counts],
            errors: 0,
            shed: 0,
            touched: 0,
        }
    }

    /// Counts activity in a notebook.
    pub const fn touched(&mut self) {
        self.touched += 1;
    }

    /// Counts an accepted request.
    pub fn arrived(&mut self, now: Micros) {
        self.count_arrival(now);
        self.pass(now);
        self.inside += 1;
    }

    /// Counts a request shed on arrival.
    pub fn turned_away(&mut self, now: Micros) {
        self.count_arrival(now);
        self.shed += 1;
    }

    /// Counts a request's end: answered, broken, or abandoned.
    pub fn left(&mut self, now: Micros) {
        self.pass(now);
        self.inside = self.inside.saturating_sub(1);
    }

    /// Counts a queued request's 503.
    pub fn shed(&mut self, now: Micros) {
        self.left(now);
        self.shed += 1;
    }

    /// Counts an answer by both times.
    pub fn answered(&mut self, latency: Micros, service: Micros) {
        let bucket = self.bucket(latency);
        self.latency[bucket] += 1;
        let bucket = self.bucket(service);
        self.service[bucket] += 1;
    }

    /// Counts a 5xx or a broken connection.
    pub fn failed(&mut self) {
        self.errors += 1;
    }

    /// Returns an ended window and starts the next.
    pub fn due(
        &mut self,
        job: &JobId,
        gateway: &GatewayId,
        around: Around,
        now: Micros,
    ) -> Option<ServiceMeasured> {
        let whole = now / SECOND * SECOND;
        let window_s = whole.saturating_sub(self.began) / SECOND;
        let moves = !self.arrivals.is_empty() || self.inside > 0 || self.shed > 0;
        let moves = moves || self.latency.iter().any(|count| *count > 0);
        let long_enough = match (moves, around) {
            (true, Around { queued, ready, .. }) if queued > 0 && ready == 0 => WAITING_S,
            (true, _) => BUSY_S,
            (false, Around { target: 0, .. }) => {
                self.began = whole;
                return None;
            }
            (false, _) => IDLE_S,
        };
        if window_s < long_enough {
            return None;
        }
        self.pass(now);
        let measured = self.measured(job, gateway, around, window_s);
        self.begin(whole);
        (window_s <= LONGEST_S).then_some(measured)
    }

    fn measured(
        &self,
        job: &JobId,
        gateway: &GatewayId,
        around: Around,
        window_s: u64,
    ) -> ServiceMeasured {
        let mut arrivals = self.arrivals.clone();
        // Arrivals after the last whole second count to that second.
        let seconds = usize::try_from(window_s).unwrap_or(usize::MAX);
        let beyond: u32 = arrivals.iter().skip(seconds).sum();
        arrivals.resize(seconds.min(LONGEST_S as usize), 0);
        if let Some(last) = arrivals.last_mut() {
            *last += beyond;
        }
        let histogram = |counts: &Vec<u64>| Histogram {
            bounds: self.bounds.clone(),
            counts: counts.clone(),
        };
        #[expect(clippy::cast_precision_loss, reason = "a minute's sum is below 2^52")]
        let concurrency = self.area as f64 / (window_s * SECOND) as f64;
        ServiceMeasured {
            job: job.clone(),
            gateway: gateway.clone(),
            window_s: u32::try_from(window_s).unwrap_or(u32::MAX),
            requests: self.arrivals.iter().map(|count| u64::from(*count)).sum(),
            arrivals,
            concurrency,
            queued: around.queued,
            latency_ms: histogram(&self.latency),
            service_ms: histogram(&self.service),
            errors: self.errors,
            shed: self.shed,
            ready: around.ready,
            touched: self.touched,
            until: None,
            ingress_sequence: None,
            published_at: None,
            basis: None,
        }
    }

    fn begin(&mut self, at: Micros) {
        self.began = at;
        self.area = 0;
        self.arrivals.clear();
        self.latency.fill(0);
        self.service.fill(0);
        (self.errors, self.shed, self.touched) = (0, 0, 0);
    }

    fn count_arrival(&mut self, now: Micros) {
        let second = now.saturating_sub(self.began) / SECOND;
        let second = usize::try_from(second.min(LONGEST_S)).unwrap_or(0);
        if self.arrivals.len() <= second {
            self.arrivals.resize(second + 1, 0);
        }
        self.arrivals[second] += 1;
    }

    fn pass(&mut self, now: Micros) {
        let passed = now.saturating_sub(self.changed);
        self.area += u128::from(passed) * u128::from(self.inside);
        self.changed = now;
    }

    fn bucket(&self, took: Micros) -> usize {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52 microseconds")]
        let ms = took as f64 / 1000.0;
        self.bounds.partition_point(|bound| *bound < ms)
    }
}
