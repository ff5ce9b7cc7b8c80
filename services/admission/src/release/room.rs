//! Fits jobs next to released jobs, within quotas, outside reservations.
//!
//! 1. By sums: the smallest partitions of all released jobs and of this one fit the totals. The next
//!    allocation takes back anything above (unresizable jobs count whole, as do all jobs if the allocation
//!    adjusts nothing).
//! 2. By nodes ([`dormouse_state::fit`]): the smallest partition fits next to unmovable containers.
//! 3. If the sums fail, nodes may still have space next to the present smallest partitions. A waiting
//!    released job reserves the resources that it lacks on its eligible nodes.
//!
//! The optimizer moves and shrinks jobs.
//!
//! A short job passes a blocked head by time limits alone: the platform keeps limits, nobody keeps estimates.
//! Capacity returns as late and goes as early as limits allow, so no later release moves the promised time.

use std::cell::{OnceCell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::job::Urgency;
use dormouse_messages::policy::{Allocation, Queue};
use dormouse_messages::quantity::Resource;
use dormouse_messages::{Amounts, JobId, Sequence, Timestamp};
use dormouse_state::fit::{NodeSet, outside, unplaced};
use dormouse_state::{ClusterState, FreeLater, FreeNodes, Gang, Job, Placed, Queues};

use super::head::{Certain, Head};

/// The result of a fit test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    Yes,
    OverQuota,
    NoRoom,
    /// Reserved for an overtaken job.
    Reserved,
}

impl Fit {
    /// Reports whether other tenants are affected: by capacity, not by quotas.
    pub fn concerns_others(self) -> bool {
        self != Self::OverQuota
    }
}

/// The reservation of a head overtaken long ago.
struct Reserved {
    id: JobId,
    arrival: Sequence,
    class: i32,
    needs: Amounts,
    /// Resources that the head lacks on its eligible nodes.
    lacks: BTreeSet<Resource>,
    nodes: NodeSet,
    /// The start if running jobs use their whole time limits.
    start: Option<Timestamp>,
}

/// Resources denied to later jobs by a waiting released job.
struct Kept {
    lacks: BTreeSet<Resource>,
    nodes: NodeSet,
}

struct Empty<'a> {
    nodes: FreeNodes<'a>,
    /// By gang: true if the empty nodes fit the gang, and the eligible nodes.
    known: RefCell<BTreeMap<Gang, (bool, NodeSet)>>,
}

struct Nodes<'a> {
    least: FreeNodes<'a>,
    /// Free next to unmovable containers.
    pinned: Option<FreeNodes<'a>>,
    kept: Vec<Kept>,
}

/// The capacity left by released jobs.
pub struct Room<'a> {
    queues: &'a Queues,
    empty: OnceCell<Empty<'a>>,
    nodes: OnceCell<Nodes<'a>>,
    /// Nodes may have space that the sums lack.
    is_beyond_sums: OnceCell<bool>,
    committed: Amounts,
    reserved: Option<Reserved>,
    /// By demand: true if some node fits one container.
    fits_node: BTreeMap<Amounts, bool>,
    now: Timestamp,
    ends: Option<Ends>,
    placed: OnceCell<Placed<'a>>,
    /// Free next to unmovable containers, as jobs end.
    later: OnceCell<FreeLater<'a>>,
}

/// Ends by time limit in order, each with the amounts freed by it and all before.
type Ends = Vec<(Timestamp, Amounts)>;

impl<'a> Room<'a> {
    /// Starts from the released jobs.
    pub fn new(queues: &'a Queues, now: Timestamp) -> Self {
        Self {
            queues,
            empty: OnceCell::new(),
            nodes: OnceCell::new(),
            is_beyond_sums: OnceCell::new(),
            committed: queues.committed(),
            reserved: None,
            fits_node: BTreeMap::new(),
            now,
            ends: None,
            placed: OnceCell::new(),
            later: OnceCell::new(),
        }
    }

