//! Services, targets, replicas and client load.
//!
//! Gateways and tenants' proxies (through admission) measure. Impossible measurements are ignored and
//! flagged: no window, invalid numbers or histograms, a future time, a repeated window.

use std::collections::BTreeMap;

use dormouse_messages::events::{JobAdmitted, ServiceMeasured, ServiceScaled};
use dormouse_messages::job::{Containers, Kind};
use dormouse_messages::service::Service as Promise;
use dormouse_messages::{
    Event, Fact, Fold, Incarnations, JobId, LogClock, NodeId, PlacementAuthority, Recorded,
    Sequence, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::folded;
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

    fn of_notebook(&mut self, event: &Event, fact: &Fact<'_>) {
        let (sequence, at) = (fact.sequence, fact.at);
        match event {
            Event::ContainerReady(event) => self.used = Some(Used::ready(event, at)),
            Event::ContainerExited(event) => {
                let left =
                    |used: &mut Used| used.is(event.container.incarnation, event.container.rank);
                self.used.take_if(left);
            }
            Event::NotebookObserved(event) => {
                if let Some(used) = &mut self.used {
                    used.observed(event, sequence, at);
                }
            }
            Event::NotebookWarned(event) => {
                if let Some(used) = &mut self.used {
                    used.warned(event, sequence);
                }
            }
            _ => {}
        }
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
    pub lives: Incarnations,
    pub authority: PlacementAuthority,
    pub clock: LogClock,
}

impl AutoscalerState {
    fn lost(&mut self, node: &NodeId, incarnation: u64) {
        if !self.lives.ends(node, incarnation) {
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
    const VERSION: u32 = 9;

    fn evolve(&mut self, recorded: &Recorded) {
        let fact = self.clock.read(recorded);
        let Some(event) = fact.event() else {
            return;
        };
        if !self.authority.validates(event) || !folded::is_taken_in(event) {
            return;
        }
        match event {
            Event::JobAdmitted(event) => {
                if let Some(service) = Service::admitted(event, recorded.sequence) {
                    self.services.insert(event.job.clone(), service);
                }
            }
            _ if self.services.is_empty() => {}
            Event::JobReleased(event) => {
                if let Some(service) = self.service(&event.job) {
                    service.released = Some(recorded.sequence);
                }
            }
            Event::JobRevised(event) => {
                if let Some(service) = self.service(&event.job) {
                    service.containers = event.containers.unwrap_or(service.containers);
                }
            }
            Event::JobCancelRequested(event) => {
                if let Some(service) = self.service(&event.job) {
                    service.ends = true;
                }
            }
            Event::JobCompleted(event) => {
                self.services.remove(&event.job);
            }
            Event::JobFailed(event) => {
                self.services.remove(&event.job);
            }
            Event::JobCancelled(event) => {
                self.services.remove(&event.job);
            }
            Event::ServiceScaled(event) => {
                if let Some(service) = self.service(&event.job) {
                    service.scaled(event, &fact);
                }
            }
            Event::ServiceMeasured(event) => {
                if let Some(service) = self.service(&event.job) {
                    service.measured(event, &fact);
                }
            }
            _ => {
                self.evolve_notebooks(event, &fact);
                self.evolve_replicas(event, fact.at);
            }
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
    fn evolve_notebooks(&mut self, event: &Event, fact: &Fact<'_>) {
        let job = match event {
            Event::ContainerReady(event) => &event.container.job,
            Event::ContainerExited(event) => &event.container.job,
            Event::NotebookObserved(event) => &event.container.job,
            Event::NotebookWarned(event) => &event.job,
            _ => return,
        };
        let service = self.service(job);
        if let Some(notebook) = service.filter(|it| it.kind == Kind::Notebook) {
            notebook.of_notebook(event, fact);
        }
    }

    fn evolve_replicas(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::PlacementDecided(event) => {
                for (job, service) in &mut self.services {
                    service.replicas.placed(job, event, at);
                }
            }
            Event::PartitionResizeRequested(event) => {
                if let Some(service) = self.service(&event.job) {
                    service.replicas.resizing(event);
                }
            }
            Event::ContainerReady(event) => {
                if let Some(service) = self.service(&event.container.job) {
                    service.warm_at = at.plus_ms(WARM_UP_MS);
                    service
                        .replicas
                        .ready(event.container.incarnation, event.container.rank, at);
                }
            }
            Event::ContainerUnready(event) => {
                if let Some(service) = self.service(&event.container.job) {
                    service
                        .replicas
                        .unready(event.container.incarnation, event.container.rank);
                }
            }
            Event::ContainerExited(event) => {
                if let Some(service) = self.service(&event.container.job) {
                    service
                        .replicas
                        .exited(event.container.incarnation, event.container.rank);
                }
            }
            Event::PartitionStopped(event) => {
                if let Some(service) = self.service(&event.job) {
                    service.replicas.stopped(event.incarnation);
                }
            }
            Event::NodeJoined(_) => self.lives.evolve(event),
            Event::NodeLost(event) => self.lost(&event.node, event.incarnation),
            Event::NodeFenced(event) => self.lost(&event.node, event.incarnation),
            _ => {}
        }
    }
}
