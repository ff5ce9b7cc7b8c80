//! Nodes, jobs, policy and epochs: the state that optimizer, placer and checkpointer embed. Ended jobs are
//! dropped.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{
    AllocationDecided, Basis, CheckpointFailed, CheckpointSaved, ContainerExited, JobAllocation,
    PartitionResizeRequested, PartitionResized, PartitionStartRequested, PartitionStopped,
    PlacementDecided, ResizeCause, StopReason, Waiting,
};
use dormouse_messages::ids::{ContainerId, Rank};
use dormouse_messages::policy::Policy;
use dormouse_messages::{
    Amounts, Epoch, Event, Fold, GatewayId, Incarnation, JobId, LogClock, NodeId,
    PlacementAuthority, Recorded, Resource, Sequence, Timestamp,
};
use serde::{Deserialize, Serialize};

use super::folded;
use super::health::StartFaults;
use super::job::{
    Assignment, ContainerPhase, Job, Life, LifeContainer, LifePhase, Place, Readiness,
    SavedCheckpoint, Stop,
};
use super::members::Members;
use super::membership::{Membership, Node};
use super::shared_map::SharedMap;
use super::tenants::Tenants;

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
    /// Validates node events about jobs.
    pub authority: PlacementAuthority,
    /// A contradiction between own decisions stops the process, so no snapshot holds this.
    #[serde(skip)]
    contradiction: Option<String>,
}

impl Fold for ClusterState {
    const NAME: &'static str = "cluster";
    const VERSION: u32 = 24;

