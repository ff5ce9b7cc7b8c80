//! One tenant's queue and its sums.

use std::collections::BTreeSet;

use dormouse_messages::policy::{Allocation, Policy};
use dormouse_messages::{JobId, Timestamp};
use serde::{Deserialize, Serialize};

use super::Order;
use crate::total::Total;

/// Sums of the waiting times of a tenant's jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// Jobs that ever joined the queue and were not cancelled there.
    pub arrived: u64,
    pub queued: u64,
    /// Origin of the summed arrivals; moves whenever the queue was empty, which keeps the sums small.
    since: Timestamp,
    /// Sum of the queued jobs' arrivals, in microseconds after `since`.
    arrivals_us: i64,
    /// Sum of the released jobs' waits, in microseconds.
    pub paid_us: i64,
    /// The longest wait of a released job.
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

    /// Records a job that leaves the queue without a release.
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

    /// Returns the waits of released jobs plus the ages of queued jobs at `now`, in microseconds.
    #[must_use]
    pub fn so_far_us(&self, now: Timestamp) -> i64 {
        let queued = i64::try_from(self.queued).unwrap_or(i64::MAX);
        let ages = queued.saturating_mul(self.offset_us(now)) - self.arrivals_us;
        self.paid_us.saturating_add(ages)
    }

    /// Returns the mean wait of all arrived jobs, in seconds.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a figure to read")]
    pub fn mean_s(&self, now: Timestamp) -> f64 {
        match self.arrived {
            0 => 0.0,
            arrived => self.so_far_us(now) as f64 / arrived as f64 / 1e6,
        }
    }
}

/// A tenant's queue.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TenantQueue {
    pub order: BTreeSet<(Order, JobId)>,
    /// Sum of the queued jobs' smallest partitions.
    pub queued: Total,
    /// Specification bytes of queued and dependent jobs.
    pub queued_bytes: u64,
    /// Held by released jobs.
    pub runs: Total,
    /// The non-preemptible part of `runs`.
    pub firm: Total,
    /// Containers of released jobs: all, and the non-preemptible ones.
    pub containers: (u64, u64),
    /// Released jobs that have not ended.
    pub released: u64,
    /// Sum of the released jobs' weights.
    pub weights: u64,
    /// Jobs that wait for dependencies.
    pub held: u64,
    pub waits: Waits,
    /// By credited arrivals ([`super::credit`]).
    pub credited: Waits,
    pub last_credited: Timestamp,
}

impl TenantQueue {
    /// Reports whether any job has not ended.
    #[must_use]
    pub fn has_jobs(&self) -> bool {
        !self.order.is_empty() || self.released > 0 || self.held > 0
    }

    /// Returns the amounts that released jobs hold for certain: the non-preemptible part if running jobs are
    /// adjusted, else all.
    #[must_use]
    pub fn certain(&self, policy: &Policy) -> &Total {
        match policy.allocation {
            Allocation::Dorm => &self.firm,
            _ => &self.runs,
        }
    }

    /// Returns the containers that released jobs hold for certain.
    #[must_use]
    pub fn certain_containers(&self, policy: &Policy) -> u64 {
        match policy.allocation {
            Allocation::Dorm => self.containers.1,
            _ => self.containers.0,
        }
    }
}
