//! The autoscaler's side of a simulated service: its events and its decisions.

use dormouse_autoscaler::{Autoscaler, AutoscalerState};
use dormouse_messages::events::{
    Basis, ContainerExited, ContainerReady, Histogram, JobAdmitted, JobReleased, PlacedContainer,
    PlacementDecided, RemovedContainer, ServiceMeasured, ServiceScaled,
};
use dormouse_messages::job::{Containers, JobSpec, Kind};
use dormouse_messages::service::{LatencyObjective, Resize, Scaling, Service};
use dormouse_messages::{
    Decider as _, Envelope, Epoch, Event, Fold as _, GatewayId, Incarnation, JobId, NodeId, Rank,
    Recorded, Sequence, Timestamp, Writer,
};

const START_US: i64 = 1_815_000_000_000_000;

/// Returns the time `seconds` after the simulation's start.
#[must_use]
pub fn at(seconds: f64) -> Timestamp {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a simulation lasts hours, in microseconds far below 2^53"
    )]
    let micros = (seconds * 1e6) as i64;
    Timestamp::from_micros(START_US + micros)
}

/// One gateway's measurements in a window.
#[derive(Debug, Clone, Default)]
pub struct Window {
    /// Requests per second.
    pub arrivals: Vec<u32>,
    /// The mean number in the system.
    pub concurrency: f64,
    /// Waiting requests at the window's end.
    pub queued: u32,
    pub latency_ms: Histogram,
    pub service_ms: Histogram,
    pub ready: u32,
}

/// The promise of the service.
#[derive(Debug, Clone, Copy)]
pub struct Promise {
    pub scaling: Scaling,
    pub objective: LatencyObjective,
    pub containers: Containers,
    pub concurrency: u32,
}

/// The autoscaler with one service.
pub struct Watched {
    state: AutoscalerState,
    sequence: Sequence,
    job: JobId,
    gateway: GatewayId,
    node: NodeId,
    log: Vec<Recorded>,
}

impl Watched {
    /// Returns a service that is released at this time.
    ///
    /// # Panics
    /// Never: the names are valid.
    #[must_use]
    pub fn new(promise: &Promise, seconds: f64) -> Self {
        let valid = "valid names";
        let job: JobId = "serving/model".parse().expect(valid);
        let mut watched = Self {
            state: AutoscalerState::default(),
            sequence: Sequence(0),
            gateway: "g0".parse().expect(valid),
            node: "n0".parse().expect(valid),
            job: job.clone(),
            log: Vec::new(),
        };
        let admitted = JobAdmitted {
            job: job.clone(),
            spec: spec(promise),
            ingress_sequence: 1,
            by: None,
            basis: None,
        };
        watched.append(Writer::Admission, admitted, seconds);
        let released = JobReleased {
            job,
            turn: None,
            passed_over: Vec::new(),
            basis: None,
        };
        watched.append(Writer::Admission, released, seconds);
        watched
    }

    fn append(&mut self, writer: Writer, event: impl Into<Event>, seconds: f64) {
        self.sequence = self.sequence.next();
        let (id, now) = (self.sequence.to_string(), at(seconds));
        let recorded = Recorded {
            sequence: self.sequence,
            stored_at: now,
            writer,
            envelope: Envelope::new(id, writer, now, None, event.into()),
        };
        self.state.evolve(&recorded);
        self.log.push(recorded);
    }

    #[must_use]
    pub fn log(&self) -> &[Recorded] {
        &self.log
    }

    pub fn placed(&mut self, create: &[u32], remove: &[u32], seconds: f64) {
        let (job, node) = (&self.job, &self.node);
        let create = create.iter().map(|rank| PlacedContainer {
            job: job.clone(),
            incarnation: Incarnation(1),
            rank: Rank(*rank),
            node: node.clone(),
            gpus: Vec::new(),
            port: 0,
        });
        let remove = remove.iter().map(|rank| RemovedContainer {
            job: job.clone(),
            incarnation: Incarnation(1),
            rank: Rank(*rank),
            node: node.clone(),
        });
        let placed = PlacementDecided {
            epoch: Epoch(1),
            create: create.collect(),
            remove: remove.collect(),
            basis: None,
        };
        self.append(Writer::Placer, placed, seconds);
    }

    pub fn ready(&mut self, rank: u32, seconds: f64) {
        let event = ContainerReady {
            container: self.container(rank),
            node: self.node.clone(),
            after_ms: 0,
            token_blake3: None,
        };
        self.append(Writer::Node, event, seconds);
    }

    pub fn exited(&mut self, rank: u32, seconds: f64) {
        let event = ContainerExited {
            container: self.container(rank),
            node: self.node.clone(),
            exit_code: Some(0),
            signal: None,
            out_of_memory: false,
            reason: None,
            evicted: false,
        };
        self.append(Writer::Node, event, seconds);
    }

    fn container(&self, rank: u32) -> dormouse_messages::ids::ContainerId {
        dormouse_messages::ids::ContainerId {
            job: self.job.clone(),
            incarnation: Incarnation(1),
            rank: Rank(rank),
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "windows have a few seconds"
    )]
    pub fn measured(&mut self, window: Window, seconds: f64) {
        let event = ServiceMeasured {
            job: self.job.clone(),
            gateway: self.gateway.clone(),
            window_s: window.arrivals.len() as u32,
            requests: window.arrivals.iter().map(|it| u64::from(*it)).sum(),
            arrivals: window.arrivals,
            concurrency: window.concurrency,
            queued: window.queued,
            latency_ms: window.latency_ms,
            service_ms: window.service_ms,
            errors: 0,
            shed: 0,
            ready: window.ready,
            touched: 0,
            until: None,
            ingress_sequence: None,
            published_at: None,
            basis: None,
        };
        self.append(Writer::Gateway, event, seconds);
    }

    /// Decides, and appends a change to the log.
    pub fn decide(&mut self, seconds: f64) -> Option<ServiceScaled> {
        let decision = Autoscaler.decide(&self.state, at(seconds));
        let mut proposal = decision.proposals.into_iter().next()?;
        proposal.event.set_basis(Some(Basis {
            asof: self.sequence,
            now: at(seconds),
            causes: proposal.causes,
            build: "simulated".to_owned(),
            ..Basis::default()
        }));
        let Event::ServiceScaled(scaled) = &proposal.event else {
            return None;
        };
        let scaled = (**scaled).clone();
        self.append(Writer::Autoscaler, proposal.event, seconds);
        Some(scaled)
    }
}

fn spec(promise: &Promise) -> JobSpec {
    JobSpec {
        name: "model".to_owned(),
        tenant: "serving".to_owned(),
        kind: Kind::Inference,
        weight: 1,
        containers: promise.containers,
        resize: Resize::in_place(),
        service: Some(Service {
            objective: Some(promise.objective),
            scaling: promise.scaling,
            concurrency: promise.concurrency,
            ..Service::default()
        }),
        ..JobSpec::default()
    }
}