    fn evolve(&mut self, recorded: &Recorded) {
        self.sequence = recorded.sequence;
        self.now = self.clock.pass(recorded);
        let event = recorded.event();
        if event.is_some_and(|event| !self.authority.validates(event)) {
            return;
        }
        let had = match recorded.event() {
            Some(Event::NodeJoined(event)) => self.nodes.get(&event.node),
            _ => None,
        };
        let had = had.map(|node| node.capacity.clone());
        let members_changed = self.nodes.evolve(recorded, self.now);
        if members_changed {
            self.last_trigger = recorded.sequence;
        }
        if self.tenants.evolve(recorded) {
            self.last_trigger = recorded.sequence;
        }
        let Some(event) = recorded.event().filter(|event| folded::by_cluster(event)) else {
            return;
        };
        match event {
            Event::ClusterConfigured(event) => {
                self.policy.clone_from(&event.policy);
                self.last_trigger = recorded.sequence;
            }
            Event::NodeRemoved(event) => self.remove_node(&event.node),
            Event::NodeJoined(event) => {
                self.rejoined(&event.node);
                self.relabelled(recorded.sequence);
                if had.is_some_and(|had| had.first_short(&event.capacity, 1).is_some()) {
                    self.shrunk(&event.node);
                }
            }
            // An earlier incarnation's loss may follow the next join.
            Event::NodeLost(e) if members_changed => self.lose(&e.node, recorded.sequence),
            Event::NodeFenced(e) if members_changed => self.lose(&e.node, recorded.sequence),
            Event::NodeDrained(event) => self.displace(&event.node, false),
            Event::NodeLabelled(_) => self.relabelled(recorded.sequence),
            Event::NodeQuarantined(event) => self.displace(&event.node, false),
            Event::ContainerStarted(event) => {
                self.ran(&event.container);
                let id = &event.container;
                if let Some(life) = self.life(&id.job, id.incarnation)
                    && let Some(container) = life.containers.get_mut(&id.rank)
                    && container.phase == ContainerPhase::Requested
                {
                    container.phase = ContainerPhase::Started;
                    life.begun += 1;
                }
            }
            Event::ContainerExited(event) => self.exited(event, recorded.sequence),
            Event::CheckpointSaved(event) => self.saved(event, recorded.sequence),
            Event::CheckpointFailed(event) => self.save_failed(event, recorded.sequence),
            Event::AllocationDecided(event) => self.allocated(event, recorded.sequence),
            Event::AllocationUnchanged(event) => {
                self.wait(&event.outcome.waiting);
                self.decided(event.basis.as_ref());
            }
            Event::PlacementDecided(event) => self.placed(event, recorded.sequence),
            Event::PlacementRefused(event) => {
                self.placed_epoch = self.placed_epoch.max(event.epoch);
                self.last_trigger = recorded.sequence;
            }
            Event::ClockStepped(event) => self.step_named = event.sequence,
            Event::GatewayJoined(_) | Event::GatewayLeft(_) | Event::GatewayLost(_) => {
                self.evolve_gateways(event);
            }
            _ => self.evolve_job(event, recorded),
        }
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
    fn evolve_job(&mut self, event: &Event, recorded: &Recorded) {
        match event {
            Event::JobAdmitted(event) => {
                let job = Job::admitted(&event.spec, recorded.sequence, self.now);
                self.queued.insert(event.job.clone(), job);
            }
            Event::JobReleased(event) => {
                if let Some(mut job) = self.queued.remove(&event.job) {
                    job.released = Some(recorded.sequence);
                    self.jobs.insert(event.job.clone(), job);
                    self.last_trigger = recorded.sequence;
                }
            }
            Event::JobRevised(event) => {
                let job = match self.jobs.get_mut(&event.job) {
                    Some(job) => {
                        self.last_trigger = recorded.sequence;
                        Some(job)
                    }
                    None => self.queued.get_mut(&event.job),
                };
                if let Some(job) = job {
                    job.weight = event.weight.unwrap_or(job.weight);
                    job.containers = event.containers.unwrap_or(job.containers);
                    job.limits.revise(event);
                    job.on_hold = event.held.unwrap_or(job.on_hold);
                    job.requeued &= event.held.is_none();
                }
            }
            Event::JobRequeued(event) => {
                // A job without containers already waits for capacity.
                if let Some(job) = self.jobs.get_mut(&event.job)
                    && job.life.is_some()
                    && !job.on_hold
                {
                    (job.on_hold, job.requeued) = (true, true);
                    self.last_trigger = recorded.sequence;
                }
            }
            Event::JobCancelRequested(event) => {
                if let Some(job) = self.jobs.get_mut(&event.job) {
                    job.cancel_requested = Some(recorded.sequence);
                }
            }
            Event::CheckpointRejected(event) => {
                if let Some(job) = self.jobs.get_mut(&event.job) {
                    job.rejected(&event.uri);
                }
            }
            Event::NodeFaulted(event) => {
                if let Some(job) = self.jobs.get_mut(&event.job) {
                    job.start_faults.faulted(event);
                }
            }
            Event::JobCompleted(event) => self.end(&event.job, recorded.sequence),
            Event::JobFailed(event) => self.end(&event.job, recorded.sequence),
            Event::JobCancelled(event) => self.end(&event.job, recorded.sequence),
            _ => self.evolve_life(event, recorded),
        }
    }

    fn evolve_gateways(&mut self, event: &Event) {
        match event {
            Event::GatewayJoined(event) => {
                self.gateways.insert(event.gateway.clone());
            }
            Event::GatewayLeft(event) => {
                self.gateways.remove(&event.gateway);
            }
            Event::GatewayLost(event) => {
                self.gateways.remove(&event.gateway);
            }
            _ => {}
        }
    }

    fn evolve_life(&mut self, event: &Event, recorded: &Recorded) {
        match event {
            Event::PartitionStartRequested(event) => self.start(event, recorded),
            Event::CheckpointRequested(event) => {
                let phase = LifePhase::Saving {
                    since: self.now,
                    requested: recorded.sequence,
                    saved: None,
                    failed: None,
                };
                self.set_phase(&event.job, recorded.sequence, phase);
                if let Some(job) = self.jobs.get_mut(&event.job) {
                    job.adjusting_since = Some(self.now);
                }
            }
            Event::PartitionStarted(event) => {
                self.set_phase(&event.job, recorded.sequence, LifePhase::Running);
                if let Some(job) = self.jobs.get_mut(&event.job) {
                    job.start_faults = StartFaults::default();
                    // A started job needs only its minimum: another allocation may shrink the job.
                    let least = job.beside.containers(job.containers.min);
                    let started_whole = job.containers.start() > job.containers.min;
                    if started_whole && job.is_adjustable() && event.containers > least {
                        self.last_trigger = recorded.sequence;
                    }
                }
                let now = self.now;
                if let Some(life) = self.life(&event.job, event.incarnation) {
                    life.running_since = Some(now);
                }
                if let Some(job) = self.jobs.get_mut(&event.job)
                    && let Some(since) = job.adjusting_since.take()
                {
                    let stall_ms = self.now.ms_since(since);
                    job.stall_ms = Some(stall_ms);
                    self.stalls.count += 1;
                    self.stalls.total_ms += stall_ms;
                }
                self.transit_ended(recorded.sequence);
            }
            Event::PartitionStopRequested(event) => {
                let life = self.life(&event.job, event.incarnation);
                let phase = LifePhase::Stopping {
                    reason: event.reason,
                    requested: recorded.sequence,
                    whole: life.is_some_and(|life| life.is_whole()),
                };
                self.set_phase(&event.job, recorded.sequence, phase);
            }
            Event::PartitionStopped(event) => self.stopped(event, recorded),
            Event::PartitionWarned(event) => {
                if let Some(job) = self.jobs.get_mut(&event.job) {
                    job.limits.warned = Some(event.incarnation);
                }
            }
            Event::ResizeAbandoned(event) => self.kept(&event.job, recorded),
            Event::Progress(event) => {
                self.ready(&event.job, event.incarnation, self.now);
            }
            _ => self.evolve_members(event, recorded),
        }
    }

    fn stopped(&mut self, event: &PartitionStopped, recorded: &Recorded) {
        let has = self.allocation.jobs.get(&event.job);
        let is_sent_back = has.is_none_or(|it| it.containers == 0);
        if let Some(job) = self.jobs.get_mut(&event.job) {
            if is_sent_back {
                // Queueing is no cost of an adjustment.
                job.adjusting_since = None;
            }
            if std::mem::take(&mut job.requeued) {
                job.on_hold = false;
                self.last_trigger = recorded.sequence;
            }
            let ended = job.life.take();
            let since = ended.as_ref().and_then(|life| life.running_since);
            job.limits.ran_ms += since.map_or(0, |it| self.now.ms_since(it));
            if let Some(tasks) = &mut job.tasks {
                tasks.life_ended();
            }
            let why = ended.as_ref().and_then(Life::first_failure);
            let is_late = ended.as_ref().is_some_and(Life::may_have_been_delayed);
            let is_excused = event.reason == StopReason::Failed && event.attempts == job.attempts;
            job.start_faults.late += u32::from(is_late && is_excused);
            job.attempts = event.attempts;
            job.last_stop = Some(Stop {
                incarnation: event.incarnation,
                reason: event.reason,
                at: self.now,
                sequence: recorded.sequence,
                why: why.map(str::to_owned),
                ran: ended.as_ref().is_some_and(|life| life.ran),
            });
            let next = job.assignment.iter_mut();
            next.for_each(|it| {
                let usable = |place: &Place| self.nodes.is_usable(&place.node);
                let takes = self.nodes.take((&job.needs, &job.beside), it);
                it.displaced |= !takes || !it.places.values().all(usable);
            });
            let stays = job.assignment.as_ref().filter(|to| !to.displaced);
            if stays.is_none() {
                self.last_trigger = recorded.sequence;
            }
        }
        self.transit_ended(recorded.sequence);
    }

    fn evolve_members(&mut self, event: &Event, recorded: &Recorded) {
        let at = self.now;
        match event {
            Event::ServiceScaled(event) => {
                if let Some(job) = self.jobs.get_mut(&event.job) {
                    job.replicas = Some(event.replicas);
                    self.last_trigger = recorded.sequence;
                } else if let Some(job) = self.queued.get_mut(&event.job) {
                    job.replicas = Some(event.replicas);
                }
            }
            Event::PartitionResizeRequested(event) => self.resize(event, recorded),
            Event::PartitionLeaveRequested(event) => {
                let life = self.life(&event.job, event.incarnation);
                if let Some(members) = life.and_then(|life| life.members.as_mut()) {
                    members.stopping(event.generation, &event.ranks);
                }
            }
            Event::PartitionResized(event) => self.resized(event, recorded),
            Event::ContainerReady(event) => self.container(&event.container, |container| {
                container.readiness = Readiness::Ready;
            }),
            Event::ContainerUnready(event) => {
                let at = recorded.sequence;
                self.container(&event.container, |container| {
                    container.readiness = Readiness::Unready { at };
                });
            }
            Event::GatewayUnrouted(event) => {
                let life = self.life(&event.container.job, event.container.incarnation);
                if let Some(members) = life.and_then(|life| life.members.as_mut()) {
                    members.unrouted(event);
                }
            }
            _ => self.evolve_tasks(event, at),
        }
    }

    fn resize(&mut self, event: &PartitionResizeRequested, recorded: &Recorded) {
        let now = self.now;
        let sequence = recorded.sequence;
        let Some(job) = self.jobs.get_mut(&event.job) else {
            return;
        };
        let Some(life) = of_incarnation(&mut job.life, event.incarnation) else {
            return;
        };
        let Some(members) = &mut life.members else {
            return;
        };
        life.last_event = sequence;
        members.requested(event, sequence, now);
        let mut replaced = false;
        // All places of a joining container may have been given up.
        let superseded = job.superseded.remove(&event.incarnation);
        let assigned = job.assignment.as_ref();
        let assigned = assigned.filter(|it| it.incarnation == event.incarnation);
        for rank in &event.join {
            let own = assigned.and_then(|it| it.places.get(rank).or_else(|| it.dropped.get(rank)));
            let superseded = superseded.as_ref().and_then(|places| places.get(rank));
            if let Some(place) = own.or(superseded) {
                let container = asked(&self.nodes, place.clone(), sequence);
                life.containers.insert(*rank, container);
                life.numbered = life.numbered.max(rank.next());
            }
        }
        if let Some(assignment) = &mut job.assignment {
            assignment.dropped.clear();
            for rank in &event.leave {
                let own = assignment.incarnation == event.incarnation;
                if own && assignment.places.remove(rank).is_some() {
                    replaced = true;
                    assignment.lost += 1;
                }
            }
        }
        if event.cause == ResizeCause::Unready {
            job.deaths.one_more(now);
        }
        if replaced {
            self.last_trigger = sequence;
        }
    }

    fn resized(&mut self, event: &PartitionResized, recorded: &Recorded) {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(&event.job) else {
            return;
        };
        let Some(life) = of_incarnation(&mut job.life, event.incarnation) else {
            return;
        };
        let Some(members) = &mut life.members else {
            return;
        };
        life.last_event = recorded.sequence;
        members.resized(event, now);
        let joins = |rank: &Rank| {
            let change = members.change.as_ref();
            change.is_some_and(|change| change.join.contains(rank))
        };
        let is_over = |rank: &Rank, container: &LifeContainer| {
            !members.current.contains(rank) && !joins(rank) && !container.holds_room()
        };
        let over: Vec<Rank> = life
            .containers
            .iter()
            .filter(|(r, c)| is_over(r, c))
            .map(|(r, _)| *r)
            .collect();
        let mut replaced = false;
        for rank in over {
            let Some(container) = life.containers.remove(&rank) else {
                continue;
            };
            if let Some(assignment) = &mut job.assignment
                && assignment.incarnation == event.incarnation
                && assignment.places.remove(&rank).is_some()
            {
                replaced = true;
                assignment.lost += 1;
                if matches!(
                    container.phase,
                    ContainerPhase::Exited { evicted: false, .. }
                ) {
                    job.deaths.one_more(now);
                }
            }
        }
        if let Some(assignment) = job.assignment.as_mut().filter(|_| replaced) {
            assignment.displaced = !self.nodes.hold(assignment);
        }
        self.transit_ended(recorded.sequence);
        if replaced {
            self.last_trigger = recorded.sequence;
        }
    }

    fn evolve_tasks(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::TasksAssigned(event) => {
                let job = self.jobs.get_mut(&event.job);
                if let Some(tasks) = job.and_then(|job| job.tasks_of(event.incarnation)) {
                    for assigned in &event.assigned {
                        tasks.assign(assigned, at);
                    }
                }
            }
            Event::TasksEnded(event) => {
                self.ready(&event.job, event.incarnation, at);
                if let Some(job) = self.jobs.get_mut(&event.job) {
                    let retries = job.retries;
                    if let Some(tasks) = job.tasks_of(event.incarnation) {
                        tasks.ended(event, retries, at);
                    }
                    job.bound_by_tasks();
                }
            }
            _ => {}
        }
    }