    /// On demand, because sums suffice for a full cluster.
    fn nodes(&self) -> &Nodes<'a> {
        let new = || Nodes::new(self.queues, self.placed(), self.empty());
        self.nodes.get_or_init(new)
    }

    fn empty(&self) -> &Empty<'a> {
        self.empty.get_or_init(|| Empty {
            nodes: FreeNodes::empty(&self.queues.cluster.nodes),
            known: RefCell::default(),
        })
    }

    /// Sums ignore the nodes of waiting jobs, and count jobs on drained nodes.
    fn is_beyond_sums(&self) -> bool {
        *self.is_beyond_sums.get_or_init(|| {
            let mut nodes = self.queues.cluster.nodes.iter();
            let mut jobs = self.queues.cluster.jobs.values();
            jobs.any(unplaced) || nodes.any(|(_, node)| !node.is_usable())
        })
    }

    /// Returns the head's eligible nodes.
    pub fn nodes_of(&self, head: &Head) -> NodeSet {
        self.empty().eligible(&head.gang)
    }

    /// Reports whether the empty nodes hold a gang.
    pub fn holds(&self, gang: &Gang, open: &NodeSet) -> bool {
        self.empty().nodes.fits(gang, open)
    }

    /// Returns the head's start if all jobs run to their limits; `None` if too little is freed. Unstarted
    /// jobs count as running from now.
    pub fn start_of(&mut self, head: &Head) -> Option<Timestamp> {
        let ends = self.ends.take().unwrap_or_else(|| self.look_at_limits());
        let is_short = |(_, freed): &(Timestamp, Amounts)| {
            let mut short = self.short_once_freed(head, freed);
            short.next().is_some()
        };
        let later = &ends[ends.partition_point(is_short)..];
        let gang = self.later().of(&head.gang);
        let is_too_early = |(at, _): &(Timestamp, Amounts)| !gang.fits(*at);
        let start = later.get(later.partition_point(is_too_early));
        let start = start.map(|(at, _)| *at);
        self.ends = Some(ends);
        start
    }

    fn later(&self) -> &FreeLater<'a> {
        let cluster = &self.queues.cluster;
        let keeps = |_: &JobId, job: &Job| pinned(cluster, job);
        let new = || FreeLater::new(cluster, self.placed(), keeps, self.now);
        self.later.get_or_init(new)
    }

    fn placed(&self) -> &Placed<'a> {
        let new = || Placed::of(&self.queues.cluster);
        self.placed.get_or_init(new)
    }

    fn look_at_limits(&self) -> Ends {
        let limited = self.queues.limited.iter();
        let limited = limited.filter_map(|id| {
            let kept = self.queues.committed_of(self.queues.jobs.get(id)?);
            let ends_at = self.queues.cluster.jobs.get(id)?.would_end_at(self.now)?;
            (!kept.is_empty()).then_some((ends_at, kept))
        });
        let mut ends: Ends = limited.collect();
        ends.sort();
        let mut freed = Amounts::new();
        for (_, amounts) in &mut ends {
            freed.add(amounts, 1);
            amounts.clone_from(&freed);
        }
        ends
    }

    /// Reserves capacity for the head overtaken first, after `reserve_after_s`. Heads above quota get none,
    /// because their capacity would stay idle.
    pub fn reserve<'h>(
        &mut self,
        waiting: impl Iterator<Item = (&'h Certain, &'h Head)>,
        now: Timestamp,
    ) {
        let patience_ms = u64::from(self.queues.cluster.policy.reserve_after_s) * 1000;
        let heads = waiting.filter_map(|(certain, head)| {
            let since = self.queues.passed_over.get(&head.id)?;
            let long_ago = now.ms_since(*since) >= patience_ms;
            let may_go = self.fit(certain, head) != Fit::OverQuota;
            (long_ago && may_go).then_some((*since, head))
        });
        let first = heads.min_by_key(|(since, head)| (*since, head.arrival));
        let Some((_, head)) = first else { return };
        self.reserved = Some(Reserved {
            id: head.id.clone(),
            arrival: head.arrival,
            class: head.class,
            needs: head.needs.clone(),
            lacks: if self.has_room(head) {
                BTreeSet::new()
            } else {
                self.short_of_room(head)
            },
            nodes: self.nodes_of(head),
            start: self.start_of(head),
        });
    }

    /// Returns the reserved job's start, if known.
    pub fn reserved_start(&self) -> Option<Timestamp> {
        self.reserved.as_ref()?.start
    }

    /// Reports whether the head could run alone on the present nodes.
    pub fn could_run(&mut self, head: &Head) -> bool {
        if head.needs.first_short(&self.queues.total, 1).is_some() {
            return false;
        }
        let mut roles = head.auxiliary.parts().iter();
        roles.all(|part| self.some_node_fits(&part.demand)) && self.some_node_fits(&head.demand)
    }

    fn some_node_fits(&mut self, demand: &Amounts) -> bool {
        if let Some(fits) = self.fits_node.get(demand) {
            return *fits;
        }
        let fits = self.queues.some_node_fits(demand);
        self.fits_node.insert(demand.clone(), fits);
        fits
    }

    /// Tests a queue's head. For a preempting class, lower classes' capacity is free.
    pub fn fit(&self, certain: &Certain, head: &Head) -> Fit {
        if self.is_over_containers(certain, head) || certain.over_budget(head).is_some() {
            return Fit::OverQuota;
        }
        if let Some(quota) = self.queues.cluster.tenants.quota(head.id.tenant()) {
            let mut with = certain.amounts.clone();
            with.add(&head.needs, 1);
            if quota.exceeded_by(&with).is_some() {
                return Fit::OverQuota;
            }
        }
        if !self.has_room(head) {
            return Fit::NoRoom;
        }
        match self.reserved_from(head) {
            Some(reserved) if self.takes_from(head, reserved) => Fit::Reserved,
            _ => Fit::Yes,
        }
    }

    /// Reports whether a head fits on the nodes open to it.
    fn has_room(&self, head: &Head) -> bool {
        let by_sums = head.open.is_none() && self.short(head, None).next().is_none();
        if !by_sums && head.open.is_none() && !self.is_beyond_sums() {
            return false;
        }
        let nodes = self.nodes();
        let fits = |by_sums: bool| {
            if head.preempts {
                by_sums && self.fits_above(head)
            } else {
                by_sums && nodes.pinned().fits(&head.gang, &None)
            }
        };
        // The optimizer explains jobs that never fit.
        fits(by_sums)
            || nodes
                .least
                .fits(&head.gang, &nodes.open_to(&head.gang, &head.open))
            || (by_sums && !self.is_reserved() && !self.empty().is_held(&head.gang))
    }

    /// A job that fits nowhere now may fit later, once a reservation ends.
    fn is_reserved(&self) -> bool {
        !self.queues.cluster.reservations.is_empty()
    }

    fn fits_above(&self, head: &Head) -> bool {
        let keeps = |_: &JobId, job: &Job| {
            let gives = job.urgency == Urgency::Training && job.precedence.value() < head.class;
            if gives && self.queues.cluster.policy.allocation == Allocation::Dorm {
                0
            } else {
                pinned(&self.queues.cluster, job)
            }
        };
        FreeNodes::left_by_placed(&self.queues.cluster, self.placed(), keeps)
            .fits(&head.gang, &None)
    }

    fn short_of_room(&self, head: &Head) -> BTreeSet<Resource> {
        let short: BTreeSet<Resource> = match head.open {
            None => self.short(head, None).cloned().collect(),
            Some(_) => BTreeSet::new(),
        };
        if !short.is_empty() {
            return short;
        }
        let nodes = self.nodes();
        let open = nodes.open_to(&head.gang, &head.open);
        match open {
            None => nodes.pinned().lacks(&head.gang, &None),
            Some(_) => nodes.least.lacks(&head.gang, &open),
        }
    }

    /// Reports whether a head competes with the reservation and fits nowhere outside the reserved nodes.
    fn takes_from(&self, head: &Head, reserved: &Reserved) -> bool {
        let is_short = self.short(head, Some(&reserved.needs)).next().is_some();
        let competes = is_short || head.demanded().any(|it| reserved.lacks.contains(it));
        competes && {
            let nodes = self.nodes();
            let open = outside(&nodes.open_to(&head.gang, &head.open), &reserved.nodes);
            !nodes.least.fits(&head.gang, &open)
        }
    }

    /// Reports whether granted containers would be exceeded.
    fn is_over_containers(&self, certain: &Certain, head: &Head) -> bool {
        let most = self
            .queues
            .cluster
            .tenants
            .grants
            .max_containers(head.id.tenant());
        most.is_some_and(|most| certain.containers + head.containers() > u64::from(most))
    }

    /// Returns a misfit head's missing resources.
    pub fn lacks(&self, certain: &Certain, head: &Head, fit: Fit) -> BTreeSet<Resource> {
        match fit {
            Fit::Yes => BTreeSet::new(),
            Fit::NoRoom => self.short_of_room(head),
            Fit::Reserved => {
                let Some(reserved) = self.reserved_from(head) else {
                    return BTreeSet::new();
                };
                let short = self.short(head, Some(&reserved.needs));
                let competes = head.demanded().filter(|it| reserved.lacks.contains(it));
                short.chain(competes).cloned().collect()
            }
            Fit::OverQuota if self.is_over_containers(certain, head) => {
                head.demanded().cloned().collect()
            }
            Fit::OverQuota => {
                let mut with = certain.amounts.clone();
                with.add(&head.needs, 1);
                let quota = self.queues.cluster.tenants.quota(head.id.tenant());
                let bounds = quota.into_iter().flat_map(|quota| quota.iter());
                let exceeded = bounds.filter(|(resource, most)| with.get(resource) > *most);
                let exceeded = exceeded.map(|(resource, _)| resource);
                exceeded.chain(certain.over_budget(head)).cloned().collect()
            }
        }
    }

    /// Returns the reservation that binds a head. Lower classes' reservations, and those that start after the
    /// head's end, do not bind. Under FIFO an earlier arrival is exempt: it blocks its competitors, so both
    /// would wait for each other. Where past use counts, arrivals do not order the queue.
    fn reserved_from(&self, head: &Head) -> Option<&Reserved> {
        let cluster = &self.queues.cluster;
        let fifo = cluster.policy.queue == Queue::Fifo && !cluster.usage.is_on();
        let reserved = self.reserved.as_ref();
        reserved
            .filter(|it| it.id != head.id && it.class >= head.class)
            .filter(|it| !(fifo && head.arrival < it.arrival))
            .filter(|it| !head.ends_by(it.start, self.now))
    }

    fn short<'h>(
        &self,
        head: &'h Head,
        reserved: Option<&Amounts>,
    ) -> impl Iterator<Item = &'h Resource> {
        self.short_with(head, move |resource| {
            (reserved.map_or(0, |reserved| reserved.get(resource)), 0)
        })
    }

    fn short_once_freed<'h>(
        &self,
        head: &'h Head,
        freed: &Amounts,
    ) -> impl Iterator<Item = &'h Resource> {
        self.short_with(head, move |resource| (0, freed.get(resource)))
    }

    fn short_with<'h>(
        &self,
        head: &'h Head,
        more_and_less: impl Fn(&Resource) -> (u64, u64),
    ) -> impl Iterator<Item = &'h Resource> {
        head.demanded().filter(move |resource| {
            let (reserved, freed) = more_and_less(resource);
            let below = if head.preempts {
                self.queues.held_below(head.class, resource)
            } else {
                0
            };
            let committed = self.committed.get(resource);
            let committed = committed.saturating_sub(below).saturating_sub(freed);
            let taken = committed.saturating_add(reserved);
            let needs = head.needs.get(resource);
            taken.saturating_add(needs) > self.queues.total.get(resource)
        })
    }

    /// Takes a job's capacity.
    pub fn take(&mut self, head: &Head) {
        self.committed.add(&head.needs, 1);
        self.nodes();
        if let (Some(nodes), Some(empty)) = (self.nodes.get_mut(), self.empty.get()) {
            nodes.take(&head.gang, &head.open, empty);
        }
        if let Some(limit_ms) = head.limit_ms {
            let at = self.now.plus_ms(limit_ms);
            let mut ends = self.ends.take().unwrap_or_else(|| self.look_at_limits());
            let place = ends.partition_point(|(other, _)| *other <= at);
            let before = place.checked_sub(1).map(|last| ends[last].1.clone());
            ends.insert(place, (at, before.unwrap_or_default()));
            for (_, freed) in &mut ends[place..] {
                freed.add(&head.needs, 1);
            }
            self.ends = Some(ends);
        }
        if self.reserved.as_ref().is_some_and(|it| it.id == head.id) {
            self.reserved = None;
        }
    }
}

