//! Partitions resized in place: members change within one incarnation.
//!
//! ```text
//!            requested                 all that leave have exited,
//!   members ───────────▶ change ──────────────────────────────────▶ members
//!      │                   │           all that join are ready
//!      └── a member died ──┴──▶ members without it
//! ```
//!
//! 1. Cancellation, success, death of the coordinator or too few members end the incarnation.
//! 2. Dead members are dropped; the optimizer replaces them.
//! 3. Leaving containers stop once no gateway uses them or their time is over. A change ends when leavers are
//!    gone and joiners ready.
//! 4. Otherwise unassigned or unready members leave. Then joiners start as capacity allows: replicas one by
//!    one, also while earlier ones start; a training job's together, so that its members change once.
//! 5. A moving service starts joiners first; a ready replica leaves once the rest suffice. If joiners can get
//!    no capacity, replicas leave first, one by one. Leaving training always frees capacity, but another
//!    service may wait for this one.
//!
//! A service has no coordinator and never ends by itself; exited replicas are replaced. Other roles
//! ([`dormouse_messages::roles`]) live for the whole incarnation: the death of one ends the incarnation, and
//! survivors stop once the workers have succeeded.

use std::collections::BTreeSet;

use dormouse_messages::events::{
    PartitionLeaveRequested, PartitionResizeRequested, PartitionResized, ResizeCause, StopReason,
};
use dormouse_messages::job::Success;
use dormouse_messages::{Proposal, Rank, Sequence, Timestamp};
use dormouse_state::{
    Assignment, Change, ContainerPhase, Members, PartitionContainer, PartitionPhase, Readiness,
};

use crate::incarnation::{Act, Step, completed, earliest};
use crate::room::{self, Placed, Room};

/// Grace for stops; the job's own grace is over by then.
const STOP_GRACE_S: u32 = 10;

/// Returns the due step.
pub fn step(act: &Act<'_>, members: &Members, now: Timestamp, room: &mut Room<'_>) -> Step {
    if let Some(requested) = act.job.cancel_requested {
        return act.stop(StopReason::Cancelled, requested);
    }
    let elastic = Elastic { act, members };
    if let Some(over) = elastic.ended() {
        return over;
    }
    if act.partition.phase == PartitionPhase::Starting {
        return act.starting(now);
    }
    if let Some(without) = elastic.without_dead() {
        return without;
    }
    match &members.change {
        Some(change) => elastic.changing(change, now, room),
        None => elastic.change(now, room),
    }
}

struct Elastic<'a> {
    act: &'a Act<'a>,
    members: &'a Members,
}

