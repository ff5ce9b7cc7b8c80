//! DynamoML's clients in a closed loop, on replicas that need 4 ms per request (CLOSER 2021, alone on an
//! unbounded cluster).

use dormouse_messages::events::Histogram;
use dormouse_messages::job::Containers;
use dormouse_messages::service::{LatencyObjective, Percentile, Scaling};

use super::traces::DYNAMOML_CLIENTS;
use super::watched::{Promise, Watched, Window};

const WORK_MS: f64 = 4.0;

const OBJECTIVE_MS: u32 = 128;

/// Seconds at the first number of clients, which are not counted.
const WARM_UP_S: u32 = 600;

/// The result of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ClosedFigures {
    /// Counted from the decision.
    pub replica_minutes: f64,
    pub late_s: u32,
    pub longest_ms: f64,
    pub changes: u32,
}

/// The rule that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosedRule {
    Scaling(Scaling),
    /// The published rule: ⌈(clients + 60) ÷ 32⌉ every 15 s.
    Published,
}

struct Closed {
    rule: ClosedRule,
    start_s: u32,
    max: u32,
    watched: Watched,
    starting: Vec<(u32, u32)>,
    ready: Vec<u32>,
    next: u32,
    /// Clients and response time of each second since the last report.
    window: Vec<(f64, f64)>,
    figures: ClosedFigures,
}

/// Runs the 28 minutes with 1 to `max` replicas that start in `start_s`.
#[must_use]
pub fn dynamoml(rule: ClosedRule, start_s: u32, max: u32) -> ClosedFigures {
    let mut closed = Closed::new(rule, start_s, max);
    let end = WARM_UP_S + 60 * u32::try_from(DYNAMOML_CLIENTS.len()).unwrap_or(0);
    for second in 0..end {
        let minute = second.saturating_sub(WARM_UP_S) / 60;
        let clients = f64::from(DYNAMOML_CLIENTS[minute as usize]);
        closed.serve(second, clients);
        if let Some(wished) = closed.wished(second, clients) {
            closed.scale(second, wished);
        }
    }
    closed.figures
}

impl Closed {
    fn new(rule: ClosedRule, start_s: u32, max: u32) -> Self {
        let scaling = match rule {
            ClosedRule::Scaling(scaling) => scaling,
            ClosedRule::Published => Scaling::default(),
        };
        let promise = Promise {
            scaling,
            objective: LatencyObjective {
                latency_ms: OBJECTIVE_MS,
                percentile: Percentile::from(99.99),
            },
            containers: Containers::between(1, max),
            concurrency: 1,
        };
        let released_s = -f64::from(start_s);
        let mut watched = Watched::new(&promise, released_s);
        watched.placed(&[0], &[], released_s);
        watched.ready(0, 0.0);
        Self {
            rule,
            start_s,
            max,
            watched,
            starting: Vec::new(),
            ready: vec![0],
            next: 1,
            window: Vec::new(),
            figures: ClosedFigures::default(),
        }
    }

    fn replicas(&self) -> f64 {
        count(&self.ready) + count(&self.starting)
    }

    fn serve(&mut self, second: u32, clients: f64) {
        let (done, rest) = self.starting.iter().partition(|(at, _)| *at <= second);
        self.starting = rest;
        let done: Vec<(u32, u32)> = done;
        for (_, rank) in done {
            self.watched.ready(rank, f64::from(second));
            self.ready.push(rank);
        }
        let latency_ms = WORK_MS * (clients / count(&self.ready)).max(1.0);
        if second >= WARM_UP_S {
            let late = latency_ms > f64::from(OBJECTIVE_MS) + 1e-6;
            self.figures.replica_minutes += self.replicas() / 60.0;
            self.figures.late_s += u32::from(late);
            self.figures.longest_ms = self.figures.longest_ms.max(latency_ms);
        }
        self.window.push((clients, latency_ms));
    }

    fn wished(&mut self, second: u32, clients: f64) -> Option<f64> {
        let now = f64::from(second + 1);
        let is_report = self.window.len() == 2;
        if is_report {
            let report = report(&std::mem::take(&mut self.window), count(&self.ready));
            self.watched.measured(report, now);
        }
        let wished = match self.rule {
            ClosedRule::Published if second.is_multiple_of(15) => {
                Some(((clients + 60.0) / 32.0).ceil())
            }
            ClosedRule::Scaling(_) if is_report => {
                let scaled = self.watched.decide(now)?;
                Some(f64::from(scaled.replicas))
            }
            ClosedRule::Published | ClosedRule::Scaling(_) => None,
        };
        let wished = wished?.clamp(1.0, f64::from(self.max));
        ((wished - self.replicas()).abs() > 0.5).then_some(wished)
    }

    fn scale(&mut self, second: u32, wished: f64) {
        let now = f64::from(second + 1);
        self.figures.changes += u32::from(second >= WARM_UP_S);
        let (mut create, mut remove) = (Vec::new(), Vec::new());
        while self.replicas() < wished {
            self.starting.push((second + 1 + self.start_s, self.next));
            create.push(self.next);
            self.next += 1;
        }
        while self.replicas() > wished {
            let youngest = self.starting.pop().map(|(_, rank)| rank);
            remove.extend(youngest.or_else(|| self.ready.pop()));
        }
        self.watched.placed(&create, &remove, now);
        for rank in remove {
            self.watched.exited(rank, now);
        }
    }
}

fn count<T>(of: &[T]) -> f64 {
    f64::from(u32::try_from(of.len()).unwrap_or(u32::MAX))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a few thousand requests a second"
)]
fn report(window: &[(f64, f64)], replicas: f64) -> Window {
    let rates = window.iter().map(|(clients, ms)| clients / ms * 1000.0);
    let arrivals: Vec<u32> = rates.map(|rate| rate.round() as u32).collect();
    let total: u64 = arrivals.iter().map(|it| u64::from(*it)).sum();
    let clients = window.last().map_or(0.0, |(clients, _)| *clients);
    let one = |ms: f64| Histogram {
        bounds: vec![ms * 0.99, ms * 1.01],
        counts: vec![0, total, 0],
    };
    Window {
        arrivals,
        concurrency: window.iter().map(|(clients, _)| clients).sum::<f64>() / count(window),
        queued: (clients - replicas).max(0.0) as u32,
        latency_ms: one(window.last().map_or(1.0, |(_, ms)| *ms)),
        service_ms: one(WORK_MS),
        ready: replicas as u32,
    }
}
