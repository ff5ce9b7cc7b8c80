//! The same services over a log in memory, with a virtual clock and model agents.
//!
//! 1. What the script says for this instant happens: submissions, nodes that join, leave, drain.
//! 2. What the model nodes are due to report is appended ([`agents`]: the shipped agents' machines over
//!    a model of containers), and what clients of services saw ([`clients`]).
//! 3. Every service whose turn it is folds the new events and decides, one after the other, until
//!    none is due at this instant: the shipped shell around the services' own `evolve` and
//!    `decide` ([`service`]).
//! 4. The clock jumps to the next instant at which something is due.
//!
//! What is appended is on the log at once, or there are [several brokers](brokers), which take time.
//!
//! On a calm cluster every service takes its turn at once. Under [`Faults`] there are two copies of
//! each; they are told late, decide on less than the whole log, get their answers late or never,
//! are slow, die and start again. The facts are audited
//! after every event ([`crate::Audit`]), and with `check` every service's own invariants.

mod agents;
mod ailing;
mod back;
mod brokers;
mod clients;
mod cuts;
mod elastic;
mod faults;
mod log;
mod model;
mod nodes;
mod observe;
mod programs;
mod proposals;
mod resume;
mod retold;
mod routes;
mod schedule;
mod service;
mod simulated;
mod standing;
mod stops;
mod tasks;
mod ties;
mod twins;
mod work;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_admission::{Admission, received};
use dormouse_agent_core::holder::Holder;
use dormouse_autoscaler::Autoscaler;
use dormouse_checkpointer::Checkpointer;
use dormouse_messages::events::{Key, NodeDrained, NodeFenced, NodeLost, NodeRestored};
use dormouse_messages::policy::LeaseTerm;
use dormouse_messages::{
    Amounts, Envelope, Event, JobId, LogClock, NodeId, Recorded, Sequence, Timestamp, Writer,
};
use dormouse_optimizer::Optimizer;
use dormouse_placer::Placer;

use crate::audit::Audit;
pub use agents::ModelAgents;
pub use ailing::Ailment;
pub use back::Back;
use brokers::{Brokers, off};
use clients::Served;
pub use clients::{Asking, Clients, Sample};
pub use faults::{Faults, Plant, Rates};
pub use log::MemoryLog;
pub use model::{LifeCosts, MemberCosts, ModelJob, Scaling};
pub use observe::Died;
pub use resume::Ground;
use schedule::Schedule;
use service::{Participant, Service, Turn};
pub use ties::Cut;

/// Something that happens to the cluster from outside.
#[derive(Debug, Clone)]
pub enum Action {
    /// A payload arrives on a tenant's ingress subject.
    Submit {
        /// The tenant's token.
        tenant: String,
        /// `submit`, `cancel` or `revise`.
        verb: String,
        /// The payload.
        payload: Vec<u8>,
    },
    /// An agent starts on a node.
    Join {
        /// The node.
        node: NodeId,
        /// What it offers.
        capacity: Amounts,
    },
    /// A node dies with all that it runs.
    Lose(NodeId),
    /// The same, and the operator says so.
    Fence(NodeId),
    /// An agent could not renew its lease in time: it ends what runs, and starts nothing until it has
    /// joined again.
    Expire(NodeId),
    /// An agent is cut off, or killed.
    Cut(NodeId, Cut),
    /// A second agent of the name is started, on another host.
    Second(NodeId),
    /// It asks for the lease.
    SecondAsks(NodeId),
    /// A host with a copy of every service is cut off from the brokers until then.
    CutCopies(usize, Cut, Timestamp),
    /// It is back.
    Mend(NodeId),
    /// It was back before, and now it hears what it has missed.
    CatchUp(NodeId),
    /// An agent that is cut off looks after its lease, if nothing has changed since.
    RenewalDue(NodeId, u64),
    /// The keeper of an agent that is cut off ends what runs there, if nothing has changed since.
    FenceDue(NodeId, u64),
    /// Its lease has ended, if nothing has changed since.
    LeaseDue(NodeId, u64),
    /// The keeper of an agent that was killed waits for another one no more: it ends what runs, and its
    /// word that it has comes so many milliseconds later.
    Forsake(NodeId, u64),
    /// A keeper's word is stored: the containers of this life have ended.
    KeeperSays(NodeId, u64),
    /// From now on a node cannot start what others can.
    Ails(NodeId, Ailment),
    /// It can again.
    Heals(NodeId),
    /// A node is started again: its containers are gone, its disk is not. Its agent is away until it is
    /// mended.
    Reboot(NodeId),
    /// A host stands still until then, with all that runs there: its agent, keeper and containers.
    Stand(NodeId, Timestamp),
    /// It goes on.
    Wake(NodeId),
    /// The keeper of a host that stood still has ended what it held beyond its time.
    EndStale(NodeId),
    /// The operator drains a node.
    Drain(NodeId),
    /// The operator takes a drained node back.
    Restore(NodeId),
    /// Every service is killed, and started again at this time, with as many microseconds more on their
    /// hosts' clocks if these were rebooted, too. What is submitted meanwhile waits.
    Stop(Timestamp, Option<i64>),
    /// The log goes back.
    GoBack(Back),
    /// Any event of the operator.
    Operator(Event),
    /// Any event of the autoscaler.
    Autoscaler(Event),
    /// Any event, as it stands on a log: what nobody decides.
    Recorded(Writer, Event),
}