    fn ready(&mut self, id: &JobId, incarnation: Incarnation, at: Timestamp) {
        let Some(life) = self.life(id, incarnation) else {
            return;
        };
        if life.ready_at.is_some() {
            return;
        }
        life.ready_at = Some(at);
        let since = life.running_since;
        if let (Some(since), Some(job)) = (since, self.jobs.get_mut(id)) {
            job.warm_up_ms = Some(at.ms_since(since));
        }
    }

    fn life(&mut self, id: &JobId, incarnation: Incarnation) -> Option<&mut Life> {
        of_incarnation(&mut self.jobs.get_mut(id)?.life, incarnation)
    }

    /// The previous decision counted old and new places of jobs in transit as taken, so the last arrival asks
    /// for another.
    fn transit_ended(&mut self, sequence: Sequence) {
        self.transit_sequence = sequence;
        if self.decided_in_transit && !self.awaits_anybody() {
            self.decided_in_transit = false;
            self.last_trigger = sequence;
        }
    }

    /// Reports whether arrivals of jobs in transit may change the allocation. Waiting jobs may get any
    /// capacity that becomes free.
    fn awaits_anybody(&self) -> bool {
        let mut jobs = self.jobs.values();
        if self.waiting.is_empty() {
            jobs.any(Job::is_awaited)
        } else {
            jobs.any(Job::is_moving)
        }
    }

