//! Runs the shipped services over a log in memory, with a virtual clock and model agents.
//!
//! 1. The script's actions for this instant happen.
//! 2. The reports of model nodes ([`agents`]) and clients ([`clients`]) are appended.
//! 3. Every due service folds and decides, in turn, until none is due ([`service`]).
//! 4. The clock jumps to the next due instant.
//!
//! On a calm cluster every service acts at once; under [`Faults`] each has two copies. The audit
//! ([`crate::Audit`]) runs after every event, and with `check` the services' own invariants.
//!
//! - Nodes: `agents` (all), `agent_driver` (actions of agents), `container_runtime` (containers), `work`,
//!   `tasks`, `elastic` (resizes in place). Below them: `model_node` (one node), `outlet` (its reports), `gang`
//!   and `incarnation` (an incarnation), `simulated` (a job's progress), `model` (a job's costs), `routes`
//!   (recipients of events), `ground_truth` (the ground truth).
//! - Services: `service`, `log`, `brokers` (a replicated log), `log_clients` (its clients), `clients` (of
//!   services), `requests` (of clients), `schedule` (due times).
//! - Faults: `faults` (all draws), `start_faults` (failed starts), `log_rollback` (log rollback), `host_faults`, `agent_link`
//!   (disconnections), `suspended_hosts` (suspended hosts), `blackout` (stopped services), `duplicate_agent` (second agents).
//! - Forks: `resume`, `track_log`, `seed_from_state`.

mod agent_driver;
mod agent_link;
mod agents;
mod blackout;
mod brokers;
mod clients;
mod container_runtime;
mod duplicate_agent;
mod elastic;
mod faults;
mod gang;
mod ground_truth;
mod host_faults;
mod incarnation;
mod log;
mod log_clients;
mod log_rollback;
mod model;
mod model_node;
mod outlet;
mod requests;
mod resume;
mod routes;
mod schedule;
mod seed_from_state;
mod service;
mod simulated;
mod start_faults;
mod suspended_hosts;
mod tasks;
mod track_log;
mod work;

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_admission::{Admission, received};
use dormouse_agent_core::lease_holder::Holder;
use dormouse_autoscaler::Autoscaler;
use dormouse_checkpointer::Checkpointer;
use dormouse_messages::events::{Key, NodeDrained, NodeFenced, NodeLost, NodeRestored};
use dormouse_messages::policy::LeaseTerm;
use dormouse_messages::{
    Amounts, Decider, Envelope, Event, Incarnations, JobId, LogClock, NodeId, Recorded, Sequence,
    Timestamp, Writer,
};
use dormouse_optimizer::Optimizer;
use dormouse_placer::Placer;

use crate::audit::Audit;
pub use agent_link::Cut;
pub use agents::ModelAgents;
use brokers::{Brokers, off};
pub use clients::{Asking, Clients, Sample};
use clients::{Load, Served};
pub use faults::{Faults, Plant, Rates};
pub use log::MemoryLog;
pub use log_rollback::Back;
pub use model::{IncarnationCosts, MemberCosts, ModelJob, Scaling};
pub use model_node::Ailment;
pub use requests::{Requests, Work};
pub use resume::Ground;
use schedule::Schedule;
use service::{Participant, Service, Turn};
pub use track_log::Died;

/// An external action on the cluster.
#[derive(Debug, Clone)]
pub enum Action {
    Submit {
        tenant: String,
        /// `submit`, `cancel` or `revise`.
        verb: String,
        payload: Vec<u8>,
    },
    Join {
        node: NodeId,
        capacity: Amounts,
    },
    Lose(NodeId),
    /// As [`Action::Lose`], declared by the operator.
    Fence(NodeId),
    /// An agent missed its lease: it ends its containers and starts none until it has joined again.
    Expire(NodeId),
    Cut(NodeId, Cut),
    Second(NodeId),
    SecondAsks(NodeId),
    /// A host with a copy of every service is disconnected until the given time.
    CutCopies(usize, Cut, Timestamp),
    Mend(NodeId),
    CatchUp(NodeId),
    /// A disconnected agent checks its lease, if the link's change count still matches.
    RenewalDue(NodeId, u64),
    /// The supervisor ends the containers, if the link's change count still matches.
    FenceDue(NodeId, u64),
    /// The lease ends, if the link's change count still matches.
    LeaseDue(NodeId, u64),
    /// A killed agent's supervisor ends the containers, and reports this after the given milliseconds.
    Forsake(NodeId, u64),
    /// A supervisor's report is stored: the containers of this incarnation have ended.
    SupervisorSays(NodeId, u64),
    Ails(NodeId, Ailment),
    Heals(NodeId),
    /// A node reboots: its containers are gone, its disk stays. The agent is away until `Mend`.
    Reboot(NodeId),
    /// A host is suspended until the given time, with agent, supervisor and containers.
    Stand(NodeId, Timestamp),
    Wake(NodeId),
    /// The supervisor of a resumed host has ended its overdue containers.
    EndStale(NodeId),
    Drain(NodeId),
    Restore(NodeId),
    /// Every service is stopped until the given time; the clocks of rebooted hosts are then off by the
    /// given microseconds.
    Stop(Timestamp, Option<i64>),
    GoBack(Back),
    Operator(Event),
    Autoscaler(Event),
    /// Any event of a recorded log that no service decides.
    Recorded(Writer, Event),
}

