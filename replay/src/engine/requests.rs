//! Models a service's requests one by one. They wait at the gateway, and a free replica takes the oldest. A
//! leaving replica still ends the requests that it has.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use dormouse_messages::NodeId;
use dormouse_messages::events::Histogram;

use super::clients::{REPORT_S, Replica, Window};
use crate::random::Random;

/// The work of a request on a replica.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    pub mean_s: f64,
    /// The coefficient of variation (Gamma).
    pub cv: f64,
    /// Concurrent requests per replica.
    pub concurrency: u32,
}

/// Requests that do not depend on the answers. Times are microseconds from the beginning.
#[derive(Debug, Clone)]
pub struct Requests {
    arrivals: VecDeque<u64>,
    work: Work,
    random: Random,
    now: u64,
    waiting: VecDeque<u64>,
    busy: BTreeMap<Replica, u32>,
    /// Ends of requests, with replica, arrival, and time of work.
    ends: BinaryHeap<Reverse<(u64, Replica, u64, u64)>>,
    empty: Window,
    window: Window,
    window_began: u64,
}

impl Requests {
    /// Returns requests that arrive at these seconds, in order. The bounds are the buckets' of their times.
    #[must_use]
    pub fn new(arrivals_s: &[f64], work: Work, bounds_ms: Vec<f64>, random: Random) -> Self {
        let times = Histogram {
            counts: vec![0; bounds_ms.len() + 1],
            bounds: bounds_ms,
        };
        let empty = Window {
            arrivals: vec![0; REPORT_S],
            latency_ms: times.clone(),
            service_ms: times,
            ..Window::default()
        };
        Self {
            arrivals: arrivals_s.iter().map(|at_s| micros(*at_s)).collect(),
            work,
            random,
            now: 0,
            waiting: VecDeque::new(),
            busy: BTreeMap::new(),
            ends: BinaryHeap::new(),
            window: empty.clone(),
            empty,
            window_began: 0,
        }
    }

    /// Passes to the time `until`, with the same ready replicas all along.
    pub(super) fn pass_to(&mut self, until: u64, ready: &BTreeMap<Replica, NodeId>) {
        loop {
            self.dispatch(ready);
            let arrival = self.arrivals.front().copied();
            let end = self.ends.peek().map(|Reverse((at, ..))| *at);
            let next = [arrival, end].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= until) else {
                break;
            };
            self.wait(next);
            if arrival == Some(next) {
                self.arrive();
            } else {
                self.end();
            }
        }
        self.wait(until);
    }

    fn wait(&mut self, until: u64) {
        let inside = self.waiting.len() + self.ends.len();
        self.window.concurrency += seconds(until.saturating_sub(self.now)) * inside as f64;
        self.now = self.now.max(until);
    }

    fn arrive(&mut self) {
        let second = (self.now - self.window_began) / 1_000_000;
        let second = usize::try_from(second).unwrap_or(0).min(REPORT_S - 1);
        self.window.arrivals[second] += 1;
        self.arrivals.pop_front();
        self.waiting.push_back(self.now);
    }

    fn dispatch(&mut self, ready: &BTreeMap<Replica, NodeId>) {
        while let Some(arrived) = self.waiting.front().copied() {
            let busy = |replica: &Replica| self.busy.get(replica).copied().unwrap_or(0);
            let all = ready.keys().map(|replica| (busy(replica), *replica));
            let free = all.filter(|(busy, _)| *busy < self.work.concurrency);
            let Some((_, replica)) = free.min() else {
                return;
            };
            self.waiting.pop_front();
            *self.busy.entry(replica).or_default() += 1;
            let shape = 1.0 / (self.work.cv * self.work.cv);
            let drawn = self.random.gamma(shape) / shape;
            let takes = micros(drawn * self.work.mean_s);
            let end = (self.now + takes, replica, arrived, takes);
            self.ends.push(Reverse(end));
        }
    }

    fn end(&mut self) {
        let Some(Reverse((_, replica, arrived, took))) = self.ends.pop() else {
            return;
        };
        if let Some(busy) = self.busy.get_mut(&replica) {
            *busy -= 1;
        }
        count(&mut self.window.latency_ms, self.now - arrived);
        count(&mut self.window.service_ms, took);
    }

    /// Ends the window.
    pub(super) fn report(&mut self) -> Window {
        let window_s = seconds(self.now - self.window_began);
        self.window_began = self.now;
        let window = std::mem::replace(&mut self.window, self.empty.clone());
        Window {
            concurrency: window.concurrency / window_s,
            queued: u32::try_from(self.waiting.len()).unwrap_or(u32::MAX),
            ..window
        }
    }
}

fn count(times: &mut Histogram, us: u64) {
    let ms = seconds(us) * 1000.0;
    let bucket = times.bounds.partition_point(|bound| *bound < ms);
    times.counts[bucket] += 1;
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

fn micros(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}