    fn set_phase(&mut self, job: &JobId, sequence: Sequence, phase: LifePhase) {
        if let Some(life) = self.jobs.get_mut(job).and_then(|job| job.life.as_mut()) {
            life.phase = phase;
            life.last_event = sequence;
        }
    }

    fn start(&mut self, event: &PartitionStartRequested, recorded: &Recorded) {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(&event.job) else {
            return;
        };
        let Some(places) = job.places_to_start(event.incarnation) else {
            return;
        };
        let at = recorded.sequence;
        let containers = places.into_iter();
        let containers = containers.map(|(rank, place)| (rank, asked(&self.nodes, place, at)));
        let containers: BTreeMap<Rank, LifeContainer> = containers.collect();
        let members = job
            .in_place
            .then(|| Members::starting(containers.keys().copied()));
        job.life = Some(Life {
            incarnation: event.incarnation,
            epoch: event.epoch,
            requested_at: now,
            running_since: None,
            ready_at: None,
            last_event: recorded.sequence,
            resumed_from: event.resumed_from.clone(),
            numbered: containers.keys().last().map_or(Rank(0), |rank| rank.next()),
            containers,
            phase: LifePhase::Starting,
            ran: false,
            begun: 0,
            rejoined: false,
            members,
        });
    }

    /// One fenced writer decides epochs, so epochs never decrease.
    fn goes_back(&mut self, what: &str, before: Epoch, epoch: Epoch) {
        if epoch < before {
            let found = || format!("{what} of epoch {epoch} comes after that of epoch {before}");
            self.contradiction.get_or_insert_with(found);
        }
    }

