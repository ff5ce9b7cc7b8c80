//! The agent's machine: what it is told, and what is to be done then.
//!
//! ```text
//!  inputs                                          effects
//!  hear       an event of the log         ┐      ┌  List      what runs here?
//!  caught_up  all of it was heard         │      │  Start, Stop, Evict, Save, Give, Forget
//!  lease      held, lost                  ├ Agent┤  Announce, Withdraw   who takes part
//!  listed     what runs, or has ended     │      │
//!  running, ended   a container           │      │
//!  say        what else is to be reported ┤
//!  stored     the last report             ┘      └  a report to append, one at a time
//! ```
//!
//! 1. It folds until it has caught up, and waits for the node's lease; nothing is touched before.
//! 2. It asks what runs and adopts it.
//! 3. From then on it reconciles whenever something was put in ([`Agent::turn`]). It starts nothing
//!    before it hears from the log that it has joined, and after a fence that it has again.
//! 4. Reports leave one after the other, each once the one before is stored.
//!
//! Every input only notes what has happened; [`Agent::next_effect`] hands out what is to be done, and
//! [`Agent::to_append`] what is to be said.

use std::collections::{BTreeSet, VecDeque};

use dormouse_messages::events::{Gpu, NodeJoined};
use dormouse_messages::{
    Amounts, ContainerId, Event, Fold as _, Incarnation, JobId, NodeId, Recorded, Sequence,
};

use crate::reconcile::{Action, Ending, Life, Machine, Observed, apply, reconcile};
use crate::state::{AgentState, Announced};
use crate::{Exit, report};

/// A reconciliation can make the next one possible (what was in the way is forgotten), not more
/// often than this in one turn.
const ROUNDS: usize = 8;

/// While more waits for the broker than this, progress is not added to it: the next one says
/// more.
const PROGRESS_BACKLOG: usize = 100;

/// What a node says of itself when it joins.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// Its `node.joined`, but for the life and what runs.
    pub joined: NodeJoined,
}

impl Offer {
    /// A node with this much room and nothing else to say of itself.
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

/// How far an agent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It folds what stands on the log.
    Folding {
        /// All of it was heard.
        caught_up: bool,
        /// The lease is held.
        leased: bool,
    },
    /// It has asked what runs.
    Listing,
    /// It acts.
    Live,
}

/// News of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    /// It is held (again).
    Held,
    /// It may end soon: everything ends now.
    Fence,
}

/// A container that was there before the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adopted {
    /// The container.
    pub container: ContainerId,
    /// The request that it was started for.
    pub request: Sequence,
    /// Its process, or how it ended.
    pub status: Result<u32, Exit>,
    /// Whether its eviction has begun.
    pub evicting: bool,
}

/// A report, and the requests that made it happen.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The event.
    pub event: Event,
    /// The requests, by their places on the log.
    pub causes: Vec<Sequence>,
}

/// Something for the agent's driver to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Look what runs, or has ended; answered by [`Agent::listed`].
    List,
    /// Start a container.
    Start(ContainerId, Sequence),
    /// Stop it as the job's grace allows.
    Stop(ContainerId),
    /// Take it away.
    Evict(ContainerId, String),
    /// Ask it to save.
    Save(ContainerId, Sequence),
    /// Give it the tasks of its orders up to this one.
    Give(ContainerId, Sequence),
    /// Its exit is on the log: free what the node still holds of it.
    Forget(ContainerId, Sequence),
    /// Tell the containers of a life here who takes part.
    Announce(JobId, Incarnation, Announced),
    /// The last container of a life here is forgotten: its members' file goes.
    Withdraw(JobId, Incarnation),
}

/// The machine.
#[derive(Debug, Clone)]
pub struct Agent {
    offer: Offer,
    state: AgentState,
    /// What the agent before had heard, where the log has gone back behind that.
    former: Option<Box<AgentState>>,
    machine: Machine,
    stage: Stage,
    /// Reconciliations that this turn has left.
    rounds: usize,
    effects: VecDeque<Effect>,
    reports: VecDeque<Report>,
    /// The first report is with the broker.
    appending: bool,
}

impl Agent {
    /// An agent that has heard what `state` holds; `leased` where it needs no lease.
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

    /// The same, where the log has gone back behind what the agent before had heard. Who was asked
    /// something since would take what is asked now for that, since numbers are given again: such a
    /// container ends. One that has ended since does not start once more.
    #[must_use]
    pub fn after(mut self, former: Option<AgentState>) -> Self {
        self.former = former.map(Box::new);
        self
    }

    /// What the log asks of the node.
    #[must_use]
    pub const fn state(&self) -> &AgentState {
        &self.state
    }

    /// What it has heard; until it has listed what runs, what the agent before had, where the log has gone
    /// back behind that.
    #[must_use]
    pub fn heard(&self) -> &AgentState {
        self.former.as_deref().unwrap_or(&self.state)
    }

    /// Whether containers that the log has gone back behind have yet to end.
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

    /// What runs on the node, as far as the agent knows.
    #[must_use]
    pub const fn machine(&self) -> &Machine {
        &self.machine
    }

    /// How far it is.
    #[must_use]
    pub const fn stage(&self) -> Stage {
        self.stage
    }

    /// What the node says of itself when it joins.
    #[must_use]
    pub const fn offer(&self) -> &Offer {
        &self.offer
    }

    /// The node.
    #[must_use]
    pub const fn node(&self) -> &NodeId {
        &self.offer.joined.node
    }

