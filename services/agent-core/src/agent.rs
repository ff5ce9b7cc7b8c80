//! The agent as a sans-IO state machine: inputs record what happened, [`Agent::next_effect`] returns work for
//! the driver, [`Agent::to_append`] returns reports.
//!
//! 1. The agent folds the log and waits for the lease, before it changes anything on the node.
//! 2. It lists and adopts the containers on the node.
//! 3. It reconciles after every input ([`Agent::turn`]), but starts nothing before the log confirms its join,
//!    nor after a fence before the next join.
//! 4. Reports leave one at a time, each after the previous is stored.

use std::collections::{BTreeSet, VecDeque};

use dormouse_messages::events::{Gpu, NodeJoined};
use dormouse_messages::{
    Amounts, ContainerId, Event, Fold as _, Incarnation, JobId, NodeId, Recorded, Sequence,
};

use crate::reconcile::{Action, Effect, Ending, Machine, Observed, ProcessState, apply, reconcile};
use crate::state::AgentState;
use crate::{Exit, report};

/// Limit on reconciliations per turn; one can enable the next.
const ROUNDS: usize = 8;

/// From this many queued reports on, progress is not reported: the next progress report says more.
const PROGRESS_BACKLOG: usize = 100;

/// A node's description for its join.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    pub joined: NodeJoined,
}

impl Offer {
    /// Returns a node with this capacity and little else.
    #[must_use]
    pub fn plain(node: NodeId, capacity: Amounts, runtime: &str) -> Self {
        let joined = NodeJoined {
            node,
            gpus: Gpu::stand_ins(&capacity),
            capacity,
            labels: Default::default(),
            incarnation: 0,
            running: Vec::new(),
            address: String::new(),
            runtime: runtime.to_owned(),
            taints: Default::default(),
        };
        Self { joined }
    }
}

/// Startup progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Folding {
        /// The existing log is folded.
        caught_up: bool,
        leased: bool,
    },
    Listing,
    Live,
}

/// A change of the node's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    Held,
    /// The lease may end soon: all containers end now.
    Fence,
}

/// A container older than this agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adopted {
    pub container: ContainerId,
    pub request: Sequence,
    /// Process id, or exit.
    pub status: Result<u32, Exit>,
    pub evicting: bool,
}

/// A report and its causes.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub event: Event,
    pub causes: Vec<Sequence>,
}

/// The agent of one node.
#[derive(Debug, Clone)]
pub struct Agent {
    offer: Offer,
    state: AgentState,
    /// The previous agent's fold, if the log was rolled back behind it.
    former: Option<Box<AgentState>>,
    machine: Machine,
    stage: Stage,
    rounds: usize,
    effects: VecDeque<Effect>,
    reports: VecDeque<Report>,
    appending: bool,
}

impl Agent {
    /// Creates an agent from its fold. `leased` is true if no lease is needed.
    #[must_use]
    pub fn new(offer: Offer, state: AgentState, leased: bool) -> Self {
        Self {
            offer,
            state,
            former: None,
            machine: Machine::default(),
            stage: Stage::Folding {
                caught_up: false,
                leased,
            },
            rounds: 0,
            effects: VecDeque::new(),
            reports: VecDeque::new(),
            appending: false,
        }
    }

    /// Adds the previous agent's fold, if the log was rolled back behind it.
    ///
    /// The log then reuses sequence numbers, so a container could take a new request for an old one.
    /// Containers with requests or results in the lost part end, and do not start again if they had ended
    /// there.
    #[must_use]
    pub fn after(mut self, former: Option<AgentState>) -> Self {
        self.former = former.map(Box::new);
        self
    }

    /// Returns the folded requests to this node.
    #[must_use]
    pub const fn state(&self) -> &AgentState {
        &self.state
    }

    /// Returns the fold; after a rollback, until the containers are listed, the previous agent's.
    #[must_use]
    pub fn heard(&self) -> &AgentState {
        self.former.as_deref().unwrap_or(&self.state)
    }

    /// True while containers affected by a rollback have yet to end.
    #[must_use]
    pub fn has_set_back(&self) -> bool {
        let set_back = &self.machine.set_back;
        let wanted = (!set_back.is_empty()).then(|| self.state.wanted());
        let is_wanted = |(id, request): &(ContainerId, Sequence)| {
            let want = wanted.as_ref().and_then(|wanted| wanted.get(id));
            want.is_some_and(|want| want.request == *request)
        };
        set_back.iter().any(is_wanted)
    }

    /// Returns the known containers of the node.
    #[must_use]
    pub const fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Returns the startup progress.
    #[must_use]
    pub const fn stage(&self) -> Stage {
        self.stage
    }

    /// Returns the node's description of itself.
    #[must_use]
    pub const fn offer(&self) -> &Offer {
        &self.offer
    }

    /// Returns the node's id.
    #[must_use]
    pub const fn node(&self) -> &NodeId {
        &self.offer.joined.node
    }

    /// Returns the fold, from which another agent can continue.
    #[must_use]
    pub fn into_state(self) -> AgentState {
        self.state
    }

    /// Folds one event. Returns a known event type in an unknown version.
    pub fn hear(&mut self, recorded: &Recorded) -> Option<String> {
        self.state.evolve(recorded);
        // The rollback lost nothing of this node.
        self.former
            .take_if(|former| former.folded == self.state.folded && **former == self.state);
        self.state.too_new.take()
    }

    /// Records that the existing log is folded.
    pub fn caught_up(&mut self) {
        if let Stage::Folding { caught_up, .. } = &mut self.stage {
            *caught_up = true;
        }
        self.begin_if_ready();
    }

