//! Returns the actions that bring the node's containers ([`Machine`]) to the folded log ([`AgentState`]).
//!
//! 1. Unwanted containers are evicted; while fenced, all are.
//! 2. Wanted containers start, once no other incarnation of their job runs here.
//! 3. Starts, exits and losses are reported.
//! 4. Members resized in place are announced before the first of them starts here and after every change.
//! 5. When nothing is left to evict, the agent joins. Nothing starts before the log confirms the join: by
//!    then the agent has folded all requests from the time without a lease.
//!
//! Invariant: no container runs twice, nor next to another incarnation of its job. [`apply`] records begun
//! actions, which are not returned again.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::{ContainerId, Incarnation, JobId, Rank, Sequence};

use crate::Exit;
use crate::state::{AgentState, Announced, Known, Want, Wanted};

/// This process's view of its node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// The incarnation in which this process joined.
    pub joined: Option<u64>,
    /// The lease could not be renewed in time.
    pub fenced: bool,
    pub containers: BTreeMap<ContainerId, Observed>,
    /// The members last announced to each incarnation.
    pub told: BTreeMap<(JobId, Incarnation), Announced>,
    /// Containers by start request, for which a rollback lost requests or results.
    pub set_back: BTreeSet<(ContainerId, Sequence)>,
}

/// A container on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    pub request: Sequence,
    pub process: ProcessState,
    pub ending: Ending,
    /// The last fact that this process reported.
    pub told: Known,
    /// The last save request passed on.
    pub asked: Option<Sequence>,
    /// The last task order passed on.
    pub given: Option<Sequence>,
}

/// The process state of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessState {
    Starting,
    /// Running, with its process id.
    Running(u32),
    Ended(Exit),
}

/// The way in which a container is being ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    No,
    Stopping,
    Evicting,
}

/// An action of the agent: work on the node, or a fact to append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Do(Effect),
    TellStarted(ContainerId, u32),
    TellExited(ContainerId, Sequence, Exit),
    /// Append `node.joined` with the running containers.
    Join(u64, Vec<ContainerId>),
}

/// Work on the node, for the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Answered by [`crate::Agent::listed`].
    List,
    Start(ContainerId, Sequence),
    Stop(ContainerId),
    Evict(ContainerId, String),
    Save(ContainerId, Sequence),
    /// Hand a container its task orders up to this one.
    Give(ContainerId, Sequence),
    /// Free a container's record, as its exit is on the log.
    Forget(ContainerId, Sequence),
    /// Tell the containers of an incarnation their members.
    Announce(JobId, Incarnation, Announced),
    /// Delete the members' file of an incarnation without containers here.
    Withdraw(JobId, Incarnation),
}

impl From<Effect> for Action {
    fn from(effect: Effect) -> Self {
        Self::Do(effect)
    }
}

/// Reason for evictions while fenced.
pub const FENCED: &str = "fenced: the node's lease could not be renewed in time";

const SET_BACK: &str =
    "the log went back: it no longer holds what this container was asked, or that it had ended";

impl Observed {
    /// Returns an unreported container.
    #[must_use]
    pub const fn new(request: Sequence, process: ProcessState) -> Self {
        Self {
            request,
            process,
            ending: Ending::No,
            told: Known::Nothing,
            asked: None,
            given: None,
        }
    }

    /// True if a process may exist.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        !matches!(self.process, ProcessState::Ended(_))
    }
}

impl Machine {
    fn has_other_incarnation(&self, container: &ContainerId) -> bool {
        let first = ContainerId {
            job: container.job.clone(),
            incarnation: Incarnation(0),
            rank: Rank(0),
        };
        self.containers
            .range(first..)
            .take_while(|(id, _)| id.job == container.job)
            .any(|(id, seen)| id.incarnation != container.incarnation && seen.is_live())
    }

    fn is_set_back(&self, id: &ContainerId, want: &Wanted) -> bool {
        !self.set_back.is_empty() && self.set_back.contains(&(id.clone(), want.request))
    }

    /// True if this process has to join, or join again.
    #[must_use]
    pub fn must_join(&self, state: &AgentState) -> bool {
        !self.fenced
            && self
                .joined
                .is_none_or(|incarnation| state.own().lost.is_some_and(|lost| lost >= incarnation))
    }

