//! Whether a job fits: beside what the released jobs hold for certain, within its tenant's
//! quota, and beside what is reserved.
//!
//! A job fits while the smallest partitions of all released jobs, with its own, fit the
//! cluster's totals: what runs above that is taken back by the next allocation (a job that
//! cannot be resized counts with all that it has, and so does every job where the allocation
//! adjusts nothing). Whether containers find nodes is the optimizer's to prove.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::policy::Queue;
use dormouse_messages::quantity::Resource;
use dormouse_messages::{Amounts, JobId, Sequence, Timestamp};
use dormouse_state::Queues;

use super::line::{Head, Line};

/// Whether a job is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// It fits.
    Yes,
    /// Its tenant would have more than its quota.
    OverQuota,
    /// What is free is not enough.
    NoRoom,
    /// What is free is reserved for a job that was passed over.
    Reserved,
}

impl Fit {
    /// Whether others wait with the job: a quota is its tenant's own affair, room is everybody's.
    pub fn concerns_others(self) -> bool {
        self != Self::OverQuota
    }
}

/// Room that is kept for a head that was passed over long ago.
struct Reserved {
    id: JobId,
    arrival: Sequence,
    class: i32,
    /// What its smallest partition needs.
    needs: Amounts,
    /// When it starts if the time limits of what runs hold.
    start: Option<Timestamp>,
}

/// The room that is left.
pub struct Room<'a> {
    queues: &'a Queues,
    committed: Amounts,
    reserved: Option<Reserved>,
    /// By demand: whether some node fits one container.
    fits_node: BTreeMap<Amounts, bool>,
    now: Timestamp,
    /// When time limits end released jobs at the earliest, in order, and what becomes free then; looked
    /// at when it is asked for.
    ends: Option<Vec<(Timestamp, Amounts)>>,
}

impl<'a> Room<'a> {
    /// What the released jobs leave.
    pub fn new(queues: &'a Queues, now: Timestamp) -> Self {
        Self {
            queues,
            committed: queues.committed(),
            reserved: None,
            fits_node: BTreeMap::new(),
            now,
            ends: None,
        }
    }

    /// When a head that has no room starts if nothing ends before its time limit; nothing where that
    /// frees too little. One that has not started yet counts as if it ran now: later is as well.
    pub fn start_of(&mut self, head: &Head) -> Option<Timestamp> {
        let mut freed = Amounts::new();
        let ends = self.ends.take().unwrap_or_else(|| self.look_at_limits());
        let start = ends.iter().find_map(|(at, amounts)| {
            freed.add(amounts, 1);
            self.short_beside(head, &freed)
                .next()
                .is_none()
                .then_some(*at)
        });
        self.ends = Some(ends);
        start
    }

    fn look_at_limits(&self) -> Vec<(Timestamp, Amounts)> {
        let limited = self.queues.limited.iter();
        let limited = limited.filter_map(|id| {
            let job = self.queues.jobs.get(id)?;
            let kept = self.queues.committed_of(job);
            (!kept.is_empty()).then_some((job.would_end_at(self.now)?, kept))
        });
        let mut ends: Vec<(Timestamp, Amounts)> = limited.collect();
        ends.sort();
        ends
    }

