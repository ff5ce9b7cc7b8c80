//! Services, targets, replicas and client load.
//!
//! Gateways and tenants' proxies (through admission) measure. Impossible measurements are ignored and
//! flagged: no window, invalid numbers or histograms, a future time, a repeated window.

use std::collections::BTreeMap;

use dormouse_messages::events::{
    AdmissionEvent, AutoscalerEvent, ByWriter, CheckpointerEvent, GatewayEvent, JobAdmitted,
    NodeEvent, PlacerEvent, ServiceMeasured, ServiceScaled,
};
use dormouse_messages::job::{Containers, Kind};
use dormouse_messages::service::Service as Promise;
use dormouse_messages::{
    Event, Fact, Fold, Incarnations, JobId, LogClock, NodeId, PlacementAuthority, Recorded,
    Sequence, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::history::History;
use crate::notebooks::Used;
use crate::replicas::Replicas;
use crate::times::ServiceTimes;

/// Slow first requests are excluded from service times.
const WARM_UP_MS: u64 = 5_000;

/// The newest decision about a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scaled {
    pub sequence: Sequence,
    pub at: Timestamp,
    /// `containers.max` cannot keep the objective.
    pub saturated: bool,
}

/// A service or notebook.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Service {
    pub kind: Kind,
    pub containers: Containers,
    pub promise: Promise,
    pub admitted: Sequence,
    pub released: Option<Sequence>,
    pub ends: bool,
    pub target: u32,
    pub scaled: Option<Scaled>,
    pub replicas: Replicas,
    pub history: History,
    pub times: ServiceTimes,
    pub measured: Option<Sequence>,
    pub used: Option<Used>,
    warm_at: Timestamp,
}

impl Service {
    fn admitted(event: &JobAdmitted, sequence: Sequence) -> Option<Self> {
        let promise = event.spec.service.clone();
        let promise = promise.filter(|_| event.spec.kind.is_served())?;
        Some(Self {
            kind: event.spec.kind,
            containers: event.spec.containers,
            promise,
            admitted: sequence,
            released: None,
            ends: false,
            target: event.spec.containers.min,
            scaled: None,
            replicas: Replicas::default(),
            history: History::default(),
            times: ServiceTimes::default(),
            measured: None,
            used: None,
            warm_at: Timestamp::default(),
        })
    }

    /// Reports whether the service is decided here.
    #[must_use]
    pub fn is_scaled(&self) -> bool {
        self.released.is_some() && !self.ends
    }

    fn scaled(&mut self, event: &ServiceScaled, fact: &Fact<'_>) {
        if event.replicas > self.target {
            self.replicas.wished(fact.at);
        }
        self.target = event.replicas;
        self.scaled = Some(Scaled {
            sequence: fact.sequence,
            at: fact.at,
            saturated: event.saturated,
        });
    }

    fn measured(&mut self, event: &ServiceMeasured, fact: &Fact<'_>) {
        let Ok(until) = event.ended_s(fact) else {
            return;
        };
        let at = fact.at;
        if let Some(used) = &mut self.used {
            used.measured(event, at);
        }
        let late = self.late(event);
        let ready = self.replicas.ready_count();
        if !self.history.add(event, until, late, ready) {
            return;
        }
        self.measured = Some(fact.sequence);
        if at >= self.warm_at || !self.times.is_known() {
            self.times.add(&event.service_ms, until);
        }
    }

    /// Explains why a measurement is ignored.
    fn rejects(&self, event: &ServiceMeasured, fact: &Fact<'_>) -> Option<String> {
        match event.ended_s(fact) {
            Ok(until) => self.history.rejects(event, until),
            Err(what) => Some(what),
        }
    }

    /// Counts late and missing answers.
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of a window lie far below 2^53"
    )]
    fn late(&self, event: &ServiceMeasured) -> f64 {
        let Some(objective) = self.promise.objective else {
            return 0.0;
        };
        let total = event.latency_ms.total() as f64;
        let in_time = event.latency_ms.at_most(f64::from(objective.latency_ms));
        (total - in_time).max(0.0)
    }
}

/// The autoscaler's folded state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AutoscalerState {
    /// Admitted and not ended.
    pub services: BTreeMap<JobId, Service>,
    /// The agents' current incarnations.
    pub incarnations: Incarnations,
    pub authority: PlacementAuthority,
    pub clock: LogClock,
}