    /// True if the log confirms the join.
    fn has_joined(&self, state: &AgentState) -> bool {
        let joined = self.joined;
        joined.is_some_and(|incarnation| state.own().incarnation >= incarnation)
    }
}

/// Returns the due actions.
#[must_use]
pub fn reconcile(state: &AgentState, machine: &Machine) -> Vec<Action> {
    let wanted = state.wanted();
    let must_join = machine.must_join(state);
    let may_start = !machine.fenced && !must_join && machine.has_joined(state);
    let mut actions = announcements(state, machine, &wanted);
    let mut leaving = false;
    for (id, seen) in &machine.containers {
        let want = wanted.get(id).filter(|want| want.request == seen.request);
        if !seen.is_live() {
            let is_set_back = want.is_some_and(|want| machine.is_set_back(id, want));
            let why = is_set_back.then(|| SET_BACK.to_owned());
            ended(id, seen, (want, why), &mut actions);
            continue;
        }
        match eviction(id, want, machine) {
            Some(reason) => {
                leaving = true;
                if seen.ending != Ending::Evicting {
                    actions.push(Effect::Evict(id.clone(), reason).into());
                }
            }
            None => {
                leaving |= seen.ending == Ending::Evicting;
                if let Some(want) = want {
                    live(id, seen, want, &mut actions);
                }
            }
        }
    }
    if must_join && leaving {
        return actions;
    }
    // The join first tells why containers never started.
    if must_join {
        actions.push(join(state, machine));
    }
    for (id, want) in &wanted {
        if !machine.containers.contains_key(id) {
            absent(id, want, machine, may_start, &mut actions);
        }
    }
    actions
}

/// Returns announcements of members and withdrawals of unread ones.
fn announcements(
    state: &AgentState,
    machine: &Machine,
    wanted: &BTreeMap<ContainerId, Wanted>,
) -> Vec<Action> {
    let key = |id: &ContainerId| (id.job.clone(), id.incarnation);
    let runs = wanted.iter().filter(|(_, want)| want.want == Want::Run);
    let incarnations: BTreeSet<_> = runs.map(|(id, _)| key(id)).collect();
    let mut actions = Vec::new();
    for (job, incarnation) in &incarnations {
        let partition = state.jobs.get(job);
        let partition = partition.and_then(|job| job.partitions.get(incarnation));
        let members = partition.and_then(|partition| partition.members.as_ref());
        let told = machine.told.get(&(job.clone(), *incarnation));
        if let Some(members) = members
            && told != Some(&members.announced)
        {
            let announced = members.announced.clone();
            actions.push(Effect::Announce(job.clone(), *incarnation, announced).into());
        }
    }
    let held: BTreeSet<_> = machine.containers.keys().map(key).collect();
    let unread = machine.told.keys();
    let unread = unread.filter(|key| !incarnations.contains(key) && !held.contains(key));
    actions.extend(
        unread.map(|(job, incarnation)| Effect::Withdraw(job.clone(), *incarnation).into()),
    );
    actions
}

fn eviction(id: &ContainerId, want: Option<&Wanted>, machine: &Machine) -> Option<String> {
    match want.map(|want| &want.want) {
        _ if machine.fenced => Some(FENCED.to_owned()),
        _ if want.is_some_and(|want| machine.is_set_back(id, want)) => Some(SET_BACK.to_owned()),
        None => Some("the log does not ask for it".to_owned()),
        Some(Want::Gone(reason)) => Some(reason.clone()),
        Some(Want::Run | Want::Stop) => None,
    }
}

fn live(id: &ContainerId, seen: &Observed, want: &Wanted, actions: &mut Vec<Action>) {
    if let ProcessState::Running(pid) = seen.process
        && want.known == Known::Nothing
        && seen.told == Known::Nothing
    {
        actions.push(Action::TellStarted(id.clone(), pid));
    }
    if let Some(order) = want.order
        && seen.given < Some(order)
        && want.want == Want::Run
    {
        actions.push(Effect::Give(id.clone(), order).into());
    }
    if want.want == Want::Stop {
        if seen.ending == Ending::No {
            actions.push(Effect::Stop(id.clone()).into());
        }
    } else if let Some(save) = want.save
        && matches!(seen.process, ProcessState::Running(_))
        && seen.asked < Some(save)
        && seen.ending == Ending::No
    {
        actions.push(Effect::Save(id.clone(), save).into());
    }
}