impl<'a> Nodes<'a> {
    /// Takes waiting released jobs by precedence.
    fn new(queues: &'a Queues, placed: &Placed<'a>, empty: &Empty<'a>) -> Self {
        let cluster = &queues.cluster;
        let least = |id: &JobId, _: &Job| {
            let job = queues.jobs.get(id);
            job.map_or(0, |job| match queues.cluster.policy.allocation {
                Allocation::Dorm => job.non_preemptible(),
                _ => job.held(),
            })
        };
        let moves = |job: &Job| job.assignment.is_some() && pinned(cluster, job) == 0;
        let moves = cluster.jobs.values().any(moves);
        let mut nodes = Self {
            least: FreeNodes::left_by_placed(cluster, placed, least),
            pinned: moves
                .then(|| FreeNodes::left_by_placed(cluster, placed, |_, job| pinned(cluster, job))),
            kept: Vec::new(),
        };
        let waits = |(id, job): &(&JobId, &Job)| {
            unplaced(job) && !job.gives_up() && !queues.unschedulable.contains(*id)
        };
        let mut waiting: Vec<(&JobId, &Job)> = cluster.jobs.iter().filter(waits).collect();
        let order = |job: &Job| {
            let class = Reverse(job.precedence.value());
            (Reverse(job.urgency), class, job.released)
        };
        waiting.sort_by_key(|(_, job)| order(job));
        // Thousands of one kind may have been released since the last allocation.
        let mut alike: Vec<(Gang, u64)> = Vec::new();
        let mut known: BTreeMap<Gang, usize> = BTreeMap::new();
        for (_, job) in waiting {
            let gang = Gang::of(&cluster.nodes, job);
            let index = *known.entry(gang).or_insert_with_key(|gang| {
                alike.push((gang.clone(), 0));
                alike.len() - 1
            });
            alike[index].1 += 1;
        }
        for (gang, jobs) in alike {
            nodes.take_all(&gang, jobs, empty);
        }
        nodes
    }