/// Why a run stopped early.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// An invariant is broken.
    #[error("event {sequence}: {what}")]
    Invariant {
        /// After which event.
        sequence: Sequence,
        /// Which.
        what: String,
    },
    /// The services never come to rest at one instant.
    #[error("the services append without end at {at}: the last event is {last}")]
    Livelock {
        /// When.
        at: Timestamp,
        /// The type that was appended last.
        last: String,
    },
}

/// At one instant no healthy cluster takes more turns than this.
const MOST_TURNS: usize = 400_000;

/// A cluster in memory.
pub struct Engine {
    now: Timestamp,
    log: MemoryLog,
    script: Schedule<Action>,
    ingress: u64,
    lives: BTreeMap<NodeId, u64>,
    /// The last life of each node that was lost.
    lost: BTreeMap<NodeId, u64>,
    /// The nodes' leases, by the policy on the log.
    term: LeaseTerm,
    services: [Box<dyn Participant>; 5],
    agents: ModelAgents,
    clients: Served,
    faults: Faults,
    audit: Audit,
    audits: bool,
    broker: Broker,
    /// Second agents that wait for their node's lease.
    seconds: BTreeMap<NodeId, Holder>,
    /// Where there are several.
    brokers: Option<Box<Brokers>>,
    /// Until when the services are stopped.
    stopped: Timestamp,
}

impl Engine {
    /// An empty, calm cluster at `start`. `check`: whether the services' invariants are checked
    /// after every event; the audit of the facts always is.
    #[must_use]
    pub fn new(start: Timestamp, check: bool) -> Self {
        Self::with_faults(start, check, Faults::none())
    }

    /// An empty cluster that is disturbed by `faults`.
    #[must_use]
    pub fn with_faults(start: Timestamp, check: bool, faults: Faults) -> Self {
        // The solver stops at its limit of nodes only: the same on every machine.
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
            lives: BTreeMap::new(),
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

    /// Decides allocations so, instead of in all the time that they take.
    #[must_use]
    pub fn deciding(mut self, optimizer: Optimizer) -> Self {
        self.services[1] = Box::new(Service::new(optimizer, false, &mut self.faults));
        self
    }

    /// The clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The log so far, but for what was taken away.
    #[must_use]
    pub fn log(&self) -> &[Arc<Recorded>] {
        self.log.events()
    }

    /// Takes the events away that every service has folded, so that a long run needs no more
    /// memory than a short one. Only on a calm cluster, whose services have all folded the log
    /// when an instant is over and never fold it again.
    pub fn take_events(&mut self) -> Vec<Arc<Recorded>> {
        self.log.take()
    }

    /// What is known of the facts.
    #[must_use]
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Lets `action` happen at `at`.
    pub fn at(&mut self, at: Timestamp, action: Action) {
        self.script.add(at.max(self.now), action);
    }

    /// How the job `id` behaves when it runs.
    pub fn model(&mut self, id: JobId, model: ModelJob) {
        self.agents.model(id, model);
    }

    /// The clients of a service, from `at` on for as long as it is there.
    pub fn serve(&mut self, id: JobId, clients: Clients, at: Timestamp) {
        self.clients.add(id, clients, at);
    }

    /// What clients saw since this was asked last, a second at a time.
    pub fn take_samples(&mut self) -> Vec<Sample> {
        self.clients.take_samples()
    }

    /// What the model agents know.
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

    /// When something is due next.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        let scripted = self.script.next_due();
        let services = self.services.iter().map(|service| service.due());
        let brokers = self.brokers.as_ref().and_then(|it| it.due());
        let models = [self.agents.next_due(), self.clients.next_due(), brokers];
        let all = services.chain([scripted]).chain(models);
        all.flatten().min()
    }