impl AutoscalerState {
    fn lost(&mut self, node: &NodeId, incarnation: u64) {
        if !self.incarnations.ends(node, incarnation) {
            return;
        }
        for service in self.services.values_mut() {
            service.replicas.lost(node);
        }
    }

    fn service(&mut self, job: &JobId) -> Option<&mut Service> {
        self.services.get_mut(job)
    }
}

impl Fold for AutoscalerState {
    const NAME: &'static str = "autoscaler";
    const VERSION: u32 = 11;

    fn evolve(&mut self, recorded: &Recorded) {
        let fact = self.clock.read(recorded);
        let Some(event) = fact.event() else {
            return;
        };
        if !self.authority.validates(event) {
            return;
        }
        match event.by_writer() {
            ByWriter::Admission(event) => self.evolve_admission(event, fact.sequence),
            ByWriter::Checkpointer(event) => self.evolve_checkpointer(event),
            ByWriter::Node(event) => self.evolve_node(event, &fact),
            ByWriter::Autoscaler(event) => self.evolve_own(event, &fact),
            ByWriter::Placer(PlacerEvent::PlacementDecided(event)) => {
                for (job, service) in &mut self.services {
                    service.replicas.placed(job, event, fact.at);
                }
            }
            ByWriter::Placer(PlacerEvent::NodeLost(event)) => {
                self.lost(&event.node, event.incarnation);
            }
            ByWriter::Gateway(GatewayEvent::ServiceMeasured(event)) => {
                if let Some(service) = self.service(&event.job) {
                    service.measured(event, &fact);
                }
            }
            ByWriter::Operator(_)
            | ByWriter::Optimizer(_)
            | ByWriter::Archiver(_)
            | ByWriter::Slurm(_)
            | ByWriter::Placer(
                PlacerEvent::PlacementRefused(_)
                | PlacerEvent::NodeRecovered(_)
                | PlacerEvent::NodeQuarantined(_)
                | PlacerEvent::NodeReadmitted(_)
                | PlacerEvent::ClockStepped(_)
                | PlacerEvent::GatewayLost(_)
                | PlacerEvent::BuildJoined(_)
                | PlacerEvent::BuildLeft(_)
                | PlacerEvent::ClusterUpgraded(_),
            )
            | ByWriter::Gateway(
                GatewayEvent::GatewayJoined(_)
                | GatewayEvent::GatewayLeft(_)
                | GatewayEvent::GatewayUnrouted(_),
            ) => {}
        }
    }

    fn rejects(&self, recorded: &Recorded) -> Option<String> {
        let event = recorded.event()?;
        let doubted = self.authority.rejects(event);
        let Event::ServiceMeasured(measured) = event else {
            return doubted;
        };
        doubted.or_else(|| {
            // Ended services are measured to the last request.
            let service = self.services.get(&measured.job)?;
            let what = service.rejects(measured, &self.clock.peek(recorded))?;
            Some(format!("a measurement of {}: {what}", measured.job))
        })
    }

    fn log_time(&self) -> Option<Timestamp> {
        Some(self.clock.now())
    }

    fn check_invariants(&self) -> Result<(), String> {
        for (job, service) in &self.services {
            if !service.history.is_bounded() || !service.replicas.is_bounded() {
                return Err(format!("{job} keeps more than it may"));
            }
            let times = service.times.times();
            if times.is_some_and(|times| !times.mean_s.is_finite() || times.mean_s <= 0.0) {
                return Err(format!("{job} has a service time that is none"));
            }
        }
        Ok(())
    }
}

impl AutoscalerState {
    fn evolve_admission(&mut self, event: AdmissionEvent<'_>, sequence: Sequence) {
        match event {
            AdmissionEvent::JobAdmitted(event) => {
                if let Some(service) = Service::admitted(event, sequence) {
                    self.services.insert(event.job.clone(), service);
                }
            }
            AdmissionEvent::JobReleased(event) => {
                if let Some(service) = self.service(&event.job) {
                    service.released = Some(sequence);
                }
            }
            AdmissionEvent::JobRevised(event) => {
                if let Some(service) = self.service(&event.job) {
                    service.containers = event.containers.unwrap_or(service.containers);
                }
            }
            AdmissionEvent::JobCancelRequested(event) => {
                if let Some(service) = self.service(&event.job) {
                    service.ends = true;
                }
            }
            AdmissionEvent::SubmissionReceived(_)
            | AdmissionEvent::JobRefused(_)
            | AdmissionEvent::JobRequeued(_)
            | AdmissionEvent::BudgetLevelChanged(_)
            | AdmissionEvent::ReservationPhaseChanged(_)
            | AdmissionEvent::SubmissionsRateLimited(_)
            | AdmissionEvent::PlanAccepted(_)
            | AdmissionEvent::PlanMissed(_) => {}
        }
    }