    fn allocated(&mut self, event: &AllocationDecided, sequence: Sequence) {
        self.goes_back("an allocation", self.allocation.epoch, event.epoch);
        for allocated in &event.jobs {
            if let Some(job) = self.jobs.get_mut(&allocated.job) {
                job.made_for.clone_from(&allocated.made_for);
                let own = job.assignment.as_mut();
                if let Some(own) = own.filter(|own| allocated.containers <= own.containers()) {
                    own.lost = 0;
                }
                // A job that shrinks in place is not stopped.
                let stops = allocated.containers == 0 || !job.in_place;
                let less = allocated.containers < allocated.previous;
                if stops && less && allocated.made_for.is_some() {
                    let basis = event.basis.as_ref();
                    let at = basis.map_or(self.now, |basis| basis.now);
                    job.precedence.preempted(at);
                }
            }
        }
        let jobs = event.jobs.iter().map(|job| (job.job.clone(), job.clone()));
        self.allocation = Allocation {
            epoch: event.epoch,
            sequence,
            jobs: jobs.collect(),
        };
        self.wait(&event.outcome.waiting);
        self.decided(event.basis.as_ref());
    }

    fn wait(&mut self, waiting: &[Waiting]) {
        waiting.clone_into(&mut self.waiting);
        for waiting in waiting {
            if let Some(job) = self.jobs.get_mut(&waiting.job) {
                job.waiting_since.get_or_insert(self.now);
            }
        }
    }

    fn decided(&mut self, basis: Option<&Basis>) {
        self.decided_asof = basis.map_or(self.sequence, |basis| basis.asof);
        self.decided_at = basis.map_or(self.now, |basis| basis.now);
        self.decided_in_transit = self.awaits_anybody();
        // Capacity became free since the decision.
        if self.transit_sequence > self.decided_asof {
            self.last_trigger = self.last_trigger.max(self.transit_sequence);
        }
    }