    fn take_all(&mut self, gang: &Gang, jobs: u64, empty: &Empty<'_>) {
        let together = gang.times(jobs);
        let open = self.open_to(gang, &None);
        let fit = self.least.place(&together, &open);
        if fit {
            if let Some(pinned) = &mut self.pinned {
                pinned.place(&together, &open);
            }
            return;
        }
        // If one does not fit, no other does.
        let mut left = 0..jobs;
        while left.next().is_some() && self.take(gang, &None, empty) {}
    }

    /// Takes a released job's capacity if the job fits. A misfit reserves the resources that it lacks on its
    /// eligible nodes.
    fn take(&mut self, gang: &Gang, open: &NodeSet, empty: &Empty<'_>) -> bool {
        let open = self.open_to(gang, open);
        if let Some(pinned) = &mut self.pinned {
            pinned.place(gang, &open);
        }
        let fits = self.least.place(gang, &open);
        if !fits && empty.is_held(gang) {
            let nodes = empty.eligible(gang);
            let lacks = self.least.lacks(gang, &open);
            match self.kept.iter_mut().find(|kept| kept.nodes == nodes) {
                Some(kept) => kept.lacks.extend(lacks),
                None => self.kept.push(Kept { lacks, nodes }),
            }
        }
        fits
    }

