//! Models the clients of services and their gateway, one second at a time.
//!
//! 1. Ready replicas answer until they are asked to leave.
//! 2. In a *closed loop* each of N clients asks again when answered, so that k replicas answer after
//!    work · max(1, N ÷ k). At a *rate*, requests beyond the replicas' speed queue up: a deterministic
//!    fluid. [`Requests`] come one by one.
//! 3. Every [`REPORT_S`] seconds the gateway reports (`service.measured`).

use std::collections::BTreeMap;

use dormouse_messages::events::{Histogram, ServiceMeasured};
use dormouse_messages::{
    Event, GatewayId, Incarnation, Incarnations, JobId, NodeId, Rank, Recorded, Timestamp,
};

use super::incarnation::after;
use super::requests::Requests;

/// Seconds between a gateway's reports while traffic changes.
pub(super) const REPORT_S: usize = 2;

const GATEWAY: &str = "g0";

/// The arrival process of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asking {
    /// The table counts clients that ask again as soon as they are answered.
    ClosedLoop,
    /// The table counts requests per second.
    Rate,
}

/// The clients of a service.
#[derive(Debug, Clone, PartialEq)]
pub struct Clients {
    pub asking: Asking,
    /// One number per `every_s`; the last one holds from then on.
    pub table: Vec<f64>,
    pub every_s: f64,
    /// Milliseconds of a replica's work per request, one request at a time.
    pub work_ms: f64,
}

impl Clients {
    /// Returns the duration of the table in seconds.
    #[must_use]
    pub fn lasts_s(&self) -> f64 {
        let numbers = u32::try_from(self.table.len()).unwrap_or(u32::MAX);
        self.every_s * f64::from(numbers)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index that saturates"
    )]
    fn number(&self, at_s: f64) -> f64 {
        let index = (at_s / self.every_s) as usize;
        let number = self.table.get(index).or(self.table.last());
        number.copied().unwrap_or(0.0)
    }
}

/// The clients' view of a service in one second.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub job: JobId,
    pub at: Timestamp,
    /// The table's value.
    pub number: f64,
    pub ready: u32,
    /// Milliseconds until an answer; `None` without replicas.
    pub latency_ms: Option<f64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Second {
    requests: f64,
    latency_ms: Option<f64>,
    concurrency: f64,
    queued: f64,
}

pub(super) type Replica = (Incarnation, Rank);

/// A gateway's measurements in a window.
#[derive(Debug, Clone, Default)]
pub(super) struct Window {
    pub arrivals: Vec<u32>,
    pub concurrency: f64,
    pub queued: u32,
    pub latency_ms: Histogram,
    pub service_ms: Histogram,
}

#[derive(Debug, Clone)]
pub(super) struct Fluid {
    clients: Clients,
    /// Waiting requests, at a rate.
    backlog: f64,
    window: Vec<Second>,
}

#[derive(Debug, Clone)]
pub(super) enum Load {
    Fluid(Fluid),
    Requests(Box<Requests>),
}

#[derive(Debug, Clone)]
struct Service {
    load: Load,
    begins: Timestamp,
    next_s: u32,
    ready: BTreeMap<Replica, NodeId>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Served {
    services: BTreeMap<JobId, Service>,
    samples: Vec<Sample>,
}

impl Served {
    pub fn add(&mut self, job: JobId, load: Load, begins: Timestamp) {
        let service = Service {
            load,
            begins,
            next_s: 0,
            ready: BTreeMap::new(),
        };
        self.services.insert(job, service);
    }

    pub fn take_samples(&mut self) -> Vec<Sample> {
        std::mem::take(&mut self.samples)
    }

    pub fn next_due(&self) -> Option<Timestamp> {
        self.services.values().map(Service::next).min()
    }

    /// Step 1.
    pub fn fold(&mut self, recorded: &Recorded, now: Timestamp, agents: &Incarnations) {
        for service in self.services.values_mut() {
            service.pass_to(now);
        }
        match recorded.event() {
            Some(Event::ContainerReady(event)) => {
                if let Some(service) = self.services.get_mut(&event.container.job) {
                    let replica = (event.container.incarnation, event.container.rank);
                    service.ready.insert(replica, event.node.clone());
                }
            }
            Some(Event::PartitionResizeRequested(event)) => {
                for rank in &event.leave {
                    self.leaves(&event.job, (event.incarnation, *rank));
                }
            }
            Some(Event::ContainerUnready(event)) => {
                self.leaves(
                    &event.container.job,
                    (event.container.incarnation, event.container.rank),
                );
            }
            Some(Event::ContainerExited(event)) => {
                self.leaves(
                    &event.container.job,
                    (event.container.incarnation, event.container.rank),
                );
            }
            Some(Event::NodeLost(event)) if agents.ends(&event.node, event.incarnation) => {
                self.lost(&event.node);
            }
            Some(Event::NodeFenced(event)) if agents.ends(&event.node, event.incarnation) => {
                self.lost(&event.node);
            }
            Some(Event::JobFailed(event)) => drop(self.services.remove(&event.job)),
            Some(Event::JobCancelled(event)) => drop(self.services.remove(&event.job)),
            Some(Event::JobCompleted(event)) => drop(self.services.remove(&event.job)),
            _ => {}
        }
    }

    fn leaves(&mut self, job: &JobId, replica: Replica) {
        if let Some(service) = self.services.get_mut(job) {
            service.ready.remove(&replica);
        }
    }

