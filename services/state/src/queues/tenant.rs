//! One tenant's queue and its sums.

use std::collections::BTreeSet;

use dormouse_messages::policy::{Allocation, Policy};
use dormouse_messages::{JobId, Timestamp};
use serde::{Deserialize, Serialize};

use super::Order;
use crate::total::Total;

/// Summed waiting times.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// Not cancelled in the queue.
    pub arrived: u64,
    pub queued: u64,
    /// Moves whenever the queue was empty, to keep sums small.
    since: Timestamp,
    /// Relative to `since`.
    arrivals_us: i64,
    /// Waits of released jobs.
    pub paid_us: i64,
    pub longest_us: i64,
}

impl Waits {
    /// Records a job that joins the queue.
    pub fn join(&mut self, at: Timestamp) {
        if self.queued == 0 {
            (self.since, self.arrivals_us) = (at, 0);
        }
        self.arrived += 1;
        self.queued += 1;
        self.arrivals_us += self.offset_us(at);
    }

    pub(super) fn release(&mut self, arrived: Timestamp, now: Timestamp) {
        self.forget(arrived);
        let waited = (now.as_micros() - arrived.as_micros()).max(0);
        self.paid_us = self.paid_us.saturating_add(waited);
        self.longest_us = self.longest_us.max(waited);
    }

    pub(super) fn leave(&mut self, arrived: Timestamp) {
        self.forget(arrived);
        self.arrived = self.arrived.saturating_sub(1);
    }

    fn forget(&mut self, arrived: Timestamp) {
        self.queued = self.queued.saturating_sub(1);
        self.arrivals_us -= self.offset_us(arrived);
    }

    fn offset_us(&self, at: Timestamp) -> i64 {
        at.as_micros() - self.since.as_micros()
    }

    /// Returns past waits plus ages of queued jobs, in microseconds.
    #[must_use]
    pub fn so_far_us(&self, now: Timestamp) -> i64 {
        let queued = i64::try_from(self.queued).unwrap_or(i64::MAX);
        let ages = queued.saturating_mul(self.offset_us(now)) - self.arrivals_us;
        self.paid_us.saturating_add(ages)
    }

    /// Returns the mean wait, in seconds.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a figure to read")]
    pub fn mean_s(&self, now: Timestamp) -> f64 {
        match self.arrived {
            0 => 0.0,
            arrived => self.so_far_us(now) as f64 / arrived as f64 / 1e6,
        }
    }
}

/// A tenant's queue and sums.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TenantQueue {
    pub order: BTreeSet<(Order, JobId)>,
    /// Smallest partitions.
    pub queued: Total,
    /// Including dependent jobs.
    pub queued_bytes: u64,
    /// Held by released jobs.
    pub runs: Total,
    /// The non-preemptible part of `runs`.
    pub non_preemptible: Total,
    /// All, and non-preemptible ones.
    pub containers: (u64, u64),
    pub released: u64,
    pub weights: u64,
    pub held: u64,
    pub waits: Waits,
    /// By [`super::credit`].
    pub credited: Waits,
    pub last_credited: Timestamp,
}

impl TenantQueue {
    /// Reports whether any job has not ended.
    #[must_use]
    pub fn has_jobs(&self) -> bool {
        !self.order.is_empty() || self.released > 0 || self.held > 0
    }

    /// Returns the certain amounts: the non-preemptible part if jobs are adjusted, else all.
    #[must_use]
    pub fn certain(&self, policy: &Policy) -> &Total {
        match policy.allocation {
            Allocation::Dorm => &self.non_preemptible,
            _ => &self.runs,
        }
    }

    /// Returns the certain containers.
    #[must_use]
    pub fn certain_containers(&self, policy: &Policy) -> u64 {
        match policy.allocation {
            Allocation::Dorm => self.containers.1,
            _ => self.containers.0,
        }
    }
}