    /// Records news of the lease and reports whether a fence ends.
    pub fn lease(&mut self, news: Lease) -> bool {
        match news {
            Lease::Held => {
                if let Stage::Folding { leased, .. } = &mut self.stage {
                    *leased = true;
                }
                self.begin_if_ready();
                if self.machine.fenced {
                    self.machine.fenced = false;
                    self.machine.joined = None;
                    return true;
                }
            }
            Lease::Fence => self.machine.fenced = true,
        }
        false
    }

    fn begin_if_ready(&mut self) {
        let ready = Stage::Folding {
            caught_up: true,
            leased: true,
        };
        if self.stage == ready {
            self.stage = Stage::Listing;
            self.effects.push_back(Effect::List);
        }
    }

    /// Returns the wanted containers with requests or results lost in the rollback.
    fn set_back(&mut self) -> BTreeSet<(ContainerId, Sequence)> {
        let Some(former) = self.former.take() else {
            return BTreeSet::new();
        };
        // A partition missing here had ended. One that the new log starts, perhaps under an old number,
        // starts once more.
        let wanted = self.state.wanted().into_iter();
        let behind = wanted.filter(|(id, want)| {
            want.request <= former.folded && self.state.asks_otherwise(&former, id)
        });
        behind.map(|(id, want)| (id, want.request)).collect()
    }

    /// Adopts the containers found on the node and begins to act.
    pub fn listed(&mut self, found: impl IntoIterator<Item = Adopted>) {
        self.machine.set_back = self.set_back();
        for found in found {
            let process = match found.status {
                Ok(pid) => ProcessState::Running(pid),
                Err(exit) => ProcessState::Ended(exit),
            };
            let mut seen = Observed::new(found.request, process);
            if found.evicting {
                seen.ending = Ending::Evicting;
            }
            self.machine.containers.insert(found.container, seen);
        }
        self.stage = Stage::Live;
    }

    /// Records that the log holds this agent's join.
    pub fn has_joined(&mut self, incarnation: u64) {
        self.machine.joined = Some(incarnation);
    }

    /// Records that a container runs.
    pub fn running(&mut self, id: &ContainerId, pid: u32) {
        if let Some(seen) = self.machine.containers.get_mut(id)
            && seen.process == ProcessState::Starting
        {
            seen.process = ProcessState::Running(pid);
        }
    }

    /// Records that a container ended or could not start.
    pub fn ended(&mut self, id: &ContainerId, exit: Exit) {
        if let Some(seen) = self.machine.containers.get_mut(id) {
            seen.process = ProcessState::Ended(exit);
        }
    }

    /// Repeats the announcement of an incarnation's members.
    pub fn untold(&mut self, id: &(JobId, Incarnation)) {
        self.machine.told.remove(id);
    }

    /// Queues another report.
    pub fn say(&mut self, event: impl Into<Event>, causes: Vec<Sequence>) {
        let event = event.into();
        self.reports.push_back(Report { event, causes });
    }

    /// Reports whether progress may be queued.
    #[must_use]
    pub fn takes_progress(&self) -> bool {
        self.reports.len() < PROGRESS_BACKLOG
    }

    /// Returns the number of queued reports and of exits that the log does not confirm yet.
    #[must_use]
    pub fn unsettled(&self) -> usize {
        let seen = self.machine.containers.values();
        let ended = seen.filter(|it| matches!(it.process, ProcessState::Ended(_)));
        self.reports.len() + ended.count()
    }

    /// Drops the pending report, which is stored or can never be.
    pub fn stored(&mut self) {
        if std::mem::take(&mut self.appending) {
            self.reports.pop_front();
        }
    }

    /// Allows reconciliations after an input.
    pub fn turn(&mut self) {
        self.rounds = ROUNDS;
    }

    /// Returns the next work for the driver.
    pub fn next_effect(&mut self) -> Option<Effect> {
        loop {
            if let Some(effect) = self.effects.pop_front() {
                return Some(effect);
            }
            if !self.reconciles() {
                return None;
            }
        }
    }

    /// Returns the report to append; answered by [`Self::stored`].
    pub fn to_append(&mut self) -> Option<Report> {
        let report = self.reports.front().filter(|_| !self.appending)?;
        self.appending = true;
        Some(report.clone())
    }

    fn reconciles(&mut self) -> bool {
        if self.stage != Stage::Live || self.rounds == 0 {
            return false;
        }
        self.rounds -= 1;
        let actions = reconcile(&self.state, &self.machine);
        if actions.is_empty() {
            self.rounds = 0;
            return false;
        }
        for action in actions {
            apply(&mut self.machine, &action);
            self.take(action);
        }
        true
    }

    fn take(&mut self, action: Action) {
        match action {
            Action::Do(effect) => self.effects.push_back(effect),
            Action::TellStarted(id, pid) => {
                let causes = self.state.causes(&id);
                let event = report::started(&id, self.node(), pid);
                self.say(event, causes);
            }
            Action::TellExited(id, _, exit) => {
                let causes = self.state.causes(&id);
                if let Some(fault) = exit.fault {
                    let event = report::faulted(&id, self.node(), fault, &exit);
                    self.say(event, causes.clone());
                }
                let event = report::exited(&id, self.node(), exit);
                self.say(event, causes);
            }
            Action::Join(incarnation, running) => {
                let joined = NodeJoined {
                    incarnation,
                    running,
                    ..self.offer.joined.clone()
                };
                self.say(joined, Vec::new());
            }
        }
    }
}

#[cfg(test)]
mod tests;
