//! Measures a log: each job's times and containers, and the cluster over time.
//!
//! Utilization is Σ over resources of the fraction held by running containers (Dorm, eq. 5), so it may
//! exceed 1. Fairness loss and adjustments come from the allocations (eq. 11 to 16).

use std::collections::BTreeMap;

use dormouse_messages::events::Outcome as Decided;
use dormouse_messages::ids::ContainerId;
use dormouse_messages::roles::Demands;
use dormouse_messages::{Amounts, Event, Fact, JobId, NodeId, Resource, Timestamp};
use dormouse_state::{ClusterState, ContainerPhase};

use super::record::{Bar, End, JobRecord, Series, count};

#[derive(Debug, Clone, Default)]
struct Live {
    submitted_s: f64,
    started_s: Option<f64>,
    running: u32,
    since_s: f64,
    bars: Vec<Bar>,
}

impl Live {
    fn change(&mut self, at_s: f64, running: u32) {
        if self.running > 0 && at_s > self.since_s {
            let bar = Bar {
                from_s: self.since_s,
                to_s: at_s,
                containers: self.running,
            };
            match self.bars.last_mut() {
                Some(last) if last.to_s >= bar.from_s && last.containers == bar.containers => {
                    last.to_s = at_s
                }
                _ => self.bars.push(bar),
            }
        }
        (self.running, self.since_s) = (running, at_s);
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Measures {
    pub horizon_s: f64,
    start: Timestamp,
    demands: BTreeMap<JobId, Demands>,
    capacities: BTreeMap<NodeId, Amounts>,
    total: Amounts,
    running: BTreeMap<ContainerId, NodeId>,
    used: Amounts,
    pub used_by: BTreeMap<String, (Amounts, Series)>,
    /// Nodes have joined since the tenants' parts were computed.
    resized: bool,
    live: BTreeMap<JobId, Live>,
    pub jobs: Vec<JobRecord>,
    pub utilization: Series,
    pub loss: Series,
    pub loss_all: Series,
    pub adjustments: Series,
    pub decisions: u64,
    pub adjusted: u64,
    pub most_adjusted: u32,
    pub refused: u64,
    pub events: u64,
}

impl Measures {
    pub fn new(horizon_s: f64, start: Timestamp) -> Self {
        Self {
            horizon_s,
            start,
            demands: BTreeMap::new(),
            capacities: BTreeMap::new(),
            total: Amounts::new(),
            running: BTreeMap::new(),
            used: Amounts::new(),
            used_by: BTreeMap::new(),
            resized: false,
            live: BTreeMap::new(),
            jobs: Vec::new(),
            utilization: Series::default(),
            loss: Series::default(),
            loss_all: Series::default(),
            adjustments: Series::default(),
            decisions: 0,
            adjusted: 0,
            most_adjusted: 0,
            refused: 0,
            events: 0,
        }
    }

    pub fn ended(&self) -> u64 {
        self.jobs.len() as u64 + self.refused
    }

    pub fn read(&mut self, fact: &Fact<'_>) {
        self.events += 1;
        let at_s = fact.at.seconds_since(self.start);
        match fact.event() {
            Some(Event::NodeJoined(event)) => self.joined(&event.node, &event.capacity),
            Some(Event::NodeLost(event)) => self.lost(&event.node, at_s),
            Some(Event::NodeFenced(event)) => self.lost(&event.node, at_s),
            Some(Event::JobAdmitted(event)) => {
                self.demands
                    .insert(event.job.clone(), Demands::of(&event.spec));
                let live = Live {
                    submitted_s: at_s,
                    ..Live::default()
                };
                self.live.insert(event.job.clone(), live);
            }
            Some(Event::JobRefused(_)) => self.refused += 1,
            Some(Event::ContainerStarted(event)) => {
                self.running
                    .insert(event.container.clone(), event.node.clone());
                self.changed(&event.container, true, at_s);
            }
            Some(Event::ContainerExited(event)) => self.exited(&event.container, at_s),
            Some(Event::AllocationDecided(event)) => self.decided(&event.outcome, true, at_s),
            Some(Event::AllocationUnchanged(event)) => self.decided(&event.outcome, false, at_s),
            Some(Event::JobCompleted(event)) => self.end(&event.job, End::Completed, at_s),
            Some(Event::JobFailed(event)) => self.end(&event.job, End::Failed, at_s),
            Some(Event::JobCancelled(event)) => self.end(&event.job, End::Cancelled, at_s),
            _ => {}
        }
    }

    fn joined(&mut self, node: &NodeId, capacity: &Amounts) {
        self.capacities.insert(node.clone(), capacity.clone());
        self.resized = true;
        self.total = Amounts::new();
        for capacity in self.capacities.values() {
            self.total.add(capacity, 1);
        }
    }

    fn changed(&mut self, container: &ContainerId, starts: bool, at_s: f64) {
        let Some(demands) = self.demands.get(&container.job) else {
            return;
        };
        let demand = demands.at(container.rank);
        let tenant = container.job.tenant();
        if !self.used_by.contains_key(tenant) {
            self.used_by.insert(tenant.to_owned(), Default::default());
        }
        let used_by = self.used_by.get_mut(tenant).map(|it| &mut it.0);
        for used in [Some(&mut self.used), used_by].into_iter().flatten() {
            if starts {
                used.add(demand, 1)
            } else {
                used.subtract(demand, 1)
            }
        }
        if let Some(live) = self.live.get_mut(&container.job) {
            let running = if starts {
                live.running + 1
            } else {
                live.running.saturating_sub(1)
            };
            live.started_s.get_or_insert(at_s);
            live.change(at_s, running);
        }
        self.used_changed(at_s, container.job.tenant());
    }

    fn exited(&mut self, container: &ContainerId, at_s: f64) {
        if self.running.remove(container).is_some() {
            self.changed(container, false, at_s);
        }
    }

    /// After a join all tenants change, so that the parts add up.
    fn used_changed(&mut self, at_s: f64, tenant: &str) {
        self.utilization.push(at_s, of(&self.total, &self.used));
        let all = std::mem::take(&mut self.resized);
        if all {
            for (used, series) in self.used_by.values_mut() {
                series.push(at_s, of(&self.total, used));
            }
        } else if let Some((used, series)) = self.used_by.get_mut(tenant) {
            series.push(at_s, of(&self.total, used));
        }
    }

    fn lost(&mut self, node: &NodeId, at_s: f64) {
        let gone: Vec<ContainerId> = self
            .running
            .iter()
            .filter(|(_, at)| *at == node)
            .map(|(id, _)| id.clone())
            .collect();
        for container in gone {
            self.running.remove(&container);
            self.changed(&container, false, at_s);
        }
    }

    fn decided(&mut self, outcome: &Decided, changes: bool, at_s: f64) {
        self.decisions += 1;
        self.loss.push(at_s, outcome.fairness_loss);
        self.loss_all.push(at_s, outcome.fairness_loss_all);
        if changes {
            self.adjusted += u64::from(outcome.adjusted_jobs);
            self.most_adjusted = self.most_adjusted.max(outcome.adjusted_jobs);
            self.adjustments.push(at_s, count(self.adjusted));
        }
    }

    fn end(&mut self, job: &JobId, end: End, at_s: f64) {
        self.demands.remove(job);
        if let Some(mut live) = self.live.remove(job) {
            live.change(at_s, 0);
            self.jobs.push(JobRecord {
                job: job.clone(),
                submitted_s: live.submitted_s,
                started_s: live.started_s,
                ended_s: at_s,
                end,
                bars: live.bars,
            });
        }
    }

    pub fn starting_from(&mut self, cluster: &ClusterState) {
        for (name, node) in cluster.nodes.iter() {
            self.joined(name, &node.capacity);
        }
        for (id, job) in cluster.live() {
            let demands = Demands::new(&job.demand, &job.auxiliary);
            self.demands.insert(id.clone(), demands);
            let partition = job.partition.as_ref();
            let runs = partition.into_iter().flat_map(|partition| {
                let of = partition.containers.iter();
                let runs = of.filter(|(_, it)| it.phase == ContainerPhase::Started);
                runs.map(|(rank, it)| {
                    let container = ContainerId {
                        job: id.clone(),
                        incarnation: partition.incarnation,
                        rank: *rank,
                    };
                    (container, it.place.node.clone())
                })
            });
            let runs: Vec<_> = runs.collect();
            self.live.insert(id.clone(), Live::default());
            for (container, node) in runs {
                self.changed(&container, true, 0.0);
                self.running.insert(container, node);
            }
        }
    }
}

fn of(total: &Amounts, used: &Amounts) -> f64 {
    let resources = total.iter();
    resources
        .map(|(resource, total)| part(used, resource, total))
        .sum()
}

#[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
fn part(used: &Amounts, resource: &Resource, total: u64) -> f64 {
    used.get(resource) as f64 / total as f64
}