    fn placed(&mut self, event: &PlacementDecided, sequence: Sequence) {
        self.goes_back("a placement", self.placed_epoch, event.epoch);
        if event.epoch > self.placed_epoch {
            self.placed_epoch = event.epoch;
            for (job, allocated) in &self.allocation.jobs {
                if allocated.containers == 0
                    && let Some(job) = self.jobs.get_mut(job)
                {
                    job.assign(None);
                }
            }
        }
        self.changed_in_place(event, sequence);
        let mut created: BTreeMap<&JobId, Assignment> = BTreeMap::new();
        let is_addition = |job: &JobId, incarnation: Incarnation| {
            let assigned = self.jobs.get(job).and_then(|job| job.assignment.as_ref());
            assigned.is_some_and(|assigned| assigned.incarnation == incarnation)
        };
        let whole = event
            .create
            .iter()
            .filter(|container| !is_addition(&container.job, container.incarnation));
        for container in whole {
            let assignment = created.entry(&container.job).or_insert_with(|| Assignment {
                epoch: event.epoch,
                incarnation: container.incarnation,
                placed: sequence,
                places: BTreeMap::new(),
                next: Rank(0),
                dropped: BTreeMap::new(),
                lost: 0,
                displaced: false,
            });
            let place = Place {
                node: container.node.clone(),
                gpus: container.gpus.clone(),
                port: container.port,
            };
            assignment.places.insert(container.rank, place);
            assignment.next = assignment.next.max(container.rank.next());
        }
        for (id, mut assignment) in created {
            let usable = |place: &Place| self.nodes.is_usable(&place.node);
            assignment.displaced = !assignment.places.values().all(usable);
            if let Some(job) = self.jobs.get_mut(id) {
                assignment.displaced |= !self.nodes.allow((&job.needs, &job.beside), &assignment);
                let leaves_devices = |before: &Assignment| {
                    let kept: BTreeSet<_> = assignment.gpus().collect();
                    before.gpus().any(|device| !kept.contains(&device))
                };
                let shares = |before: &&Assignment| {
                    let mut ranks = before.places.keys();
                    ranks.any(|rank| job.type_at(*rank).shares_gpu())
                };
                let before = job.assignment.as_ref().filter(shares);
                if !self.waiting.is_empty() && before.is_some_and(leaves_devices) {
                    // A device that lost its parts may be free as a whole, unknown to the decision.
                    self.last_trigger = sequence;
                }
                job.last_incarnation = job.last_incarnation.max(assignment.incarnation);
                job.assign(Some(assignment));
            }
        }
    }

    fn changed_in_place(&mut self, event: &PlacementDecided, sequence: Sequence) {
        let whole: BTreeSet<&JobId> = event
            .create
            .iter()
            .filter(|container| {
                let job = self.jobs.get(&container.job);
                job.is_some_and(|job| job.last_incarnation < container.incarnation)
            })
            .map(|container| &container.job)
            .collect();
        for container in event.create.iter().filter(|c| !whole.contains(&c.job)) {
            let Some(job) = self.jobs.get_mut(&container.job) else {
                continue;
            };
            let needs = &job.needs;
            if let Some(assignment) = job.assignment.as_mut()
                && assignment.incarnation == container.incarnation
            {
                let place = Place {
                    node: container.node.clone(),
                    gpus: container.gpus.clone(),
                    port: container.port,
                };
                assignment.next = assignment.next.max(container.rank.next());
                assignment.epoch = event.epoch;
                assignment.placed = sequence;
                assignment.lost = 0;
                // The label changed since the decision.
                if self.nodes.is_allowed(needs, &place.node) {
                    assignment.places.insert(container.rank, place)
                } else {
                    self.last_trigger = sequence;
                    assignment.dropped.insert(container.rank, place)
                };
            }
        }
        for container in event.remove.iter().filter(|c| !whole.contains(&c.job)) {
            let Some(job) = self.jobs.get_mut(&container.job) else {
                continue;
            };
            let life = job.life.as_ref();
            let runs = life.is_some_and(|life| life.containers.contains_key(&container.rank));
            let shares = job.type_at(container.rank).shares_gpu();
            if let Some(assignment) = job.assignment.as_mut()
                && assignment.incarnation == container.incarnation
            {
                let place = assignment.places.remove(&container.rank);
                if shares && !self.waiting.is_empty() {
                    self.last_trigger = sequence;
                }
                if let Some(place) = place.filter(|_| !runs) {
                    assignment.dropped.insert(container.rank, place);
                }
                assignment.epoch = event.epoch;
                assignment.placed = sequence;
                assignment.lost = 0;
                assignment.displaced = !self.nodes.hold(assignment);
            }
        }
    }

