//! Whether a job fits: beside what the released jobs hold for certain, within its tenant's
//! quota, and beside what is reserved.
//!
//! A job fits while the smallest partitions of all released jobs, with its own, fit the
//! cluster's totals: what runs above that is taken back by the next allocation (a job that
//! cannot be resized counts with all that it has, and so does every job where the allocation
//! adjusts nothing). Whether containers find nodes is the optimizer's to prove.

use std::collections::BTreeMap;

use dormouse_messages::{Amounts, JobId, Timestamp};
use dormouse_projections::shared::tenants::exceeds;
use dormouse_projections::shared::{Queues, Stand};

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

/// The room that is left.
pub struct Room<'a> {
    queues: &'a Queues,
    committed: Amounts,
    /// A job that was passed over long ago, and what its smallest partition needs.
    reserved: Option<(&'a JobId, Amounts)>,
    /// By demand: whether some node fits one container.
    fits_node: BTreeMap<Amounts, bool>,
}

impl<'a> Room<'a> {
    /// What the released jobs leave.
    pub fn new(queues: &'a Queues, now: Timestamp) -> Self {
        let mut room = Self {
            queues,
            committed: queues.committed(),
            reserved: None,
            fits_node: BTreeMap::new(),
        };
        room.reserved = room.longest_passed(now);
        room
    }

    /// The job that was passed over first, once that is long enough ago.
    fn longest_passed(&mut self, now: Timestamp) -> Option<(&'a JobId, Amounts)> {
        let patience_ms = u64::from(self.queues.policy.reserve_after_s) * 1000;
        let passed = self.queues.passed_over.iter();
        let long_ago = passed.filter(|(_, since)| now.ms_since(**since) >= patience_ms);
        let mut candidates: Vec<_> = long_ago.map(|(id, since)| (*since, id)).collect();
        candidates.sort_unstable();
        for (_, id) in candidates {
            let Some(job) = self.queues.jobs.get(id) else {
                continue;
            };
            let min = u64::from(job.containers.min);
            let queued = matches!(job.stand, Stand::Queued { .. });
            if queued && self.could_run(&job.demand, min) {
                let mut needs = Amounts::new();
                needs.add(&job.demand, min);
                return Some((id, needs));
            }
        }
        None
    }

    /// Whether it could run if nothing else did, on the nodes that there are.
    pub fn could_run(&mut self, demand: &Amounts, min: u64) -> bool {
        if demand.first_short(&self.queues.total, min).is_some() {
            return false;
        }
        if let Some(fits) = self.fits_node.get(demand) {
            return *fits;
        }
        let fits = self.queues.some_node_fits(demand);
        self.fits_node.insert(demand.clone(), fits);
        fits
    }

    /// Whether the head of a line fits now.
    pub fn fit(&self, line: &Line<'_>, head: &Head) -> Fit {
        if let Some(quota) = self.queues.config.quota(line.tenant) {
            let mut with = line.firm.clone();
            with.add(&head.demand, head.min);
            if exceeds(&with, quota).is_some() {
                return Fit::OverQuota;
            }
        }
        if self.short(head, None) {
            return Fit::NoRoom;
        }
        match &self.reserved {
            Some((id, needs)) if **id != head.id && self.short(head, Some(needs)) => Fit::Reserved,
            _ => Fit::Yes,
        }
    }

    /// Whether a resource that it demands is short, beside what is `reserved`.
    fn short(&self, head: &Head, reserved: Option<&Amounts>) -> bool {
        head.demand.iter().any(|(resource, amount)| {
            let reserved = reserved.map_or(0, |reserved| reserved.get(resource));
            let taken = self.committed.get(resource).saturating_add(reserved);
            let needs = amount.saturating_mul(head.min);
            taken.saturating_add(needs) > self.queues.total.get(resource)
        })
    }

    /// Takes the room of a released job.
    pub fn take(&mut self, head: &Head) {
        self.committed.add(&head.demand, head.min);
        if self
            .reserved
            .as_ref()
            .is_some_and(|(id, _)| **id == head.id)
        {
            self.reserved = None;
        }
    }
}