    /// Returns the nodes of `open` that deny nothing.
    fn open_to(&self, gang: &Gang, open: &NodeSet) -> NodeSet {
        if self.kept.is_empty() {
            return open.clone();
        }
        let demanded = gang.demanded();
        let kept = self.kept.iter();
        let kept = kept.filter(|kept| kept.lacks.iter().any(|it| demanded.contains(it)));
        kept.fold(open.clone(), |open, kept| outside(&open, &kept.nodes))
    }

    fn pinned(&self) -> &FreeNodes<'a> {
        self.pinned.as_ref().unwrap_or(&self.least)
    }
}

impl Empty<'_> {
    fn is_held(&self, gang: &Gang) -> bool {
        self.known(gang, |known| known.0)
    }

    fn eligible(&self, gang: &Gang) -> NodeSet {
        self.known(gang, |known| known.1.clone())
    }

    fn known<T>(&self, gang: &Gang, what: impl FnOnce(&(bool, NodeSet)) -> T) -> T {
        let mut known = self.known.borrow_mut();
        if let Some(known) = known.get(gang) {
            return what(known);
        }
        let found = (self.nodes.fits(gang, &None), self.nodes.eligible(gang));
        what(known.entry(gang.clone()).or_insert(found))
    }
}

fn pinned(cluster: &ClusterState, job: &Job) -> u64 {
    if job.is_adjustable() && cluster.policy.allocation == Allocation::Dorm {
        0
    } else {
        u64::MAX
    }
}