    /// Abandons the adjustment: the incarnation's places become the assignment.
    fn kept(&mut self, id: &JobId, recorded: &Recorded) {
        let Some(job) = self.jobs.get_mut(id) else {
            return;
        };
        let (Some(life), Some(assignment)) = (&mut job.life, &mut job.assignment) else {
            return;
        };
        life.phase = LifePhase::Running;
        let places = life.containers.iter();
        let places = places.map(|(rank, container)| (*rank, container.place.clone()));
        let places: BTreeMap<Rank, Place> = places.collect();
        *assignment = Assignment {
            epoch: life.epoch,
            incarnation: life.incarnation,
            placed: recorded.sequence,
            next: assignment.next.max(life.numbered),
            dropped: BTreeMap::new(),
            lost: 0,
            displaced: !places
                .values()
                .all(|place| self.nodes.is_usable(&place.node)),
            places,
        };
        job.kept_at = Some(self.now);
        job.adjusting_since = None;
        self.last_trigger = recorded.sequence;
    }

    fn end(&mut self, job: &JobId, sequence: Sequence) {
        self.queued.remove(job);
        if self.jobs.remove(job).is_some() {
            let before = self.ended.filter(|(at, _)| *at == self.last_trigger);
            self.ended = if self.last_trigger > self.decided_asof {
                before.map(|(_, since)| (sequence, since))
            } else {
                Some((sequence, self.now))
            };
            self.last_trigger = sequence;
            self.freed();
        }
    }

    /// Running and placed containers stay on a smaller node until the next decision.
    fn shrunk(&mut self, name: &NodeId) {
        let taken = self.taken(name);
        self.overfull.insert(name.clone(), taken);
        self.freed();
    }

    fn freed(&mut self) {
        let names: Vec<NodeId> = self.overfull.keys().cloned().collect();
        for name in names {
            let node = self.nodes.get(&name);
            let fits = |node: &Node| self.taken(&name).first_short(&node.capacity, 1).is_none();
            if node.is_none_or(fits) {
                self.overfull.remove(&name);
            }
        }
    }

    /// Returns the running and placed amounts.
    fn taken(&self, name: &NodeId) -> Amounts {
        let mut taken = Amounts::new();
        for job in self.jobs.values() {
            let placed = job.waits_to_start().into_iter();
            let placed = placed.flat_map(|assignment| &assignment.places);
            for (rank, _) in placed.filter(|(_, place)| place.node == *name) {
                taken.add(job.demand_at(*rank), 1);
            }
            for (_, demand) in job.held().filter(|(node, _)| *node == name) {
                taken.add(demand, 1);
            }
        }
        taken
    }

    /// A restarted agent may have missed start requests.
    fn rejoined(&mut self, node: &NodeId) {
        for life in self.jobs.values_mut().filter_map(|job| job.life.as_mut()) {
            let asked = |it: &LifeContainer| {
                it.place.node == *node && it.phase == ContainerPhase::Requested
            };
            life.rejoined |= life.containers.values().any(asked);
        }
    }

    fn lose(&mut self, node: &NodeId, sequence: Sequence) {
        for job in self.jobs.values_mut() {
            let containers = job
                .life
                .iter_mut()
                .flat_map(|life| life.containers.values_mut());
            let mut lost = false;
            for container in containers.filter(|c| c.place.node == *node && c.holds_room()) {
                container.phase = ContainerPhase::Lost { at: sequence };
                lost = true;
            }
            if lost {
                // Waiting for a lease is no cost of an adjustment.
                job.adjusting_since = None;
            }
        }
        self.displace(node, true);
        self.freed();
    }

    /// A job without a checkpoint stays on a drained node until the job ends, as in Slurm.
    fn displace(&mut self, node: &NodeId, lost: bool) {
        // An unmovable job does not start there again.
        let is_tried_again = |job: &Job| match (&job.life, &job.assignment, &job.last_stop) {
            (None, Some(assignment), Some(stop)) => stop.incarnation >= assignment.incarnation,
            _ => false,
        };
        let may_move = |job: &&mut Job| lost || job.is_adjustable() || is_tried_again(job);
        let jobs = self.jobs.values_mut().filter(may_move);
        for assignment in jobs.filter_map(|job| job.assignment.as_mut()) {
            if assignment.places.values().any(|place| place.node == *node) {
                assignment.displaced = true;
            }
        }
    }

