//! Simulates one service in virtual time: a gateway's queue, replicas, and an autoscaler or an oracle. A
//! free replica takes the oldest request; a leaving replica ends after its current one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::setting::{Figures, Setting};
use super::traces::Trace;
use super::watched::{Watched, Window};
use crate::random::Random;
use dormouse_messages::events::Histogram;

/// Seconds between a gateway's reports while traffic changes.
pub const REPORT_S: u64 = 2;

const SECOND_US: u64 = 1_000_000;

/// The source of the number of replicas.
pub enum Driver {
    Decider(Box<Watched>),
    Oracle(Vec<u32>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Starting,
    Ready,
    Leaving,
}

struct Replica {
    phase: Phase,
    busy: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Ready(u32),
    /// A request's end: replica, arrival, and time of work.
    Ends(u32, u64, u64),
}

#[derive(Default)]
struct Counters {
    arrivals: Vec<u32>,
    latency: Vec<u64>,
    service: Vec<u64>,
    /// Requests in the system times microseconds.
    busy_us: f64,
    since: u64,
}

/// The simulated service.
pub struct World<'a> {
    setting: &'a Setting,
    now: u64,
    random: Random,
    driver: Driver,
    bounds: Vec<f64>,
    due: BinaryHeap<Reverse<(u64, Due)>>,
    waiting: VecDeque<u64>,
    replicas: BTreeMap<u32, Replica>,
    next: u32,
    in_system: u32,
    target: u32,
    counters: Counters,
    measured_from: u64,
    figures: Figures,
}

#[expect(clippy::cast_precision_loss, reason = "hours in microseconds")]
fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times of a simulation are not negative and last hours"
)]
fn micros(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}

impl<'a> World<'a> {
    /// Returns a world before its first request; figures count from `measured_from_s`.
    pub fn new(setting: &'a Setting, driver: Driver, random: Random, measured_from_s: f64) -> Self {
        let mut world = Self {
            setting,
            now: 0,
            random,
            driver,
            bounds: bounds(),
            due: BinaryHeap::new(),
            waiting: VecDeque::new(),
            replicas: BTreeMap::new(),
            next: 0,
            in_system: 0,
            target: 0,
            counters: Counters::default(),
            measured_from: micros(measured_from_s),
            figures: Figures::default(),
        };
        world.counters.latency = vec![0; world.bounds.len() + 1];
        world.counters.service = vec![0; world.bounds.len() + 1];
        world
    }

    pub fn run(mut self, trace: &Trace, arrivals: &[f64]) -> Figures {
        let end = micros(trace.rates.len() as f64);
        self.scale(self.setting.containers.min.max(1), 0);
        let mut arrivals = arrivals.iter().map(|it| micros(*it)).peekable();
        let mut report = SECOND_US * REPORT_S;
        while self.now < end {
            let due = self.due.peek().map(|Reverse((at, _))| *at);
            let arrival = arrivals.peek().copied();
            let next = [Some(report), due, arrival].into_iter().flatten().min();
            self.pass_to(next.unwrap_or(end).min(end));
            if arrival.is_some_and(|at| at <= self.now) {
                arrivals.next();
                self.arrive();
            } else if due.is_some_and(|at| at <= self.now) {
                self.happen();
            } else if report <= self.now {
                self.report();
                report += SECOND_US * REPORT_S;
            }
        }
        self.finish(trace)
    }

    fn is_measured(&self) -> bool {
        self.now >= self.measured_from
    }

    fn pass_to(&mut self, at: u64) {
        let passed = seconds(at - self.now);
        self.counters.busy_us += passed * f64::from(self.in_system);
        if self.is_measured() {
            self.figures.replica_s += passed * self.replicas.len() as f64;
        }
        self.now = at;
    }

    fn arrive(&mut self) {
        let second = usize::try_from((self.now - self.counters.since) / SECOND_US).unwrap_or(0);
        let arrivals = &mut self.counters.arrivals;
        let second = second.min(usize::try_from(REPORT_S).unwrap_or(1) - 1);
        if arrivals.len() <= second {
            arrivals.resize(second + 1, 0);
        }
        arrivals[second] += 1;
        self.in_system += 1;
        self.waiting.push_back(self.now);
        self.dispatch();
    }

    fn dispatch(&mut self) {
        let each = self.setting.concurrency;
        while !self.waiting.is_empty() {
            let free = self.replicas.iter_mut();
            let free = free.filter(|(_, it)| it.phase == Phase::Ready && it.busy < each);
            let Some((rank, replica)) = free.min_by_key(|(rank, it)| (it.busy, **rank)) else {
                return;
            };
            let Some(arrived) = self.waiting.pop_front() else {
                return;
            };
            replica.busy += 1;
            let shape = 1.0 / (self.setting.service_cv * self.setting.service_cv);
            let drawn = self.random.gamma(shape) / shape;
            let takes = micros(drawn * self.setting.service_s);
            let ends = Due::Ends(*rank, arrived, takes);
            self.due.push(Reverse((self.now + takes, ends)));
        }
    }

    fn happen(&mut self) {
        let Some(Reverse((_, due))) = self.due.pop() else {
            return;
        };
        match due {
            Due::Ready(rank) => {
                let Some(replica) = self.replicas.get_mut(&rank) else {
                    return;
                };
                if replica.phase == Phase::Starting {
                    replica.phase = Phase::Ready;
                    if let Driver::Decider(watched) = &mut self.driver {
                        watched.ready(rank, seconds(self.now));
                    }
                }
            }
            Due::Ends(rank, arrived, took) => self.ended(rank, arrived, took),
        }
        self.dispatch();
    }