    fn evolve_checkpointer(&mut self, event: CheckpointerEvent<'_>) {
        match event {
            CheckpointerEvent::JobCompleted(event) => drop(self.services.remove(&event.job)),
            CheckpointerEvent::JobFailed(event) => drop(self.services.remove(&event.job)),
            CheckpointerEvent::JobCancelled(event) => drop(self.services.remove(&event.job)),
            CheckpointerEvent::PartitionResizeRequested(event) => {
                if let Some(service) = self.service(&event.job) {
                    service.replicas.resizing(event);
                }
            }
            CheckpointerEvent::PartitionStopped(event) => {
                if let Some(service) = self.service(&event.job) {
                    service.replicas.stopped(event.incarnation);
                }
            }
            CheckpointerEvent::CheckpointRequested(_)
            | CheckpointerEvent::PartitionStartRequested(_)
            | CheckpointerEvent::PartitionStopRequested(_)
            | CheckpointerEvent::PartitionStarted(_)
            | CheckpointerEvent::ResizeAbandoned(_)
            | CheckpointerEvent::TasksAssigned(_)
            | CheckpointerEvent::PartitionLeaveRequested(_)
            | CheckpointerEvent::PartitionResized(_)
            | CheckpointerEvent::PartitionWarned(_) => {}
        }
    }

    fn evolve_node(&mut self, event: NodeEvent<'_>, fact: &Fact<'_>) {
        let at = fact.at;
        match event {
            NodeEvent::NodeJoined(event) => {
                self.incarnations.joined(&event.node, event.incarnation);
            }
            NodeEvent::NodeFenced(event) => self.lost(&event.node, event.incarnation),
            NodeEvent::ContainerReady(event) => {
                let id = &event.container;
                if let Some(service) = self.service(&id.job) {
                    if service.kind == Kind::Notebook {
                        service.used = Some(Used::ready(event, at));
                    }
                    service.warm_at = at.plus_ms(WARM_UP_MS);
                    service.replicas.ready(id.incarnation, id.rank, at);
                }
            }
            NodeEvent::ContainerUnready(event) => {
                let id = &event.container;
                if let Some(service) = self.service(&id.job) {
                    service.replicas.unready(id.incarnation, id.rank);
                }
            }
            NodeEvent::ContainerExited(event) => {
                let id = &event.container;
                if let Some(service) = self.service(&id.job) {
                    service
                        .used
                        .take_if(|used| used.is(id.incarnation, id.rank));
                    service.replicas.exited(id.incarnation, id.rank);
                }
            }
            NodeEvent::NotebookObserved(event) => {
                let service = self.service(&event.container.job);
                if let Some(used) = service.and_then(|it| it.used.as_mut()) {
                    used.observed(event, fact.sequence, at);
                }
            }
            NodeEvent::ContainerStarted(_)
            | NodeEvent::CheckpointSaved(_)
            | NodeEvent::CheckpointFailed(_)
            | NodeEvent::Progress(_)
            | NodeEvent::TasksEnded(_)
            | NodeEvent::CheckpointRejected(_)
            | NodeEvent::NodeFaulted(_)
            | NodeEvent::MemberAcknowledged(_)
            | NodeEvent::ContainerExecStarted(_)
            | NodeEvent::ContainerExecEnded(_)
            | NodeEvent::ContainerGpuUsed(_)
            | NodeEvent::NodeGpuReconciled(_) => {}
        }
    }

    fn evolve_own(&mut self, event: AutoscalerEvent<'_>, fact: &Fact<'_>) {
        match event {
            AutoscalerEvent::ServiceScaled(event) => {
                if let Some(service) = self.service(&event.job) {
                    service.scaled(event, fact);
                }
            }
            AutoscalerEvent::NotebookWarned(event) => {
                let service = self.service(&event.job);
                if let Some(used) = service.and_then(|it| it.used.as_mut()) {
                    used.warned(event, fact.sequence);
                }
            }
        }
    }
}
