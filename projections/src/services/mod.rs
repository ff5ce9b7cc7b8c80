//! The state of services, as clients see it; notebooks have no objective and are not included.
//!
//! 1. A plausible, new `service.measured` adds to the sums of its ten seconds and of the whole run
//!    (`service.rs`, [`sums`]).
//! 2. Agents report ready replicas, the autoscaler target and saturation (`replicas.rs`).
//! 3. Completed ten seconds become points of [`Lines`] (`lines.rs`).
//! 4. [`health`] describes all.

pub mod health;
mod lines;
mod replicas;
mod service;
pub mod sums;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use dormouse_messages::events::ServiceMeasured;
use dormouse_messages::{Event, Fact, GatewayId, JobId, NodeId, Timestamp};
use serde::{Deserialize, Serialize};

pub use lines::Lines;
pub use service::{Recent, Service};

use crate::steps::Steps;
use crate::timelines::Metric;
use dormouse_state::{ClusterState, SharedMap};

const ENDED_SERVICES: usize = 500;

/// The services.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Services {
    services: SharedMap<JobId, Service>,
    lines: BTreeMap<JobId, Lines>,
    ended: VecDeque<JobId>,
}

impl Services {
    /// Returns a service.
    #[must_use]
    pub fn get(&self, job: &JobId) -> Option<&Service> {
        self.services.get(job)
    }

    /// Returns the live services.
    pub fn live(&self) -> impl Iterator<Item = (&JobId, &Service)> {
        let all = self.services.iter();
        all.filter(|(_, service)| !service.ended)
    }

    /// Returns the services with lines' last points.
    #[must_use]
    pub fn tails(&self) -> Self {
        let live = self.live().map(|(job, _)| job);
        let tails = live.filter_map(|job| Some((job.clone(), self.lines.get(job)?.tail())));
        Self {
            services: self.services.clone(),
            lines: tails.collect(),
            ended: self.ended.clone(),
        }
    }

    /// Returns a metric's named series: of one service with references, or of the busiest.
    #[must_use]
    pub fn series(
        &self,
        metric: Metric,
        job: Option<&JobId>,
        busiest: usize,
    ) -> Vec<(String, &Steps)> {
        let Some(job) = job else {
            return self.busiest(metric, busiest);
        };
        let (Some(service), Some(lines)) = (self.get(job), self.lines.get(job)) else {
            return Vec::new();
        };
        let percentile = format!("p{}", service.percentile());
        let named = match metric {
            Metric::Latency => vec![
                (percentile.as_str(), &lines.latency),
                ("objective", &lines.objective),
            ],
            Metric::RequestRate => vec![
                ("requests", &lines.requests),
                ("errors", &lines.errors),
                ("shed", &lines.shed),
            ],
            Metric::Attainment => vec![
                ("in time", &lines.attainment),
                ("objective", &lines.promised),
            ],
            Metric::Replicas => vec![("ready", &lines.ready), ("target", &lines.target)],
            _ => Vec::new(),
        };
        let begun = named.into_iter().filter(|(_, it)| it.first().is_some());
        begun.map(|(name, it)| (name.to_owned(), it)).collect()
    }

    fn busiest(&self, metric: Metric, limit: usize) -> Vec<(String, &Steps)> {
        let of: fn(&Lines) -> &Steps = match metric {
            Metric::Latency => |lines| &lines.latency,
            Metric::RequestRate => |lines| &lines.requests,
            Metric::Attainment => |lines| &lines.attainment,
            Metric::Replicas => |lines| &lines.ready,
            _ => return Vec::new(),
        };
        let all = self.lines.iter();
        let mut drawn: Vec<_> = all.filter(|(_, it)| of(it).first().is_some()).collect();
        let requests = |job| self.get(job).map_or(0, |it| it.total.requests);
        drawn.sort_by(|a, b| requests(b.0).cmp(&requests(a.0)).then_with(|| a.0.cmp(b.0)));
        drawn.truncate(limit);
        let drawn = drawn.into_iter();
        drawn.map(|(job, it)| (job.to_string(), of(it))).collect()
    }

    fn at(&mut self, job: &JobId, change: impl FnOnce(&mut Service, &mut Lines)) {
        let Some(service) = self.services.get_mut(job).filter(|it| !it.ended) else {
            return;
        };
        let lines = self.lines.entry(job.clone()).or_default();
        change(service, lines);
    }