    /// A snapshot of its fold, from which another agent of the node goes on.
    #[must_use]
    pub fn into_state(self) -> AgentState {
        self.state
    }

    /// The next event of the log; a type in a version that this build does not know, if one was met.
    pub fn hear(&mut self, recorded: &Recorded) -> Option<String> {
        self.state.evolve(recorded);
        // A fold comes out again: nothing of this node was lost.
        self.former
            .take_if(|former| former.folded == self.state.folded && **former == self.state);
        self.state.too_new.take()
    }

    /// Everything that stood on the log was heard.
    pub fn caught_up(&mut self) {
        if let Stage::Folding { caught_up, .. } = &mut self.stage {
            *caught_up = true;
        }
        self.begin_if_ready();
    }

    /// News of the lease; whether they end a fence.
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

    /// What the log has gone back behind of what it asks for.
    fn set_back(&mut self) -> BTreeSet<(ContainerId, Sequence)> {
        let Some(former) = self.former.take() else {
            return BTreeSet::new();
        };
        // A partition that is not there any more was done with; or it was asked for since the log went
        // back, under a number of before: then it is asked for once more.
        let wanted = self.state.wanted().into_iter();
        let behind = wanted.filter(|(id, want)| {
            want.request <= former.folded && self.state.asks_otherwise(&former, id)
        });
        behind.map(|(id, want)| (id, want.request)).collect()
    }

    /// What was there before the agent: from now on it acts.
    pub fn listed(&mut self, found: impl IntoIterator<Item = Adopted>) {
        self.machine.set_back = self.set_back();
        for found in found {
            let life = match found.status {
                Ok(pid) => Life::Running(pid),
                Err(exit) => Life::Ended(exit),
            };
            let mut seen = Observed::new(found.request, life);
            if found.evicting {
                seen.ending = Ending::Evicting;
            }
            self.machine.containers.insert(found.container, seen);
        }
        self.stage = Stage::Live;
    }

    /// The log has it already that this life of the agent has joined.
    pub fn has_joined(&mut self, life: u64) {
        self.machine.joined = Some(life);
    }

    /// A container runs.
    pub fn running(&mut self, id: &ContainerId, pid: u32) {
        if let Some(seen) = self.machine.containers.get_mut(id)
            && seen.life == Life::Starting
        {
            seen.life = Life::Running(pid);
        }
    }

    /// A container has ended, or could not start.
    pub fn ended(&mut self, id: &ContainerId, exit: Exit) {
        if let Some(seen) = self.machine.containers.get_mut(id) {
            seen.life = Life::Ended(exit);
        }
    }

    /// The containers of a life could not be told who takes part: they are told again.
    pub fn untold(&mut self, life: &(JobId, Incarnation)) {
        self.machine.told.remove(life);
    }

    /// Something else is to be reported, after what waits.
    pub fn say(&mut self, event: impl Into<Event>, causes: Vec<Sequence>) {
        let event = event.into();
        self.reports.push_back(Report { event, causes });
    }

    /// Whether progress may be reported.
    #[must_use]
    pub fn takes_progress(&self) -> bool {
        self.reports.len() < PROGRESS_BACKLOG
    }

    /// How many reports are not stored yet, and containers whose end was not heard from the log: the node
    /// still holds something of them.
    #[must_use]
    pub fn unsettled(&self) -> usize {
        let seen = self.machine.containers.values();
        let ended = seen.filter(|it| matches!(it.life, Life::Ended(_)));
        self.reports.len() + ended.count()
    }

    /// The report that was to be appended is stored, or can never be.
    pub fn stored(&mut self) {
        if std::mem::take(&mut self.appending) {
            self.reports.pop_front();
        }
    }

    /// Something was put in: from here on [`Self::next_effect`] reconciles.
    pub fn turn(&mut self) {
        self.rounds = ROUNDS;
    }

    /// What is to be done next, if anything.
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

    /// The report that is to be appended now, if any; answered by [`Self::stored`].
    pub fn to_append(&mut self) -> Option<Report> {
        let report = self.reports.front().filter(|_| !self.appending)?;
        self.appending = true;
        Some(report.clone())
    }

    /// Whether there is something new to do.
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
        let effect = match action {
            Action::Start(id, request) => Effect::Start(id, request),
            Action::Stop(id) => Effect::Stop(id),
            Action::Evict(id, reason) => Effect::Evict(id, reason),
            Action::Save(id, request) => Effect::Save(id, request),
            Action::Give(id, order) => Effect::Give(id, order),
            Action::Forget(id, request) => Effect::Forget(id, request),
            Action::Announce(job, incarnation, announced) => {
                Effect::Announce(job, incarnation, announced)
            }
            Action::Withdraw(job, incarnation) => Effect::Withdraw(job, incarnation),
            Action::TellStarted(id, pid) => {
                let causes = self.state.causes(&id);
                let event = report::started(&id, self.node(), pid);
                return self.say(event, causes);
            }
            Action::TellExited(id, _, exit) => {
                let causes = self.state.causes(&id);
                if let Some(fault) = exit.fault {
                    let event = report::faulted(&id, self.node(), fault, &exit);
                    self.say(event, causes.clone());
                }
                let event = report::exited(&id, self.node(), exit);
                return self.say(event, causes);
            }
            Action::Join(incarnation, running) => {
                let joined = NodeJoined {
                    incarnation,
                    running,
                    ..self.offer.joined.clone()
                };
                return self.say(joined, Vec::new());
            }
        };
        self.effects.push_back(effect);
    }
}

#[cfg(test)]
mod tests;