/// An error that stopped a run early.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    #[error("event {sequence}: {what}")]
    Invariant {
        /// The event after which the invariant was checked.
        sequence: Sequence,
        what: String,
    },
    #[error("the services append without end at {at}: the last event is {last}")]
    Livelock {
        at: Timestamp,
        /// The type of the last event.
        last: String,
    },
}

/// The most turns of a healthy cluster at one instant.
const MOST_TURNS: usize = 400_000;

/// A cluster in memory.
pub struct Engine {
    now: Timestamp,
    log: MemoryLog,
    script: Schedule<Action>,
    ingress: u64,
    agent_incarnations: Incarnations,
    lost: BTreeMap<NodeId, u64>,
    term: LeaseTerm,
    services: [Box<dyn Participant>; 5],
    agents: ModelAgents,
    clients: Served,
    faults: Faults,
    audit: Audit,
    audits: bool,
    broker: Broker,
    seconds: BTreeMap<NodeId, Holder>,
    /// `None` for a single broker.
    brokers: Option<Box<Brokers>>,
    stopped: Timestamp,
}

impl Engine {
    /// Returns an empty, calm cluster at `start`; `check` adds the services' invariants to the audit.
    #[must_use]
    pub fn new(start: Timestamp, check: bool) -> Self {
        Self::with_faults(start, check, Faults::none())
    }

    /// Returns an empty cluster with `faults`.
    #[must_use]
    pub fn with_faults(start: Timestamp, check: bool, faults: Faults) -> Self {
        // The solver stops only at its node limit, which is the same on every machine.
        let optimizer = Optimizer::default();
        let mut faults = faults;
        let services: [Box<dyn Participant>; 5] = [
            Box::new(Service::new(Admission, check, &mut faults)),
            Box::new(Service::new(optimizer, check, &mut faults)),
            Box::new(Service::new(Placer, check, &mut faults)),
            Box::new(Service::new(Checkpointer::default(), check, &mut faults)),
            Box::new(Service::new(Autoscaler, check, &mut faults)),
        ];
        Self {
            now: start,
            log: MemoryLog::default(),
            script: Schedule::new(),
            ingress: 0,
            agent_incarnations: Incarnations::default(),
            lost: BTreeMap::new(),
            term: LeaseTerm::default(),
            services,
            agents: ModelAgents::default(),
            clients: Served::default(),
            faults,
            audit: Audit::default(),
            audits: true,
            broker: Broker::default(),
            seconds: BTreeMap::new(),
            brokers: None,
            stopped: Timestamp::default(),
        }
    }

    /// Replaces the service with the decider's writer.
    #[must_use]
    pub fn deciding<D: Decider>(mut self, decider: D) -> Self {
        let service = Service::new(decider, false, &mut self.faults);
        let mut services = self.services.iter_mut();
        if let Some(replaced) = services.find(|it| it.writer() == D::WRITER) {
            *replaced = Box::new(service);
        }
        self
    }

    /// Returns the current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns the log, without the events taken away.
    #[must_use]
    pub fn log(&self) -> &[Arc<Recorded>] {
        self.log.events()
    }

    /// Takes the events away, so that memory stays bounded. Only for a calm cluster, where every service
    /// has folded them.
    pub fn take_events(&mut self) -> Vec<Arc<Recorded>> {
        self.log.take()
    }

    /// Returns the audit of the facts.
    #[must_use]
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Schedules `action` at `at`.
    pub fn at(&mut self, at: Timestamp, action: Action) {
        self.script.add(at.max(self.now), action);
    }

    /// Sets the behaviour of the job `id`.
    pub fn model(&mut self, id: JobId, model: ModelJob) {
        self.agents.model(id, model);
    }

    /// Adds a service's clients, from `at` on while the service exists.
    pub fn serve(&mut self, id: JobId, clients: Clients, at: Timestamp) {
        self.clients.add(id, Load::fluid(clients), at);
    }