    /// The next instant: everything that is due then.
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
                let event = received(self.ingress, &tenant, &verb, None, &payload);
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

    /// What an event of a log says of nodes comes to be.
    fn comes_to_nodes(&mut self, event: &Event) {
        match event {
            Event::NodeJoined(event) => self.agents.joined(event, self.now),
            Event::NodeLost(event) => self.agents.lose(&event.node, self.now),
            Event::NodeFenced(event) => self.agents.lose(&event.node, self.now),
            _ => {}
        }
    }

    /// Step 3: until no service is due at this instant.
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

    /// Appends an event. `written`: the time that a decider gives it; what happens outside of them is
    /// written by a clock that is right, or by a node's. Several brokers take their time.
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

    /// When something is written that no decider writes.
    fn written(&mut self, writer: Writer, event: &Event) -> Timestamp {
        match event.key() {
            Key::Node(node) if writer == Writer::Node => self.by_host(node),
            _ if matches!(writer, Writer::Operator | Writer::Gateway) => self.now,
            _ => self.broker.log_time(self.now),
        }
    }

    /// What the clock of a node's host shows.
    fn by_host(&mut self, node: &NodeId) -> Timestamp {
        let (hosts, faults) = (&mut self.broker.hosts, &mut self.faults);
        let off_us = hosts.entry(node.clone());
        off(self.now, *off_us.or_insert_with(|| faults.clock_off_us()))
    }

    /// Lives of nodes' agents, and the terms of their leases.
    fn notes_life(&mut self, recorded: &Recorded) {
        match recorded.event() {
            Some(Event::ClusterConfigured(it)) => self.term = it.policy.lease(),
            Some(Event::NodeJoined(it)) => drop(self.lives.insert(it.node.clone(), it.incarnation)),
            Some(Event::NodeLost(it)) => drop(self.lost.insert(it.node.clone(), it.incarnation)),
            _ => {}
        }
    }

    /// An event is on the log.
    fn store(
        &mut self,
        writer: Writer,
        event: Event,
        written: Timestamp,
        stamp: Timestamp,
    ) -> Result<(), EngineError> {
        // Who takes the broker's stamp for his own time confirms every step.
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
        self.clients.fold(&recorded);
        if self.audits {
            self.audit.read(&recorded);
        }
        if let Some(what) = self.agents.world.broken() {
            let what = what.to_owned();
            return Err(EngineError::Invariant { sequence, what });
        }
        self.notes_life(&recorded);
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

/// The clocks of the brokers and of the nodes' hosts.
#[derive(Default)]
struct Broker {
    /// By how many microseconds the leader's is off.
    off_us: i64,
    /// The same of the hosts.
    hosts: BTreeMap<NodeId, i64>,
    /// The time of the log, and when it was read.
    clock: LogClock,
    passed: Timestamp,
}

impl Broker {
    /// What a decider would write that has folded the log.
    fn log_time(&self, now: Timestamp) -> Timestamp {
        self.clock.now().plus_ms(now.ms_since(self.passed))
    }
}