    /// Replaces placed containers that new labels or taints forbid. Running containers stay.
    fn relabelled(&mut self, sequence: Sequence) {
        for job in self.jobs.values_mut() {
            let Some(assignment) = &mut job.assignment else {
                continue;
            };
            let life = job.life.as_ref();
            let life = life.filter(|life| life.incarnation == assignment.incarnation);
            let Some(life) = life else {
                let needs = (&job.needs, &job.beside);
                if !assignment.displaced && !self.nodes.allow(needs, assignment) {
                    assignment.displaced = true;
                    self.last_trigger = sequence;
                }
                continue;
            };
            if !job.in_place {
                continue;
            }
            let starts = |(rank, place): &(&Rank, &Place)| {
                !life.containers.contains_key(*rank)
                    && !self.nodes.is_allowed(&job.needs, &place.node)
            };
            let starts: Vec<Rank> = assignment
                .places
                .iter()
                .filter(starts)
                .map(|(r, _)| *r)
                .collect();
            for rank in starts {
                if let Some(place) = assignment.places.remove(&rank) {
                    assignment.dropped.insert(rank, place);
                    assignment.lost += 1;
                    self.last_trigger = sequence;
                }
            }
        }
    }

    fn remove_node(&mut self, name: &NodeId) {
        let is_at = |place: &Place| place.node == *name;
        let in_use = self.jobs.values().any(|job| {
            let assigned = job.assignment.iter().flat_map(|it| it.places.values());
            let living = job.life.iter().flat_map(|life| life.containers.values());
            let holds = living.filter(|it| it.holds_room()).map(|it| &it.place);
            assigned.chain(holds).any(is_at)
        });
        if !in_use {
            self.nodes.remove(name);
        }
    }

    fn container(&mut self, id: &ContainerId, change: impl FnOnce(&mut LifeContainer)) {
        if let Some(life) = self.jobs.get_mut(&id.job).and_then(|job| job.life.as_mut())
            && life.incarnation == id.incarnation
            && let Some(container) = life.containers.get_mut(&id.rank)
        {
            change(container);
        }
    }

    fn ran(&mut self, id: &ContainerId) {
        let job = self.jobs.get_mut(&id.job);
        if let Some(life) = job.and_then(|job| job.life.as_mut())
            && life.incarnation == id.incarnation
        {
            life.ran = true;
        }
    }

    fn save_failed(&mut self, event: &CheckpointFailed, sequence: Sequence) {
        if let Some(job) = self.jobs.get_mut(&event.job)
            && let Some(LifePhase::Saving { failed, .. }) = life_phase(job, event.incarnation)
        {
            *failed = Some((sequence, event.reason.clone()));
        }
    }

    fn saved(&mut self, event: &CheckpointSaved, sequence: Sequence) {
        let Some(job) = self.jobs.get_mut(&event.job) else {
            return;
        };
        job.precedence.saved(self.now);
        job.saved(SavedCheckpoint {
            uri: event.uri.clone(),
            step: event.step,
            incarnation: event.incarnation,
        });
        if let Some(LifePhase::Saving { saved, .. }) = life_phase(job, event.incarnation) {
            *saved = Some(sequence);
        }
    }

    fn exited(&mut self, event: &ContainerExited, sequence: Sequence) {
        let job = self.jobs.get(&event.container.job);
        let demand = job.map(|job| job.demand_at(event.container.rank));
        let memory = demand.map_or(0, |demand| demand.get(&Resource::Memory));
        let phase = ContainerPhase::Exited {
            // An evicted container saves and exits as after a save request.
            success: event.exit_code == Some(0) && !event.evicted,
            evicted: event.evicted,
            why: describe_exit(event, memory),
            at: sequence,
        };
        if event.exit_code.is_some() || event.signal.is_some() {
            let id = &event.container;
            self.ran(id);
            if let Some(life) = self.life(&id.job, id.incarnation)
                && let Some(container) = life.containers.get(&id.rank)
                && container.phase == ContainerPhase::Requested
            {
                life.begun += 1;
            }
        }
        self.container(&event.container, |container| {
            if container.holds_room() {
                container.phase = phase;
            }
        });
        self.freed();
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

/// Describes an exit for people. `memory`: demanded bytes, or 0.
fn describe_exit(event: &ContainerExited, memory: u64) -> String {
    let rank = event.container.rank;
    if event.out_of_memory {
        let limit = match memory {
            0 => "it has no demand.memory".to_owned(),
            memory => format!("demand.memory is {}", Resource::Memory.display(memory)),
        };
        return format!("rank {rank} on {} ran out of memory ({limit})", event.node);
    }
    let how = match (&event.reason, event.exit_code, event.signal) {
        (Some(reason), _, _) => reason.clone(),
        (None, Some(code), _) => format!("exited with {code}"),
        (None, None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None, None) => "ended in an unknown way".to_owned(),
    };
    match &event.reason {
        Some(_) => format!("rank {rank} on {}: {how}", event.node),
        None => format!("rank {rank} on {} {how}", event.node),
    }
}