    /// As [`Engine::serve`], with requests one by one.
    pub fn serve_requests(&mut self, id: JobId, requests: Requests, at: Timestamp) {
        let load = Load::Requests(Box::new(requests));
        self.clients.add(id, load, at);
    }

    /// Takes the clients' samples since the last call, one per second.
    pub fn take_samples(&mut self) -> Vec<Sample> {
        self.clients.take_samples()
    }

    /// Returns the model agents.
    #[must_use]
    pub fn agents(&self) -> &ModelAgents {
        &self.agents
    }

    /// Runs until nothing is due at or before `until`.
    ///
    /// # Errors
    /// A broken invariant, or a livelock.
    pub fn run_until(&mut self, until: Timestamp) -> Result<(), EngineError> {
        while self.next_due().is_some_and(|next| next <= until) {
            self.step()?;
        }
        self.now = self.now.max(until);
        Ok(())
    }

    /// Returns the next due time.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        let scripted = self.script.next_due();
        let services = self.services.iter().map(|service| service.due());
        let brokers = self.brokers.as_ref().and_then(|it| it.due());
        let models = [self.agents.next_due(), self.clients.next_due(), brokers];
        let all = services.chain([scripted]).chain(models);
        all.flatten().min()
    }

    /// Runs the next instant with everything due then.
    ///
    /// # Errors
    /// A broken invariant, or a livelock.
    pub fn step(&mut self) -> Result<(), EngineError> {
        self.now = self.now.max(self.next_due().unwrap_or(self.now));
        self.agents.world.passed(self.now);
        self.flow()?;
        while let Some(action) = self.next_action() {
            self.act(action)?;
        }
        for event in self.agents.due(self.now, &mut self.faults) {
            self.append(Writer::Node, event, None)?;
        }
        for event in self.clients.due(self.now) {
            self.append(Writer::Gateway, event, None)?;
        }
        self.flow()?;
        self.settle()
    }

    fn next_action(&mut self) -> Option<Action> {
        self.script.take(self.now)
    }

    fn act(&mut self, action: Action) -> Result<(), EngineError> {
        if self.waits(&action) {
            self.at(self.stopped, action);
            return Ok(());
        }
        let (writer, event) = match action {
            Action::Submit {
                tenant,
                verb,
                payload,
            } => {
                self.ingress += 1;
                let event = received(self.ingress, self.now, &tenant, &verb, None, &payload);
                (Writer::Admission, event)
            }
            Action::Join { node, capacity } => {
                let (now, faults) = (self.now, &mut self.faults);
                self.agents.boot(&node, &capacity, now, faults);
                return self.append_said();
            }
            Action::Lose(node) => {
                let incarnation = self.dies(&node);
                let lost = NodeLost {
                    node,
                    incarnation,
                    last_seen: self.now,
                };
                (Writer::Placer, Event::from(lost))
            }
            Action::Fence(node) => {
                let incarnation = self.dies(&node);
                let fenced = NodeFenced {
                    node,
                    incarnation,
                    reason: "its power is off".to_owned(),
                };
                (Writer::Operator, Event::from(fenced))
            }
            Action::Stop(until, reboot) => return self.stop(until, reboot),
            Action::GoBack(back) => {
                self.go_back(back);
                return Ok(());
            }
            Action::Drain(node) => (
                Writer::Operator,
                Event::from(NodeDrained {
                    node,
                    reason: None,
                    deadline_s: None,
                }),
            ),
            Action::Restore(node) => (Writer::Operator, Event::from(NodeRestored { node })),
            Action::Operator(event) => (Writer::Operator, event),
            Action::Autoscaler(event) => (Writer::Autoscaler, event),
            Action::Recorded(writer, event) => {
                self.comes_to_nodes(&event);
                (writer, event)
            }
            host => return self.happens_to_host(host),
        };
        self.append(writer, event, None)
    }

    fn comes_to_nodes(&mut self, event: &Event) {
        match event {
            Event::NodeJoined(event) => self.agents.joined(event, self.now),
            Event::NodeLost(event) => self.agents.lose(&event.node, self.now),
            Event::NodeFenced(event) => self.agents.lose(&event.node, self.now),
            _ => {}
        }
    }

    /// Step 3.
    fn settle(&mut self) -> Result<(), EngineError> {
        for turn in 0..MOST_TURNS {
            let index = turn % self.services.len();
            if index == 0 && !self.services.iter().any(|service| self.is_due(&**service)) {
                return Ok(());
            }
            if self.is_due(&*self.services[index]) {
                self.turn(index)?;
            }
        }
        let last = self
            .log
            .events()
            .last()
            .and_then(|recorded| recorded.event());
        Err(EngineError::Livelock {
            at: self.now,
            last: last.map_or("", Event::type_name).to_owned(),
        })
    }

    fn is_due(&self, service: &dyn Participant) -> bool {
        service.due().is_some_and(|due| due <= self.now)
    }

    fn turn(&mut self, index: usize) -> Result<(), EngineError> {
        let line = self.line();
        let service = &mut self.services[index];
        let writer = service.writer();
        let turn = service
            .turn(&self.log, line, self.now, &mut self.faults)
            .map_err(|(sequence, what)| EngineError::Invariant { sequence, what })?;
        match turn {
            Turn::Nothing => {}
            Turn::Stored { written, events } => {
                for event in events {
                    self.append(writer, event, Some(written))?;
                }
            }
            Turn::Asked(asked) => self.ask(index, asked),
        }
        self.flow()
    }

    /// Appends an event at a decider's time `written`, or else at its writer's time.
    fn append(
        &mut self,
        writer: Writer,
        event: Event,
        written: Option<Timestamp>,
    ) -> Result<(), EngineError> {
        if self.brokers.is_some() {
            let written = written.unwrap_or_else(|| self.written(writer, &event));
            self.write_outside(writer, event, written);
            return Ok(());
        }
        if let Some(off_us) = self.faults.leads() {
            self.broker.off_us = off_us;
        }
        let written = written.unwrap_or_else(|| self.written(writer, &event));
        let stamp = off(self.now, self.broker.off_us);
        self.store(writer, event, written, stamp)
    }

    fn written(&mut self, writer: Writer, event: &Event) -> Timestamp {
        match event.key() {
            Key::Node(node) if writer == Writer::Node => self.by_host(node),
            _ if matches!(writer, Writer::Operator | Writer::Gateway) => self.now,
            _ => self.broker.log_time(self.now),
        }
    }

    fn by_host(&mut self, node: &NodeId) -> Timestamp {
        let (hosts, faults) = (&mut self.broker.hosts, &mut self.faults);
        let off_us = hosts.entry(node.clone());
        off(self.now, *off_us.or_insert_with(|| faults.clock_off_us()))
    }

    fn notes_incarnations(&mut self, recorded: &Recorded) {
        match recorded.event() {
            Some(Event::ClusterConfigured(it)) => self.term = it.policy.lease(),
            Some(Event::NodeJoined(it)) => {
                self.agent_incarnations.joined(&it.node, it.incarnation);
            }
            Some(Event::NodeLost(it)) => drop(self.lost.insert(it.node.clone(), it.incarnation)),
            _ => {}
        }
    }

    fn store(
        &mut self,
        writer: Writer,
        event: Event,
        written: Timestamp,
        stamp: Timestamp,
    ) -> Result<(), EngineError> {
        // The planted bug trusts the broker's stamp as the writer's time.
        let planted = self.faults.plant() == Some(Plant::RawStamps);
        let written = if planted { stamp } else { written };
        let sequence = self.log.head().next();
        let id = format!("{writer}-{sequence}");
        let recorded = Arc::new(Recorded {
            sequence,
            stored_at: stamp,
            writer,
            envelope: Envelope::new(id, writer, written, None, event),
        });
        self.broker.clock.pass(&recorded);
        self.broker.passed = self.now;
        self.log.push(Arc::clone(&recorded));
        for service in &mut self.services {
            service.told(&recorded, self.now, &mut self.faults);
        }
        self.agents.fold(&recorded, self.now, &mut self.faults);
        self.clients
            .fold(&recorded, self.now, &self.agent_incarnations);
        if self.audits {
            self.audit.read(&recorded);
        }
        if let Some(what) = self.agents.world.broken() {
            let what = what.to_owned();
            return Err(EngineError::Invariant { sequence, what });
        }
        self.notes_incarnations(&recorded);
        if let Some(Event::JobFailed(failed)) = recorded.event() {
            let blame = self.agents.blame(&failed.job);
            if failed.attempts > blame {
                let what = format!(
                    "{} failed after {} attempts, of which {blame} were its own: {}",
                    failed.job, failed.attempts, failed.reason
                );
                return Err(EngineError::Invariant { sequence, what });
            }
        }
        match self.audit.violations().first() {
            Some(violation) => Err(EngineError::Invariant {
                sequence,
                what: violation.what.clone(),
            }),
            None => Ok(()),
        }
    }
}

#[derive(Default)]
struct Broker {
    off_us: i64,
    hosts: BTreeMap<NodeId, i64>,
    /// The log's time, read at `passed`.
    clock: LogClock,
    passed: Timestamp,
}

impl Broker {
    /// Returns the time that an up-to-date decider would write.
    fn log_time(&self, now: Timestamp) -> Timestamp {
        self.clock.now().plus_ms(now.ms_since(self.passed))
    }
}