/// `why` is an eviction reason unknown to the log.
fn ended(
    id: &ContainerId,
    seen: &Observed,
    (want, why): (Option<&Wanted>, Option<String>),
    actions: &mut Vec<Action>,
) {
    match (&seen.process, want) {
        (ProcessState::Ended(exit), Some(want)) if seen.told != Known::Exited => {
            let exit = exit.clone().with_eviction(why);
            actions.push(Action::TellExited(id.clone(), want.request, exit));
        }
        (_, Some(_)) => {}
        (_, None) => actions.push(Effect::Forget(id.clone(), seen.request).into()),
    }
}

fn absent(
    id: &ContainerId,
    want: &Wanted,
    machine: &Machine,
    may_start: bool,
    actions: &mut Vec<Action>,
) {
    let never = |reason: String| Exit::evicted(format!("it never started: {reason}"));
    let exit = match (&want.want, want.known) {
        (_, Known::Started | Known::Exited) => Exit::evicted(
            "it is gone without an exit record: killed with its supervisor, or the machine \
             restarted"
                .to_owned(),
        ),
        (Want::Gone(reason), Known::Nothing) => never(reason.clone()),
        (Want::Stop, Known::Nothing) => never("its stop was requested first".to_owned()),
        (Want::Run, Known::Nothing) if machine.is_set_back(id, want) => never(SET_BACK.to_owned()),
        (Want::Run, Known::Nothing) => {
            if may_start && !machine.has_other_incarnation(id) {
                actions.push(Effect::Start(id.clone(), want.request).into());
            }
            return;
        }
    };
    actions.push(Action::TellExited(id.clone(), want.request, exit));
}

fn next_incarnation(state: &AgentState, machine: &Machine) -> u64 {
    let own = state.own();
    let last = own.incarnation.max(machine.joined.unwrap_or(0));
    last.max(own.lost.unwrap_or(0)) + 1
}

fn join(state: &AgentState, machine: &Machine) -> Action {
    let live = |(id, seen): (&ContainerId, &Observed)| seen.is_live().then(|| id.clone());
    let running = machine.containers.iter().filter_map(live).collect();
    Action::Join(next_incarnation(state, machine), running)
}

/// Records a begun action.
pub fn apply(machine: &mut Machine, action: &Action) {
    let containers = &mut machine.containers;
    match action {
        Action::Do(effect) => begun(machine, effect),
        Action::TellStarted(id, _) => set(containers, id, |seen| seen.told = Known::Started),
        Action::TellExited(id, request, exit) => {
            let seen = containers
                .entry(id.clone())
                .or_insert_with(|| Observed::new(*request, ProcessState::Ended(exit.clone())));
            seen.told = Known::Exited;
        }
        Action::Join(incarnation, _) => machine.joined = Some(*incarnation),
    }
}

fn begun(machine: &mut Machine, effect: &Effect) {
    let containers = &mut machine.containers;
    match effect {
        Effect::List => {}
        Effect::Start(id, request) => {
            containers.insert(id.clone(), Observed::new(*request, ProcessState::Starting));
        }
        Effect::Stop(id) => set(containers, id, |seen| seen.ending = Ending::Stopping),
        Effect::Evict(id, _) => set(containers, id, |seen| seen.ending = Ending::Evicting),
        Effect::Save(id, request) => set(containers, id, |seen| seen.asked = Some(*request)),
        Effect::Give(id, order) => set(containers, id, |seen| seen.given = Some(*order)),
        Effect::Forget(id, _) => {
            containers.remove(id);
        }
        Effect::Announce(job, incarnation, announced) => {
            let key = (job.clone(), *incarnation);
            machine.told.insert(key, announced.clone());
        }
        Effect::Withdraw(job, incarnation) => {
            machine.told.remove(&(job.clone(), *incarnation));
        }
    }
}

fn set(
    containers: &mut BTreeMap<ContainerId, Observed>,
    id: &ContainerId,
    change: impl FnOnce(&mut Observed),
) {
    if let Some(seen) = containers.get_mut(id) {
        change(seen);
    }
}
