//! What to do now: the difference between what the log wants and what this machine does.
//!
//! Inputs: the folded log ([`AgentState`]), what was observed on the machine ([`Machine`]).
//! 1. Whatever runs and is not wanted is evicted; while the agent is fenced, everything is.
//! 2. Whatever is wanted and neither runs nor has exited is started, once no other incarnation
//!    of its job runs here.
//! 3. What the log does not know yet is told: starts, exits, containers that vanished.
//! 4. Where containers come and go within a life, its members are told who takes part: before the
//!    first of them starts here, and after every change.
//! 5. When nothing is left to evict, the agent joins. Nothing is started before it hears from the log
//!    that it has: then it has heard all that was asked of the node, and taken back, while its
//!    lease was not held.
//!
//! Invariant: no container runs twice, none beside another incarnation of its job. [`apply`]
//! records what was begun, so that deciding again on the same state asks for nothing new.
//! How to start, stop and watch a container is left to the runtime and its actors.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::{ContainerId, Incarnation, JobId, Rank, Sequence};

use crate::Exit;
use crate::state::{AgentState, Announced, Known, Want, Wanted};

/// What this agent has seen and begun on its machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// The life in which this process has joined.
    pub joined: Option<u64>,
    /// The lease could not be renewed in time.
    pub fenced: bool,
    /// The containers.
    pub containers: BTreeMap<ContainerId, Observed>,
    /// What the members of each life here were told.
    pub told: BTreeMap<(JobId, Incarnation), Announced>,
    /// Containers, by their start requests, of which the log has gone back behind what they were asked
    /// or had done.
    pub set_back: BTreeSet<(ContainerId, Sequence)>,
}

/// A container on the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// The start request that it was started for.
    pub request: Sequence,
    /// Whether it runs.
    pub life: Life,
    /// Whether it is being ended.
    pub ending: Ending,
    /// What the log was told of it by this process.
    pub told: Known,
    /// The last request to save that was passed on.
    pub asked: Option<Sequence>,
    /// The last order of tasks that was passed on.
    pub given: Option<Sequence>,
}

/// Where a container is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Life {
    /// Being started.
    Starting,
    /// It runs.
    Running(u32),
    /// It is over.
    Ended(Exit),
}

/// Who is ending a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// Nobody.
    No,
    /// The log asked for it.
    Stopping,
    /// The platform takes it away.
    Evicting,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
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
    /// Append `container.started`.
    TellStarted(ContainerId, u32),
    /// Append `container.exited`.
    TellExited(ContainerId, Sequence, Exit),
    /// The exit is on the log: free what the machine still holds of it.
    Forget(ContainerId, Sequence),
    /// Tell the containers of a life here who takes part.
    Announce(JobId, Incarnation, Announced),
    /// The last container of a life here is forgotten: its members' file goes.
    Withdraw(JobId, Incarnation),
    /// Append `node.joined` for this life, with what runs.
    Join(u64, Vec<ContainerId>),
}

/// Why everything is evicted while the agent is fenced.
pub const FENCED: &str = "fenced: the node's lease could not be renewed in time";

/// Why a container ends that the log has gone back behind.
const SET_BACK: &str =
    "the log went back: it no longer holds what this container was asked, or that it had ended";

impl Observed {
    /// A container of which nothing was told yet.
    #[must_use]
    pub const fn new(request: Sequence, life: Life) -> Self {
        Self {
            request,
            life,
            ending: Ending::No,
            told: Known::Nothing,
            asked: None,
            given: None,
        }
    }

    /// Whether it has a process, or may have.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        !matches!(self.life, Life::Ended(_))
    }
}

impl Machine {
    /// Whether another incarnation of the container's job is alive here.
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

    /// Whether this process has to join (again).
    #[must_use]
    pub fn must_join(&self, state: &AgentState) -> bool {
        !self.fenced
            && self
                .joined
                .is_none_or(|life| state.lost.is_some_and(|lost| lost >= life))
    }

    /// Whether the log, as far as it was heard, says that this process has joined.
    fn has_joined(&self, state: &AgentState) -> bool {
        self.joined.is_some_and(|life| state.life >= life)
    }
}

/// What to do now.
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
                    actions.push(Action::Evict(id.clone(), reason));
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
    // Before it says of anything that it never started: who gave it up learns why.
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