    /// Reserves room for the head that was overtaken first, once that is long enough ago. Only
    /// for a head that its quota lets go: room for one that cannot go would be kept for nothing,
    /// and without end where a job of a higher priority has come before it.
    pub fn reserve(&mut self, lines: &[Line<'_>], now: Timestamp) {
        let patience_ms = u64::from(self.queues.policy.reserve_after_s) * 1000;
        let heads = lines.iter().filter_map(|line| {
            let head = line.head.as_ref()?;
            let since = self.queues.passed_over.get(&head.id)?;
            let long_ago = now.ms_since(*since) >= patience_ms;
            let may_go = self.fit(line, head) != Fit::OverQuota;
            (long_ago && may_go).then_some((*since, head))
        });
        let first = heads.min_by_key(|(since, head)| (*since, head.arrival));
        let Some((_, head)) = first else { return };
        self.reserved = Some(Reserved {
            id: head.id.clone(),
            arrival: head.arrival,
            class: head.class,
            needs: head.needs.clone(),
            start: self.start_of(head),
        });
    }

    /// When the job starts that room is kept for, as far as that is known.
    pub fn reserved_start(&self) -> Option<Timestamp> {
        self.reserved.as_ref()?.start
    }

    /// Whether it could run if nothing else did, on the nodes that there are.
    pub fn could_run(&mut self, head: &Head) -> bool {
        if head.needs.first_short(&self.queues.total, 1).is_some() {
            return false;
        }
        let mut roles = head.beside.parts().iter();
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

    /// Whether the head of a line fits now. For one of a class that preempts, what lower classes hold
    /// is free.
    pub fn fit(&self, line: &Line<'_>, head: &Head) -> Fit {
        if self.is_over_containers(line, head) {
            return Fit::OverQuota;
        }
        if let Some(quota) = self.queues.config.quota(line.tenant) {
            let mut with = line.firm.clone();
            with.add(&head.needs, 1);
            if quota.exceeded_by(&with).is_some() {
                return Fit::OverQuota;
            }
        }
        if self.short(head, None).next().is_some() {
            return Fit::NoRoom;
        }
        match self.reserved_from(head) {
            Some(needs) if self.short(head, Some(needs)).next().is_some() => Fit::Reserved,
            _ => Fit::Yes,
        }
    }

    /// Whether its tenant would have more containers than it is granted: every job of it has some.
    fn is_over_containers(&self, line: &Line<'_>, head: &Head) -> bool {
        let most = self.queues.config.grants.max_containers(line.tenant);
        most.is_some_and(|most| line.containers + head.containers() > u64::from(most))
    }

    /// The resources that a head which does not fit lacks.
    pub fn lacks(&self, line: &Line<'_>, head: &Head, fit: Fit) -> BTreeSet<Resource> {
        match fit {
            Fit::Yes => BTreeSet::new(),
            Fit::NoRoom => self.short(head, None).cloned().collect(),
            Fit::Reserved => {
                let needs = self.reserved_from(head);
                self.short(head, needs).cloned().collect()
            }
            Fit::OverQuota if self.is_over_containers(line, head) => {
                head.demanded().cloned().collect()
            }
            Fit::OverQuota => {
                let mut with = line.firm.clone();
                with.add(&head.needs, 1);
                let quota = self.queues.config.quota(line.tenant);
                let bounds = quota.into_iter().flat_map(|quota| quota.iter());
                let exceeded = bounds.filter(|(resource, most)| with.get(resource) > *most);
                exceeded.map(|(resource, _)| resource.clone()).collect()
            }
        }
    }

    /// What is reserved for another job than this one, unless that is of a lower class, or starts only
    /// when this one has ended. First in, first out nothing is reserved from a job that arrived earlier:
    /// it holds back all that compete with it, also the one that the room is kept for, and the two would
    /// wait for each other.
    fn reserved_from(&self, head: &Head) -> Option<&Amounts> {
        let fifo = self.queues.policy.queue == Queue::Fifo;
        let reserved = self.reserved.as_ref();
        reserved
            .filter(|it| it.id != head.id && it.class >= head.class)
            .filter(|it| !(fifo && head.arrival < it.arrival))
            .filter(|it| !head.ends_by(it.start, self.now))
            .map(|it| &it.needs)
    }

    /// The resources that it demands and that are short, beside what is `reserved`.
    fn short<'h>(
        &self,
        head: &'h Head,
        reserved: Option<&Amounts>,
    ) -> impl Iterator<Item = &'h Resource> {
        self.short_with(head, move |resource| {
            (reserved.map_or(0, |reserved| reserved.get(resource)), 0)
        })
    }

    /// The same when so much has become free.
    fn short_beside<'h>(
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
            let below = match head.preempts {
                true => self.queues.held_below(head.class, resource),
                false => 0,
            };
            let committed = self.committed.get(resource);
            let committed = committed.saturating_sub(below).saturating_sub(freed);
            let taken = committed.saturating_add(reserved);
            let needs = head.needs.get(resource);
            taken.saturating_add(needs) > self.queues.total.get(resource)
        })
    }

    /// Takes the room of a released job.
    pub fn take(&mut self, head: &Head) {
        self.committed.add(&head.needs, 1);
        if let Some(limit_ms) = head.limit_ms {
            let at = self.now.plus_ms(limit_ms);
            let mut ends = self.ends.take().unwrap_or_else(|| self.look_at_limits());
            let place = ends.partition_point(|(other, _)| *other <= at);
            ends.insert(place, (at, head.needs.clone()));
            self.ends = Some(ends);
        }
        if self.reserved.as_ref().is_some_and(|it| it.id == head.id) {
            self.reserved = None;
        }
    }
}
