//! Nodes, jobs, policy and epochs: the state that all deciders but the autoscaler fold. Ended jobs are
//! dropped.
//!
//! One file a writer applies that writer's events: `operator`, `admission`, `optimizer`, `placer`,
//! `checkpointer` with `resize`, `node`, `services`, `slurm`. `nodes` holds the effects of nodes' changes on jobs.

mod admission;
mod checkpointer;
mod node;
mod nodes;
mod operator;
mod optimizer;
mod placer;
mod reserved;
mod resize;
mod services;
mod slurm;

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{ArchiverEvent, ByWriter, JobAllocation, Waiting};
use dormouse_messages::policy::Policy;
use dormouse_messages::{
    Amounts, Epoch, Event, Fold, GatewayId, Incarnation, JobId, LogClock, NodeId,
    PlacementAuthority, Recorded, Sequence, TenantId, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::budgets::Budgets;
use crate::builds::Builds;
use crate::incarnation::{ContainerPhase, Life, LifeContainer, LifePhase, Place, Readiness};
use crate::job::Job;
use crate::membership::Membership;
use crate::reservations::Reservations;
use crate::shared_map::SharedMap;
use crate::slurm::SlurmQueues;
use crate::speed::Speeds;
use crate::tenants::Tenants;
use crate::usage::{self, Load, Standings, Touched, Usage};

/// The newest allocation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Allocation {
    /// 0 before the first.
    pub epoch: Epoch,
    pub sequence: Sequence,
    /// Changed jobs; without containers if they wait.
    pub jobs: BTreeMap<JobId, JobAllocation>,
}

/// Costs of adjustments, from the request until the job runs again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stalls {
    pub count: u64,
    pub total_ms: u64,
}

impl Stalls {
    /// Returns the mean stall, if any.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "285,000 years of milliseconds are exact"
    )]
    pub fn mean_s(&self) -> Option<f64> {
        (self.count > 0).then(|| self.total_ms as f64 / self.count as f64 / 1000.0)
    }
}

/// The folded cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClusterState {
    pub sequence: Sequence,
    pub now: Timestamp,
    pub clock: LogClock,
    /// The newest step reported by a `ClockStepped` event.
    pub step_named: Sequence,
    pub policy: Policy,
    pub nodes: Membership,
    pub tenants: Tenants,
    /// Admitted, not yet released. Copies of the state share these jobs, because each slow decision and each
    /// snapshot copies the state with up to tens of thousands of jobs.
    pub queued: SharedMap<JobId, Job>,
    /// Released, not ended.
    pub jobs: SharedMap<JobId, Job>,
    pub allocation: Allocation,
    /// The newest placed or refused allocation.
    pub placed_epoch: Epoch,
    /// The newest event that asks for another allocation.
    pub last_trigger: Sequence,
    /// Set while job ends are the only triggers since the newest allocation: the newest end, and the first
    /// end's time.
    pub ended: Option<(Sequence, Timestamp)>,
    /// The log prefix of the newest decision, changed or unchanged.
    pub decided_asof: Sequence,
    pub decided_at: Timestamp,
    /// True if arrivals of jobs in transit may change the newest allocation.
    pub decided_in_transit: bool,
    /// The newest arrival of a job in transit, or release of capacity.
    pub transit_sequence: Sequence,
    pub stalls: Stalls,
    pub waiting: Vec<Waiting>,
    /// Joined gateways; each must drain a leaving replica.
    pub gateways: BTreeSet<GatewayId>,
    /// Taken amounts of nodes that rejoined with less capacity.
    pub overfull: BTreeMap<NodeId, Amounts>,
    pub builds: Builds,
    pub speeds: Speeds,
    pub usage: Usage,
    pub budgets: Budgets,
    pub reservations: Reservations,
    pub slurm: SlurmQueues,
    /// The log prefix of the newest forecast of starts.
    pub forecast_asof: Sequence,
    /// Validates node events about jobs.
    pub authority: PlacementAuthority,
    /// A contradiction between own decisions stops the process, so no snapshot holds this.
    #[serde(skip)]
    contradiction: Option<String>,
}

impl Fold for ClusterState {
    const NAME: &'static str = "cluster";
    const VERSION: u32 = 31;

    fn evolve(&mut self, recorded: &Recorded) {
        self.fold(recorded);
    }

    fn rejects(&self, recorded: &Recorded) -> Option<String> {
        self.authority.rejects(recorded.event()?)
    }

    fn log_time(&self) -> Option<Timestamp> {
        Some(self.now)
    }

    fn contradiction(&self) -> Option<&str> {
        self.contradiction.as_deref()
    }