/// What members here are to be told, and what nobody reads any more.
fn announcements(
    state: &AgentState,
    machine: &Machine,
    wanted: &BTreeMap<ContainerId, Wanted>,
) -> Vec<Action> {
    let life = |id: &ContainerId| (id.job.clone(), id.incarnation);
    let runs = wanted.iter().filter(|(_, want)| want.want == Want::Run);
    let lives: BTreeSet<_> = runs.map(|(id, _)| life(id)).collect();
    let mut actions = Vec::new();
    for (job, incarnation) in &lives {
        let partition = state.jobs.get(job);
        let partition = partition.and_then(|job| job.partitions.get(incarnation));
        let members = partition.and_then(|partition| partition.members.as_ref());
        let told = machine.told.get(&(job.clone(), *incarnation));
        if let Some(members) = members
            && told != Some(&members.announced)
        {
            let announced = members.announced.clone();
            actions.push(Action::Announce(job.clone(), *incarnation, announced));
        }
    }
    let held: BTreeSet<_> = machine.containers.keys().map(life).collect();
    let unread = machine.told.keys();
    let unread = unread.filter(|life| !lives.contains(life) && !held.contains(life));
    actions.extend(unread.map(|(job, incarnation)| Action::Withdraw(job.clone(), *incarnation)));
    actions
}

/// Why a live container has to go, if it has to.
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
    if let Life::Running(pid) = seen.life
        && want.known == Known::Nothing
        && seen.told == Known::Nothing
    {
        actions.push(Action::TellStarted(id.clone(), pid));
    }
    if let Some(order) = want.order
        && seen.given < Some(order)
        && want.want == Want::Run
    {
        actions.push(Action::Give(id.clone(), order));
    }
    if want.want == Want::Stop {
        if seen.ending == Ending::No {
            actions.push(Action::Stop(id.clone()));
        }
    } else if let Some(save) = want.save
        && matches!(seen.life, Life::Running(_))
        && seen.asked < Some(save)
        && seen.ending == Ending::No
    {
        actions.push(Action::Save(id.clone(), save));
    }
}

/// What has ended; `why` it was taken away, if it was for what the log does not know.
fn ended(
    id: &ContainerId,
    seen: &Observed,
    (want, why): (Option<&Wanted>, Option<String>),
    actions: &mut Vec<Action>,
) {
    match (&seen.life, want) {
        (Life::Ended(exit), Some(want)) if seen.told != Known::Exited => {
            let exit = exit.clone().with_eviction(why);
            actions.push(Action::TellExited(id.clone(), want.request, exit));
        }
        (_, Some(_)) => {}
        (_, None) => actions.push(Action::Forget(id.clone(), seen.request)),
    }
}

/// A wanted container of which the machine shows nothing.
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
                actions.push(Action::Start(id.clone(), want.request));
            }
            return;
        }
    };
    actions.push(Action::TellExited(id.clone(), want.request, exit));
}

/// The life in which the agent joins next.
#[must_use]
pub fn next_life(state: &AgentState, machine: &Machine) -> u64 {
    let last = state.life.max(machine.joined.unwrap_or(0));
    last.max(state.lost.unwrap_or(0)) + 1
}

fn join(state: &AgentState, machine: &Machine) -> Action {
    let live = |(id, seen): (&ContainerId, &Observed)| seen.is_live().then(|| id.clone());
    let running = machine.containers.iter().filter_map(live).collect();
    Action::Join(next_life(state, machine), running)
}

/// Records on the machine's side what an action begins.
pub fn apply(machine: &mut Machine, action: &Action) {
    let containers = &mut machine.containers;
    match action {
        Action::Start(id, request) => {
            containers.insert(id.clone(), Observed::new(*request, Life::Starting));
        }
        Action::Stop(id) => set(containers, id, |seen| seen.ending = Ending::Stopping),
        Action::Evict(id, _) => set(containers, id, |seen| seen.ending = Ending::Evicting),
        Action::Save(id, request) => set(containers, id, |seen| seen.asked = Some(*request)),
        Action::Give(id, order) => set(containers, id, |seen| seen.given = Some(*order)),
        Action::TellStarted(id, _) => set(containers, id, |seen| seen.told = Known::Started),
        Action::TellExited(id, request, exit) => {
            let seen = containers
                .entry(id.clone())
                .or_insert_with(|| Observed::new(*request, Life::Ended(exit.clone())));
            seen.told = Known::Exited;
        }
        Action::Forget(id, _) => {
            containers.remove(id);
        }
        Action::Announce(job, incarnation, announced) => {
            let life = (job.clone(), *incarnation);
            machine.told.insert(life, announced.clone());
        }
        Action::Withdraw(job, incarnation) => {
            machine.told.remove(&(job.clone(), *incarnation));
        }
        Action::Join(life, _) => machine.joined = Some(*life),
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