    fn ended(&mut self, rank: u32, arrived: u64, took: u64) {
        self.in_system -= 1;
        let latency_ms = seconds(self.now - arrived) * 1000.0;
        let bucket = |ms: f64| self.bounds.partition_point(|bound| *bound < ms);
        let (latency, service) = (bucket(latency_ms), bucket(seconds(took) * 1000.0));
        self.counters.latency[latency] += 1;
        self.counters.service[service] += 1;
        if arrived >= self.measured_from {
            self.figures.requests += 1;
            if latency_ms > f64::from(self.setting.objective.latency_ms) {
                self.figures.late += 1;
            }
        }
        if let Some(replica) = self.replicas.get_mut(&rank) {
            replica.busy -= 1;
            if replica.phase == Phase::Leaving && replica.busy == 0 {
                self.end_replica(rank);
            }
        }
    }

    fn end_replica(&mut self, rank: u32) {
        self.replicas.remove(&rank);
        if let Driver::Decider(watched) = &mut self.driver {
            watched.exited(rank, seconds(self.now));
        }
    }

    fn report(&mut self) {
        let now = seconds(self.now);
        let ready = self.replicas.values();
        let ready = ready.filter(|it| it.phase == Phase::Ready).count();
        let ready = u32::try_from(ready).unwrap_or(0);
        let counters = std::mem::take(&mut self.counters);
        let window = seconds(self.now - counters.since);
        let mut arrivals = counters.arrivals;
        arrivals.resize(usize::try_from(REPORT_S).unwrap_or(1), 0);
        let histogram = |counts: Vec<u64>| Histogram {
            bounds: self.bounds.clone(),
            counts,
        };
        let empty = vec![0; self.bounds.len() + 1];
        let report = Window {
            arrivals,
            concurrency: counters.busy_us / window,
            queued: u32::try_from(self.waiting.len()).unwrap_or(u32::MAX),
            latency_ms: histogram(counters.latency),
            service_ms: histogram(counters.service),
            ready,
        };
        self.counters = Counters {
            latency: empty.clone(),
            service: empty,
            since: self.now,
            ..Counters::default()
        };
        let wished = match &mut self.driver {
            Driver::Decider(watched) => {
                watched.measured(report, now);
                watched.decide(now).map(|scaled| scaled.replicas)
            }
            Driver::Oracle(targets) => {
                let index = usize::try_from(self.now / SECOND_US).unwrap_or(0);
                targets.get(index).copied()
            }
        };
        let Some(wished) = wished.filter(|wished| *wished != self.target) else {
            return;
        };
        if self.is_measured() {
            self.figures.changes += 1;
            if wished > self.target {
                self.figures.rises_s.push(now);
            }
        }
        self.scale(wished, self.start_us());
    }

    fn start_us(&self) -> u64 {
        micros(self.setting.start_s)
    }

    fn scale(&mut self, wished: u32, takes_us: u64) {
        self.target = wished;
        let before_s = if takes_us == 0 {
            self.setting.start_s
        } else {
            0.0
        };
        let now = seconds(self.now) - before_s;
        let staying = |it: &Replica| it.phase != Phase::Leaving;
        let count = self.replicas.values().filter(|it| staying(it)).count();
        let count = u32::try_from(count).unwrap_or(0);
        let create: Vec<u32> = (count..wished)
            .map(|index| self.next + index - count)
            .collect();
        // The youngest replicas leave first, since they may not be ready yet.
        let youngest = self.replicas.iter().rev().filter(|(_, it)| staying(it));
        let remove: Vec<u32> = youngest
            .take(count.saturating_sub(wished) as usize)
            .map(|(rank, _)| *rank)
            .collect();
        if let Driver::Decider(watched) = &mut self.driver {
            watched.placed(&create, &remove, now);
        }
        for rank in create {
            let replica = Replica {
                phase: Phase::Starting,
                busy: 0,
            };
            self.replicas.insert(rank, replica);
            self.due
                .push(Reverse((self.now + takes_us, Due::Ready(rank))));
            self.next = rank + 1;
        }
        for rank in remove {
            let Some(replica) = self.replicas.get_mut(&rank) else {
                continue;
            };
            replica.phase = Phase::Leaving;
            if replica.busy == 0 {
                self.end_replica(rank);
            }
        }
    }

    fn finish(mut self, trace: &Trace) -> Figures {
        // Waiting requests beyond the objective are late; the others are unknown.
        let objective = micros(f64::from(self.setting.objective.latency_ms) / 1000.0);
        let late = self.waiting.iter().filter(|at| **at + objective < self.now);
        let late = u64::try_from(late.count()).unwrap_or(0);
        self.figures.requests += late;
        self.figures.late += late;
        let measured_s = seconds(self.now.saturating_sub(self.measured_from));
        self.figures.seconds = measured_s;
        let rises = std::mem::take(&mut self.figures.rises_s);
        self.figures.reactions_s = trace
            .jumps
            .iter()
            .filter_map(|jump| {
                let jump = *jump as f64;
                let answer = rises.iter().find(|rise| **rise > jump)?;
                (answer - jump < 60.0).then_some(answer - jump)
            })
            .collect();
        if let Driver::Decider(watched) = self.driver {
            self.figures.log = watched.log().to_vec();
        }
        self.figures
    }
}

fn bounds() -> Vec<f64> {
    let all = std::iter::successors(Some(2.0), |bound| Some(bound * 1.2));
    all.take(Histogram::MOST_BOUNDS).collect()
}