    fn lost(&mut self, node: &NodeId) {
        for service in self.services.values_mut() {
            service.ready.retain(|_, at| at != node);
        }
    }

    /// Steps 2 and 3 for the seconds that begin by `now`; returns the gateway's reports.
    pub fn due(&mut self, now: Timestamp) -> Vec<Event> {
        let mut events = Vec::new();
        for (job, service) in &mut self.services {
            while service.next() <= now {
                let (at, second) = (service.next(), service.next_s);
                service.pass_to(at);
                service.next_s += 1;
                let ready = u32::try_from(service.ready.len()).unwrap_or(u32::MAX);
                let window = match &mut service.load {
                    Load::Fluid(fluid) => {
                        let (number, latency_ms) = fluid.pass(second, ready);
                        self.samples.push(Sample {
                            job: job.clone(),
                            at,
                            number,
                            ready,
                            latency_ms,
                        });
                        fluid.report()
                    }
                    Load::Requests(requests) => {
                        let is_end = second > 0 && (second as usize).is_multiple_of(REPORT_S);
                        is_end.then(|| requests.report())
                    }
                };
                events.extend(window.map(|window| window.measured(job, ready)));
            }
        }
        events
    }
}

impl Service {
    fn next(&self) -> Timestamp {
        after(self.begins, f64::from(self.next_s))
    }

    fn pass_to(&mut self, now: Timestamp) {
        if let Load::Requests(requests) = &mut self.load {
            requests.pass_to(now.micros_since(self.begins), &self.ready);
        }
    }
}

impl Load {
    pub fn fluid(clients: Clients) -> Self {
        Self::Fluid(Fluid {
            clients,
            backlog: 0.0,
            window: Vec::new(),
        })
    }
}

impl Fluid {
    /// Returns the table's value and the response time.
    fn pass(&mut self, second: u32, ready: u32) -> (f64, Option<f64>) {
        let number = self.clients.number(f64::from(second));
        let work_ms = self.clients.work_ms;
        let able = f64::from(ready) * 1000.0 / work_ms;
        let second = match self.clients.asking {
            _ if ready == 0 => self.unanswered(number),
            Asking::ClosedLoop => {
                let latency_ms = work_ms * (number / f64::from(ready)).max(1.0);
                Second {
                    requests: number / latency_ms * 1000.0,
                    latency_ms: Some(latency_ms),
                    concurrency: number,
                    queued: (number - f64::from(ready)).max(0.0),
                }
            }
            Asking::Rate => {
                // The mean queue over the second.
                let before = self.backlog;
                self.backlog = (before + number - able).max(0.0);
                let waits = before.midpoint(self.backlog);
                Second {
                    requests: number,
                    latency_ms: Some(work_ms + waits / able * 1000.0),
                    concurrency: waits + number.min(able) * work_ms / 1000.0,
                    queued: self.backlog,
                }
            }
        };
        self.window.push(second);
        (number, second.latency_ms)
    }

    fn unanswered(&mut self, number: f64) -> Second {
        let requests = match self.clients.asking {
            Asking::ClosedLoop => 0.0,
            Asking::Rate => number,
        };
        self.backlog += requests;
        let waiting = self.backlog.max(number);
        Second {
            requests,
            latency_ms: None,
            concurrency: waiting,
            queued: waiting,
        }
    }

    fn report(&mut self) -> Option<Window> {
        if self.window.len() < REPORT_S {
            return None;
        }
        let window = std::mem::take(&mut self.window);
        let latencies = window
            .iter()
            .filter_map(|it| Some((it.latency_ms?, it.requests)));
        let answered: Vec<(f64, f64)> = latencies.collect();
        let worked = answered
            .iter()
            .map(|(_, count)| (self.clients.work_ms, *count));
        Some(Window {
            arrivals: window.iter().map(|it| whole(it.requests)).collect(),
            concurrency: window.iter().map(|it| it.concurrency).sum::<f64>() / 2.0,
            queued: window.last().map_or(0, |it| whole(it.queued)),
            service_ms: histogram(worked.collect()),
            latency_ms: histogram(answered),
        })
    }
}

impl Window {
    fn measured(self, job: &JobId, ready: u32) -> Event {
        Event::from(ServiceMeasured {
            job: job.clone(),
            gateway: gateway(),
            window_s: u32::try_from(self.arrivals.len()).unwrap_or(u32::MAX),
            requests: self.arrivals.iter().map(|it| u64::from(*it)).sum(),
            arrivals: self.arrivals,
            concurrency: self.concurrency,
            queued: self.queued,
            latency_ms: self.latency_ms,
            service_ms: self.service_ms,
            errors: 0,
            shed: 0,
            ready,
            touched: 0,
            until: None,
            ingress_sequence: None,
            published_at: None,
            basis: None,
        })
    }
}

fn gateway() -> GatewayId {
    GATEWAY.parse().expect("a valid name")
}

/// Builds narrow buckets around the few distinct values.
fn histogram(mut values: Vec<(f64, f64)>) -> Histogram {
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    values.dedup_by(|later, first| {
        let same = (later.0 - first.0).abs() <= first.0 * 0.03;
        if same {
            first.1 += later.1;
        }
        same
    });
    let mut histogram = Histogram::default();
    for (value, count) in values {
        histogram.bounds.extend([value * 0.99, value * 1.01]);
        histogram.counts.extend([0, u64::from(whole(count))]);
    }
    histogram.counts.push(0);
    histogram
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a few thousand requests a second; it saturates"
)]
fn whole(value: f64) -> u32 {
    value.round() as u32
}