impl Elastic<'_> {
    fn container(&self, rank: Rank) -> Option<&PartitionContainer> {
        self.act.partition.containers.get(&rank)
    }

    fn lives(&self, rank: Rank) -> bool {
        self.container(rank)
            .is_some_and(PartitionContainer::holds_room)
    }

    fn ended(&self) -> Option<Step> {
        let job = self.act.job;
        if job.is_served() {
            let scaled_to_none = job.assignment.is_none() && self.act.partition.is_over();
            return scaled_to_none.then(|| {
                self.act
                    .stopped(StopReason::Adjusted, self.act.partition.last_event)
            });
        }
        let coordinator = self.container(Rank(0))?;
        let workers = self.members.current.iter();
        let mut workers = workers.filter(|rank| job.auxiliary.is_worker(**rank));
        if workers.any(|rank| self.lives(*rank))
            && let Some(over) = self.role_died()
        {
            return Some(over);
        }
        match &coordinator.phase {
            ContainerPhase::Lost { at } => Some(self.act.stop(StopReason::NodeLost, *at)),
            ContainerPhase::Exited {
                success: true, at, ..
            } => self.succeeded(*at),
            ContainerPhase::Exited { evicted, at, .. } => Some(self.act.fail(*evicted, *at)),
            ContainerPhase::Requested | ContainerPhase::Started => self.too_few(),
        }
    }

    fn role_died(&self) -> Option<Step> {
        let ranks = self.act.partition.containers.keys();
        let roles = ranks.filter(|rank| !self.act.job.auxiliary.is_worker(**rank));
        let (at, evicted) = roles.filter_map(|rank| self.death(*rank)).min()?;
        Some(match evicted {
            Some(evicted) => self.act.fail(evicted, at),
            None => self.act.stop(StopReason::NodeLost, at),
        })
    }

    fn succeeded(&self, at: Sequence) -> Option<Step> {
        let act = self.act;
        if act.partition.is_over() {
            let reason = "the coordinator and every member that counts succeeded";
            return Some(completed(act.id, act.job, reason, at));
        }
        let members = self.members.current.iter();
        let mut members = members.filter(|rank| act.job.auxiliary.is_worker(**rank));
        match act.job.success {
            // Others end by themselves; failures are ignored.
            Success::All if members.any(|rank| self.lives(*rank)) => Some(Step::Wait(None)),
            // Joiners have nothing left to join.
            Success::All | Success::Coordinator => Some(act.stop(StopReason::Completed, at)),
        }
    }

    fn too_few(&self) -> Option<Step> {
        let current = &self.members.current;
        let dead: Vec<(Sequence, Option<bool>)> = current
            .iter()
            .filter_map(|rank| self.death(*rank))
            .collect();
        let is_starting = self.act.partition.phase == PartitionPhase::Starting;
        let left = current.len() - dead.len();
        let job = self.act.job;
        let least = job.auxiliary.containers(job.containers.min);
        let least = usize::try_from(least).unwrap_or(usize::MAX);
        if dead.is_empty() || (left >= least && !is_starting) {
            return None;
        }
        let (at, evicted) = dead.into_iter().min()?;
        Some(match evicted {
            Some(evicted) => self.act.fail(evicted, at),
            None => self.act.stop(StopReason::NodeLost, at),
        })
    }

    /// Returns an unrequested death and the eviction flag, which is unknown for lost nodes.
    fn death(&self, rank: Rank) -> Option<(Sequence, Option<bool>)> {
        if self.members.is_leaving(rank) {
            return None;
        }
        match &self.container(rank)?.phase {
            ContainerPhase::Lost { at } => Some((*at, None)),
            ContainerPhase::Exited {
                success,
                evicted,
                at,
                ..
            } => (!success || self.act.job.is_served()).then_some((*at, Some(*evicted))),
            ContainerPhase::Requested | ContainerPhase::Started => None,
        }
    }

    fn without_dead(&self) -> Option<Step> {
        let joining = self.members.change.iter().flat_map(|change| &change.join);
        let all = self.members.current.iter().chain(joining);
        let dead: BTreeSet<Rank> = all
            .copied()
            .filter(|rank| self.death(*rank).is_some())
            .collect();
        let newest = dead.iter().filter_map(|rank| self.death(*rank)).max();
        let (at, _) = newest?;
        let is_member = dead.iter().any(|rank| self.members.current.contains(rank));
        if !is_member {
            // The end of the change drops dead joiners.
            return None;
        }
        let left = self.members.current.difference(&dead).copied();
        Some(self.resized(
            left.collect(),
            ResizeCause::Lost,
            self.members.next_generation(),
            at,
        ))
    }

    fn resized(
        &self,
        members: BTreeSet<Rank>,
        cause: ResizeCause,
        generation: u32,
        at: Sequence,
    ) -> Step {
        let act = self.act;
        let event = PartitionResized {
            job: act.id.clone(),
            epoch: self.epoch(),
            incarnation: act.partition.incarnation,
            generation,
            containers: u32::try_from(members.len()).unwrap_or(u32::MAX),
            members: members.into_iter().collect(),
            cause,
            basis: None,
        };
        Proposal::new(event, at).into()
    }

    fn epoch(&self) -> dormouse_messages::Epoch {
        let assignment = self.act.job.assignment.as_ref();
        assignment.map_or(self.act.partition.epoch, |assignment| assignment.epoch)
    }

    fn changing(&self, change: &Change, now: Timestamp, room: &mut Room<'_>) -> Step {
        let left = change.leave.iter().all(|rank| !self.lives(*rank));
        let slow: Vec<Rank> = change
            .join
            .iter()
            .copied()
            .filter(|rank| self.is_awaited(*rank))
            .collect();
        if left && slow.is_empty() {
            let stay = self.members.current.iter().copied();
            let stay = stay.filter(|rank| !change.leave.contains(rank));
            let joined = change
                .join
                .iter()
                .copied()
                .filter(|rank| self.is_ready(*rank));
            let members = stay.chain(joined).collect();
            let at = self.act.partition.last_event.max(change.requested);
            // Deaths meanwhile were changes of their own.
            let generation = change.generation.max(self.members.generation + 1);
            return self.resized(members, change.cause, generation, at);
        }
        if let Some(leave) = self.leaving(change, now) {
            return leave;
        }
        if let Some(further) = self.further(change, now, room) {
            return further;
        }
        let patience_s = self.patience_s();
        let given_up = change.since.plus_ms(u64::from(patience_s) * 1000);
        let not_asked = |rank: &Rank| !change.stopping.contains(rank);
        let slow: Vec<Rank> = slow.into_iter().filter(not_asked).collect();
        if !slow.is_empty() && now >= given_up {
            return self.leave(change, slow);
        }
        let mut leavers = change.leave.iter();
        let waits_to_stop = leavers.any(|rank| self.lives(*rank) && not_asked(rank));
        let deadline = waits_to_stop.then_some(change.deadline);
        let given_up = (!slow.is_empty()).then_some(given_up);
        Step::Wait(deadline.into_iter().chain(given_up).min())
    }

    /// A service's load may rise again while replicas start: more of them join the change under way, whose
    /// patience begins again.
    fn further(&self, change: &Change, now: Timestamp, room: &mut Room<'_>) -> Option<Step> {
        let only_joins = change.leave.is_empty() && change.stopping.is_empty();
        if !self.act.job.is_served() || !only_joins || self.rests_until(now).is_some() {
            return None;
        }
        let is_new =
            |rank: &Rank| !self.members.current.contains(rank) && !change.join.contains(rank);
        let places = self.own().into_iter().flat_map(|own| &own.places);
        let missing: Vec<Placed<'_>> = places.filter(|(rank, _)| is_new(rank)).collect();
        let join = self.startable(&missing, room);
        (!join.is_empty()).then(|| self.request(join, Vec::new(), change.cause))
    }

    /// Returns the places of this incarnation.
    fn own(&self) -> Option<&Assignment> {
        let own = self.act.job.assignment.as_ref();
        own.filter(|own| own.incarnation == self.act.partition.incarnation)
    }

    fn patience_s(&self) -> u32 {
        let serving = self.act.job.serving;
        let ready_s = serving.map_or(0, |serving| serving.ready_timeout_s);
        self.act.start_timeout_s + ready_s
    }

    fn is_awaited(&self, rank: Rank) -> bool {
        self.lives(rank) && !self.is_ready(rank)
    }

    fn is_ready(&self, rank: Rank) -> bool {
        let container = self.container(rank);
        container.is_some_and(|it| it.holds_room() && it.readiness == Readiness::Ready)
    }

    fn leaving(&self, change: &Change, now: Timestamp) -> Option<Step> {
        let is_due = |rank: &Rank| {
            let unrouted = self.act.job.is_served() && self.is_unrouted(change, *rank);
            unrouted || now >= change.deadline
        };
        let due: Vec<Rank> = change
            .leave
            .iter()
            .copied()
            .filter(|rank| self.lives(*rank) && !change.stopping.contains(rank))
            .filter(is_due)
            .collect();
        // A joiner that reports unready is not awaited.
        let refused = |rank: &Rank| self.lives(*rank) && self.is_unready(*rank);
        let refused = change.join.iter().copied().filter(refused);
        let refused = refused.filter(|rank| !change.stopping.contains(rank));
        let ranks: Vec<Rank> = due.into_iter().chain(refused).collect();
        (!ranks.is_empty()).then(|| self.leave(change, ranks))
    }

    fn leave(&self, change: &Change, ranks: Vec<Rank>) -> Step {
        let event = PartitionLeaveRequested {
            job: self.act.id.clone(),
            incarnation: self.act.partition.incarnation,
            generation: change.generation,
            ranks,
            grace_s: STOP_GRACE_S,
            basis: None,
        };
        Proposal::new(event, change.requested).into()
    }

    fn is_unrouted(&self, change: &Change, rank: Rank) -> bool {
        let by = change.unrouted.get(&rank);
        let gateways = &self.act.state.gateways;
        gateways
            .iter()
            .all(|gateway| by.is_some_and(|by| by.contains(gateway)))
    }

    fn change(&self, now: Timestamp, room: &mut Room<'_>) -> Step {
        let job = self.act.job;
        let is_restarted = self.act.adjusted().is_some() || job.assignment.is_none();
        if is_restarted && !job.is_served() {
            return self.act.living(now);
        }
        let own = self.own();
        let assigned = |rank: &Rank| own.is_some_and(|own| own.places.contains_key(rank));
        let current = &self.members.current;
        let extra: Vec<Rank> = current
            .iter()
            .copied()
            .filter(|rank| !assigned(rank))
            .collect();
        let places = own.iter().flat_map(|own| &own.places);
        let missing: Vec<Placed<'_>> = places.filter(|(rank, _)| !current.contains(rank)).collect();
        if !extra.is_empty() {
            return if job.is_served() {
                self.replace(&extra, &missing, now, room)
            } else {
                self.request(Vec::new(), extra, ResizeCause::Adjusted)
            };
        }
        let unready = current.iter().copied();
        let unready: Vec<Rank> = unready.filter(|rank| self.is_unready(*rank)).collect();
        if !unready.is_empty() {
            return self.request(Vec::new(), unready, ResizeCause::Unready);
        }
        if missing.is_empty() {
            return Step::Wait(None);
        }
        if let Some(next_start) = self.rests_until(now) {
            return Step::Wait(Some(next_start));
        }
        let join: Vec<Rank> = match job.is_served() {
            true => self.startable(&missing, room),
            false if room.take_all(job, missing.iter().copied()) => {
                missing.into_iter().map(|(rank, _)| *rank).collect()
            }
            false => Vec::new(),
        };
        if join.is_empty() {
            Step::Wait(None)
        } else {
            self.request(join, Vec::new(), ResizeCause::Adjusted)
        }
    }

    fn replace(
        &self,
        extra: &[Rank],
        missing: &[Placed<'_>],
        now: Timestamp,
        room: &mut Room<'_>,
    ) -> Step {
        let rests_until = self.rests_until(now).filter(|_| !missing.is_empty());
        let join = match rests_until {
            Some(_) => Vec::new(),
            None => self.startable(missing, room),
        };
        let is_extra = |rank: &&Rank| extra.contains(rank);
        let stays = self.members.current.iter().filter(|rank| !is_extra(rank));
        let serves = stays.filter(|rank| !self.is_unready(**rank)).count();
        let own = self.act.job.assignment.as_ref();
        // A dead joiner's successor is not placed yet.
        let needed = own.map_or(0, |own| own.containers() + own.lost);
        let mut lacking = usize::try_from(needed)
            .unwrap_or(usize::MAX)
            .saturating_sub(serves);
        let mut leave = Vec::new();
        for rank in extra {
            let may_stay = !self.is_unready(*rank) && !self.must_leave_node(*rank, now);
            match lacking {
                1.. if may_stay => lacking -= 1,
                _ => leave.push(*rank),
            }
        }
        if !join.is_empty() || !leave.is_empty() {
            return self.request(join, leave, ResizeCause::Adjusted);
        }
        let awaits_room = rests_until.is_none() && !missing.is_empty();
        if awaits_room && !room::comes(self.act.state, self.act.job, missing) {
            let newest = extra.iter().copied().next_back();
            return self.request(
                Vec::new(),
                newest.into_iter().collect(),
                ResizeCause::Adjusted,
            );
        }
        let leave_by = extra.iter().filter_map(|rank| self.leave_by(*rank)).min();
        Step::Wait(earliest(rests_until, leave_by))
    }

    fn leave_by(&self, rank: Rank) -> Option<Timestamp> {
        let node = self.act.state.nodes.get(&self.container(rank)?.place.node);
        node.and_then(|node| node.leave_by)
    }

    fn must_leave_node(&self, rank: Rank, now: Timestamp) -> bool {
        self.leave_by(rank).is_some_and(|leave_by| leave_by <= now)
    }

    fn is_unready(&self, rank: Rank) -> bool {
        let container = self.container(rank);
        container.is_some_and(|it| matches!(it.readiness, Readiness::Unready { .. }))
    }

    /// Returns the end of the pause after deaths.
    fn rests_until(&self, now: Timestamp) -> Option<Timestamp> {
        let deaths = &self.act.job.deaths;
        let next_start = deaths.next_start();
        (deaths.count > 0 && now < next_start).then_some(next_start)
    }

    fn startable(&self, missing: &[Placed<'_>], room: &mut Room<'_>) -> Vec<Rank> {
        let placed = missing.iter().copied();
        let fits = placed.filter(|placed| room.take_one(self.act.job, *placed));
        fits.map(|(rank, _)| *rank).collect()
    }

    fn request(&self, join: Vec<Rank>, leave: Vec<Rank>, cause: ResizeCause) -> Step {
        let act = self.act;
        let stay = self.members.current.iter().copied();
        let stay = stay.filter(|rank| !leave.contains(rank)).collect();
        let leaves = !leave.is_empty();
        let placed = act
            .job
            .assignment
            .as_ref()
            .map(|assignment| assignment.placed);
        let event = PartitionResizeRequested {
            job: act.id.clone(),
            epoch: self.epoch(),
            incarnation: act.partition.incarnation,
            generation: self.members.next_generation(),
            join,
            leave,
            stay,
            grace_s: match act.job.serving {
                Some(serving) => serving.drain_s,
                None => act.job.grace_s,
            },
            cause,
            made_for: act.job.made_for.clone().filter(|_| leaves),
            basis: None,
        };
        Proposal::new(event, placed.unwrap_or(act.partition.last_event)).into()
    }
}