    fn check_invariants(&self) -> Result<(), String> {
        if let Some(what) = self.contradiction() {
            return Err(what.to_owned());
        }
        self.check_room(&self.held())?;
        if self.counts_use() {
            let load = self.load();
            self.budgets.check(&load)?;
            if self.usage.is_on() {
                self.usage.check(&load)?;
            }
        }
        check_tasks(self.jobs.iter())
    }

    fn check_since(&self, before: &Self) -> Result<(), String> {
        if let Some(what) = self.contradiction() {
            return Err(what.to_owned());
        }
        let changed = || self.jobs.changed_since(&before.jobs);
        let holds_other = |(id, job): &(&JobId, &Job)| {
            let was = before.jobs.get(*id);
            was.is_none_or(|was| !was.held().eq(job.held()))
        };
        let holders = changed().filter(holds_other);
        let held = holders.flat_map(|(_, job)| job.held());
        let mut nodes: BTreeSet<&NodeId> = held.map(|(node, _)| node).collect();
        nodes.extend(self.nodes.changed_since(&before.nodes));
        nodes.extend(before.overfull.keys());
        if !nodes.is_empty() {
            self.check_room(&self.held_on(|node| nodes.contains(node)))?;
        }
        check_tasks(changed())
    }
}

fn check_tasks<'a>(mut jobs: impl Iterator<Item = (&'a JobId, &'a Job)>) -> Result<(), String> {
    jobs.try_for_each(|(id, job)| match &job.tasks {
        Some(tasks) => tasks.check().map_err(|why| format!("{id}: {why}")),
        None => Ok(()),
    })
}

fn of_incarnation(life: &mut Option<Life>, incarnation: Incarnation) -> Option<&mut Life> {
    life.as_mut().filter(|life| life.incarnation == incarnation)
}

/// On a lost node the container counts as lost, because the agent will never start it.
fn asked(nodes: &Membership, place: Place, at: Sequence) -> LifeContainer {
    let phase = if nodes.is_lost(&place.node) {
        ContainerPhase::Lost { at }
    } else {
        ContainerPhase::Requested
    };
    LifeContainer {
        place,
        phase,
        readiness: Readiness::Unknown,
    }
}

fn life_phase(
    job: &mut Job,
    incarnation: dormouse_messages::Incarnation,
) -> Option<&mut LifePhase> {
    of_incarnation(&mut job.life, incarnation).map(|life| &mut life.phase)
}

