//! The same services over a log in memory, with a virtual clock and model agents.
//!
//! 1. What the script says for this instant happens: submissions, nodes that join, leave, drain.
//! 2. What the model agents are due to report is appended ([`agents`]).
//! 3. Every service folds the new events and decides, in turn, until none appends anything: the
//!    services' own `evolve` and `decide`, with the basis that the live shell records.
//! 4. The clock jumps to the next instant at which something is due.
//!
//! After every event the services' invariants and the [`crate::Audit`] of the facts are checked.

pub mod agents;
mod service;

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_admission::{Admission, received};
use dormouse_checkpointer::Checkpointer;
use dormouse_messages::events::{NodeDrained, NodeJoined, NodeLost, NodeRestored};
use dormouse_messages::{
    Amounts, Envelope, Event, JobId, NodeId, Proposal, Recorded, Sequence, Timestamp, Writer,
};
use dormouse_optimizer::Optimizer;
use dormouse_placer::Placer;

use crate::audit::Audit;
use agents::{ModelAgents, ModelJob};
use service::Service;

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
    /// The operator drains a node.
    Drain(NodeId),
    /// The operator takes a drained node back.
    Restore(NodeId),
    /// Any event of the operator.
    Operator(Event),
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

/// At one instant no healthy cluster appends more than this for each job and node.
const MOST_ROUNDS: usize = 100_000;

/// A cluster in memory.
pub struct Engine {
    now: Timestamp,
    events: Vec<Arc<Recorded>>,
    script: BTreeMap<(Timestamp, u64), Action>,
    scripted: u64,
    ingress: u64,
    lives: BTreeMap<NodeId, u64>,
    admission: Service<Admission>,
    optimizer: Service<Optimizer>,
    placer: Service<Placer>,
    checkpointer: Service<Checkpointer>,
    agents: ModelAgents,
    audit: Audit,
    check: bool,
}

impl Engine {
    /// An empty cluster at `start`. `check`: whether invariants are checked after every event.
    #[must_use]
    pub fn new(start: Timestamp, check: bool) -> Self {
        Self {
            now: start,
            events: Vec::new(),
            script: BTreeMap::new(),
            scripted: 0,
            ingress: 0,
            lives: BTreeMap::new(),
            admission: Service::new(Admission),
            optimizer: Service::new(Optimizer::default()),
            placer: Service::new(Placer),
            checkpointer: Service::new(Checkpointer::default()),
            agents: ModelAgents::default(),
            audit: Audit::default(),
            check,
        }
    }

    /// The clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The log so far.
    #[must_use]
    pub fn log(&self) -> &[Arc<Recorded>] {
        &self.events
    }

    /// Lets `action` happen at `at`.
    pub fn at(&mut self, at: Timestamp, action: Action) {
        self.scripted += 1;
        self.script
            .insert((at.max(self.now), self.scripted), action);
    }

    /// How the job `id` behaves when it runs.
    pub fn model(&mut self, id: JobId, model: ModelJob) {
        self.agents.model(id, model);
    }

    /// Runs until nothing is due at or before `until`.
    ///
    /// # Errors
    /// A broken invariant, or a livelock.
    pub fn run_until(&mut self, until: Timestamp) -> Result<(), EngineError> {
        while let Some(next) = self.next_due().filter(|next| *next <= until) {
            self.now = self.now.max(next);
            while let Some(action) = self.next_action() {
                self.act(action)?;
            }
            for (node, event) in self.agents.due(self.now) {
                let _ = node;
                self.append(Writer::Node, Proposal::new(event, self.head()))?;
            }
            self.settle()?;
        }
        self.now = self.now.max(until);
        Ok(())
    }

    fn next_due(&self) -> Option<Timestamp> {
        let wakes = [
            self.script.keys().next().map(|(at, _)| *at),
            self.agents.next_due(),
            self.admission.wake,
            self.optimizer.wake,
            self.placer.wake,
            self.checkpointer.wake,
        ];
        wakes.into_iter().flatten().min()
    }

    fn next_action(&mut self) -> Option<Action> {
        let entry = self.script.first_entry()?;
        (entry.key().0 <= self.now).then(|| entry.remove())
    }

    fn act(&mut self, action: Action) -> Result<(), EngineError> {
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
                let life = self.lives.entry(node.clone()).or_insert(0);
                *life += 1;
                (Writer::Node, joined(node, capacity, *life))
            }
            Action::Lose(node) => {
                self.agents.lose(&node);
                let incarnation = self.lives.get(&node).copied().unwrap_or(0);
                let lost = NodeLost {
                    node,
                    incarnation,
                    last_seen: self.now,
                };
                (Writer::Placer, Event::from(lost))
            }
            Action::Drain(node) => (Writer::Operator, Event::from(NodeDrained { node })),
            Action::Restore(node) => (Writer::Operator, Event::from(NodeRestored { node })),
            Action::Operator(event) => (Writer::Operator, event),
        };
        self.append(writer, Proposal::new(event, self.head()))
    }

    /// Step 3: until no service appends anything.
    fn settle(&mut self) -> Result<(), EngineError> {
        for _ in 0..MOST_ROUNDS {
            let before = self.events.len();
            for round in 0..4 {
                let proposals = match round {
                    0 => self.admission.decide(self.now),
                    1 => self.optimizer.decide(self.now),
                    2 => self.placer.decide(self.now),
                    _ => self.checkpointer.decide(self.now),
                };
                for (writer, proposal) in proposals {
                    self.append(writer, proposal)?;
                }
            }
            if self.events.len() == before {
                return Ok(());
            }
        }
        let last = self.events.last().and_then(|recorded| recorded.event());
        Err(EngineError::Livelock {
            at: self.now,
            last: last.map_or("", Event::type_name).to_owned(),
        })
    }

    fn head(&self) -> Sequence {
        Sequence(self.events.len() as u64)
    }

    fn append(&mut self, writer: Writer, proposal: Proposal) -> Result<(), EngineError> {
        let sequence = self.head().next();
        let id = format!("{writer}-{sequence}");
        let recorded = Arc::new(Recorded {
            sequence,
            stored_at: self.now,
            writer,
            envelope: Envelope::new(id, writer, self.now, None, proposal.event),
        });
        self.events.push(Arc::clone(&recorded));
        let broken = [
            self.admission.fold(&recorded, self.check),
            self.optimizer.fold(&recorded, self.check),
            self.placer.fold(&recorded, self.check),
            self.checkpointer.fold(&recorded, self.check),
        ];
        self.agents.fold(&recorded, self.now);
        if let Some(what) = broken.into_iter().flatten().next() {
            return Err(EngineError::Invariant { sequence, what });
        }
        self.audit.read(&recorded);
        match self.audit.violations().first() {
            Some(violation) => Err(EngineError::Invariant {
                sequence,
                what: violation.what.clone(),
            }),
            None => Ok(()),
        }
    }
}

fn joined(node: NodeId, capacity: Amounts, incarnation: u64) -> Event {
    Event::from(NodeJoined {
        node,
        capacity,
        labels: BTreeMap::new(),
        gpus: Vec::new(),
        incarnation,
        running: Vec::new(),
        address: String::new(),
        runtime: "model".to_owned(),
    })
}