    fn replicas(&mut self, job: &JobId, at: Timestamp, change: impl FnOnce(&mut Service)) {
        self.at(job, |service, lines| {
            change(service);
            lines.replicas(at, service.replicas.count(), service.target);
        });
    }

    fn measured(&mut self, event: &ServiceMeasured, fact: &Fact<'_>) {
        if event.ended_s(fact).is_ok() {
            self.at(&event.job, |service, lines| {
                service.measured(event, fact, lines);
            });
        }
    }

    fn end(&mut self, job: &JobId, at: Timestamp) {
        if self.get(job).is_none_or(|it| it.ended) {
            return;
        }
        self.at(job, |service, lines| {
            service.end(at, lines);
            lines.replicas(at, 0, 0);
        });
        self.ended.push_back(job.clone());
        if self.ended.len() > ENDED_SERVICES
            && let Some(oldest) = self.ended.pop_front()
        {
            self.services.remove(&oldest);
            self.lines.remove(&oldest);
        }
    }

    fn live_ids(&self) -> Vec<JobId> {
        self.live().map(|(job, _)| job.clone()).collect()
    }

    fn gateway_left(&mut self, gateway: &GatewayId, at: Timestamp) {
        for job in self.live_ids() {
            self.at(&job, |service, lines| service.left(gateway, at, lines));
        }
    }

    fn node_lost(&mut self, node: &NodeId, at: Timestamp) {
        for job in self.live_ids() {
            self.replicas(&job, at, |service| service.replicas.lost(node));
        }
    }

    fn evolve_replicas(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::ServiceScaled(it) => self.replicas(&it.job, at, |service| {
                service.scaled(it.replicas, it.saturated);
            }),
            Event::ContainerReady(it) => {
                self.replicas(&it.container.job, at, |service| service.replicas.ready(it));
            }
            Event::ContainerUnready(it) => self.replicas(&it.container.job, at, |service| {
                service.replicas.unready(&it.container);
            }),
            Event::ContainerExited(it) => self.replicas(&it.container.job, at, |service| {
                service.replicas.exited(&it.container);
            }),
            Event::PartitionResizeRequested(it) => {
                self.replicas(&it.job, at, |service| service.replicas.resizing(it));
            }
            Event::PartitionResized(it) => {
                self.at(&it.job, |service, _| service.replicas.resized());
            }
            Event::PartitionStopRequested(it) => self.replicas(&it.job, at, |service| {
                service.replicas.stopping(it.incarnation);
            }),
            Event::PartitionStopped(it) => self.replicas(&it.job, at, |service| {
                service.replicas.stopping(it.incarnation);
            }),
            _ => {}
        }
    }
}

impl Services {
    /// Folds one event, after `state`.
    pub fn evolve(&mut self, fact: &Fact<'_>, state: &ClusterState) {
        let Some(event) = fact.event() else {
            return;
        };
        let at = fact.at;
        match event {
            Event::JobAdmitted(it) => {
                if let Some(service) = Service::admitted(it) {
                    // A reused id is another service.
                    self.ended.retain(|job| *job != it.job);
                    self.lines.remove(&it.job);
                    self.services.insert(it.job.clone(), service);
                    self.replicas(&it.job, at, |_| {});
                }
            }
            _ if self.services.is_empty() => {}
            Event::JobRevised(it) => {
                if let Some(containers) = it.containers {
                    self.replicas(&it.job, at, |service| service.revised(containers));
                }
            }
            Event::JobCompleted(it) => self.end(&it.job, at),
            Event::JobFailed(it) => self.end(&it.job, at),
            Event::JobCancelled(it) => self.end(&it.job, at),
            Event::ServiceMeasured(it) => self.measured(it, fact),
            Event::GatewayLeft(it) => self.gateway_left(&it.gateway, at),
            Event::GatewayLost(it) => self.gateway_left(&it.gateway, at),
            // A later agent may have adopted the replicas.
            Event::NodeLost(it) if state.nodes.is_lost(&it.node) => self.node_lost(&it.node, at),
            Event::NodeFenced(it) if state.nodes.is_lost(&it.node) => self.node_lost(&it.node, at),
            _ => self.evolve_replicas(event, at),
        }
    }

    /// # Errors
    /// The broken invariant.
    pub fn check_invariants(&self) -> Result<(), String> {
        if self.ended.len() > ENDED_SERVICES {
            return Err("too many services that are over are kept".to_owned());
        }
        for (job, service) in &self.services {
            if !service.is_bounded() {
                return Err(format!("more is kept of {job} than may be"));
            }
        }
        Ok(())
    }
}