impl ClusterState {
    /// Folds one event and returns the event, unless the event is unknown or rejected.
    pub(crate) fn fold<'a>(&mut self, recorded: &'a Recorded) -> Option<&'a Event> {
        self.sequence = recorded.sequence;
        self.now = self.clock.pass(recorded);
        let event = recorded.event()?;
        if !self.authority.validates(event) {
            return None;
        }
        let before = self.one_load(event);
        match event.by_writer() {
            ByWriter::Operator(event) => self.evolve_operator(event),
            ByWriter::Admission(event) => self.evolve_admission(event),
            ByWriter::Optimizer(event) => self.evolve_optimizer(event),
            ByWriter::Placer(event) => self.evolve_placer(event),
            ByWriter::Checkpointer(event) => self.evolve_checkpointer(event),
            ByWriter::Node(event) => self.evolve_node(event),
            ByWriter::Autoscaler(event) => self.evolve_autoscaler(event),
            ByWriter::Gateway(event) => self.evolve_gateway(event),
            ByWriter::Slurm(event) => self.evolve_slurm(event),
            ByWriter::Archiver(
                ArchiverEvent::LogArchived(_)
                | ArchiverEvent::LogTrimmed(_)
                | ArchiverEvent::LogFilled(_),
            ) => {}
        }
        self.remember(event, before.as_ref());
        Some(event)
    }

    /// Reports whether past use counts for any tenant.
    fn counts_use(&self) -> bool {
        self.usage.is_on() || !self.budgets.is_empty()
    }

    /// Returns the load of the job that the event is about, if past use counts.
    fn one_load(&self, event: &Event) -> Option<(bool, Amounts)> {
        match usage::touched(event) {
            Some(Touched::One(id)) if self.counts_use() => Some(self.load_of(id)),
            _ => None,
        }
    }

    fn remember(&mut self, event: &Event, before: Option<&(bool, Amounts)>) {
        let entitled = (&self.policy, &self.tenants);
        match (usage::touched(event), before) {
            (Some(Touched::One(id)), Some(before)) => {
                let after = self.load_of(id);
                let held = (&before.1, &after.1);
                self.budgets.change(id.tenant(), held, self.now);
                if self.usage.is_on()
                    && let Ok(tenant) = TenantId::new(id.tenant())
                {
                    let change = (before, &after);
                    self.usage.change(&tenant, change, entitled, self.now);
                }
            }
            (Some(Touched::All), _) => {
                let remembers = self.policy.shares.memory().is_some();
                let load = if remembers || !self.budgets.is_empty() {
                    self.load()
                } else {
                    Load::new()
                };
                self.budgets.reset(&load, self.now);
                if remembers {
                    let offer = self.nodes.total();
                    self.usage.reset(entitled, offer, &load, self.now);
                } else {
                    self.usage = Usage::default();
                }
            }
            _ => {}
        }
    }

    fn load_of(&self, id: &JobId) -> (bool, Amounts) {
        let mut held = Amounts::new();
        for (_, demand) in self.jobs.get(id).into_iter().flat_map(Job::held) {
            held.add(demand, 1);
        }
        (self.job(id).is_some(), held)
    }

    fn load(&self) -> Load {
        let mut load = Load::new();
        for (id, job) in self.live() {
            let Ok(tenant) = TenantId::new(id.tenant()) else {
                continue;
            };
            let (jobs, held) = load.entry(tenant).or_default();
            *jobs += 1;
            job.held().for_each(|(_, demand)| held.add(demand, 1));
        }
        load
    }

    /// Returns the factors of the tenants' weights by past use.
    #[must_use]
    pub fn standings(&self, now: Timestamp) -> Standings {
        self.usage.standings(now)
    }

    const fn triggers(&mut self) {
        self.last_trigger = self.sequence;
    }

    const fn triggers_if(&mut self, changed: bool) {
        if changed {
            self.triggers();
        }
    }

    fn life(&mut self, id: &JobId, incarnation: Incarnation) -> Option<&mut Life> {
        of_incarnation(&mut self.jobs.get_mut(id)?.life, incarnation)
    }

    /// Counts the service of a partition that has started or changed.
    fn serves(&mut self, id: &JobId) {
        let life = self.jobs.get(id).and_then(|job| job.life.as_ref());
        let containers = life.map_or(0, |life| match &life.members {
            Some(members) => members.current.len(),
            None => life.containers.len(),
        });
        let containers = u32::try_from(containers).unwrap_or(u32::MAX);
        self.speeds.runs(id, containers, self.now);
    }

    fn job_mut(&mut self, id: &JobId) -> Option<&mut Job> {
        match self.jobs.get_mut(id) {
            Some(job) => Some(job),
            None => self.queued.get_mut(id),
        }
    }

    /// The previous decision counted old and new places of jobs in transit as taken, so the last arrival asks
    /// for another.
    fn transit_ended(&mut self) {
        self.transit_sequence = self.sequence;
        if self.decided_in_transit && !self.awaits_anybody() {
            self.decided_in_transit = false;
            self.last_trigger = self.sequence;
        }
    }

    /// One fenced writer decides epochs, so epochs never decrease.
    fn goes_back(&mut self, what: &str, before: Epoch, epoch: Epoch) {
        if epoch < before {
            let found = || format!("{what} of epoch {epoch} comes after that of epoch {before}");
            self.contradiction.get_or_insert_with(found);
        }
    }

    /// Returns the amounts that possibly running containers hold on each node.
    #[must_use]
    pub fn held(&self) -> BTreeMap<NodeId, Amounts> {
        self.held_on(|_| true)
    }

    fn held_on(&self, is_meant: impl Fn(&NodeId) -> bool) -> BTreeMap<NodeId, Amounts> {
        let mut held: BTreeMap<NodeId, Amounts> = BTreeMap::new();
        let holders = self.jobs.values().flat_map(Job::held);
        for (node, demand) in holders.filter(|(node, _)| is_meant(node)) {
            match held.get_mut(node) {
                Some(held) => held.add(demand, 1),
                None => drop(held.insert(node.clone(), demand.clone())),
            }
        }
        held
    }

    fn check_room(&self, held: &BTreeMap<NodeId, Amounts>) -> Result<(), String> {
        for (name, held) in held {
            let Some(node) = self.nodes.get(name) else {
                continue;
            };
            let room = self.overfull.get(name).unwrap_or(&node.capacity);
            if let Some(resource) = held.first_short(room, 1) {
                return Err(format!("{name} holds more {} than it has", resource.name()));
            }
        }
        Ok(())
    }

    /// Iterates over queued jobs by id, then over released jobs.
    pub fn live(&self) -> impl Iterator<Item = (&JobId, &Job)> {
        self.queued.iter().chain(&self.jobs)
    }

    /// Returns a queued or released job.
    #[must_use]
    pub fn job(&self, id: &JobId) -> Option<&Job> {
        self.jobs.get(id).or_else(|| self.queued.get(id))
    }
}
