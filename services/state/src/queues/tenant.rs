//! One tenant's queue, and the sums over it.

use std::collections::BTreeSet;

use dormouse_messages::policy::{Allocation, Policy};
use dormouse_messages::{JobId, Timestamp};
use serde::{Deserialize, Serialize};

use super::Order;
use crate::total::Total;

/// The waiting times of a tenant's jobs, as sums.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// Jobs that ever joined the queue and were not cancelled in it.
    pub arrived: u64,
    /// Of these, those still queued.
    pub queued: u64,
    /// The arrival from which those of the queued ones are counted: it begins anew whenever the
    /// queue was empty, so that the sums stay small.
    since: Timestamp,
    /// The arrivals of the queued ones together, in microseconds since then.
    arrivals_us: i64,
    /// The waits of the released ones together, in microseconds.
    pub paid_us: i64,
    /// The longest of them.
    pub longest_us: i64,
}

impl Waits {
    /// One joins the queue.
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

    /// One leaves the queue without having been released.
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

    /// Waits paid and ages of the queued at `now` together, in microseconds.
    #[must_use]
    pub fn so_far_us(&self, now: Timestamp) -> i64 {
        let queued = i64::try_from(self.queued).unwrap_or(i64::MAX);
        let ages = queued.saturating_mul(self.offset_us(now)) - self.arrivals_us;
        self.paid_us.saturating_add(ages)
    }

    /// The mean wait so far of all that arrived, in seconds.
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
    /// The queued jobs in their order.
    pub order: BTreeSet<(Order, JobId)>,
    /// What the smallest partitions of the queued jobs need together.
    pub queued: Total,
    /// The bytes of the specifications of these and of those that wait for others.
    pub queued_bytes: u64,
    /// What its released jobs have together.
    pub runs: Total,
    /// What of it they cannot be made to give back.
    pub firm: Total,
    /// The containers that its released jobs have together, and those of them that they cannot be made
    /// to give back.
    pub containers: (u64, u64),
    /// Its released jobs that have not ended.
    pub released: u64,
    /// The weights of these together.
    pub weights: u64,
    /// Its jobs that wait for others.
    pub held: u64,
    /// Waiting times.
    pub waits: Waits,
    /// Waiting times by the credited arrivals ([`super::credit`]).
    pub credited: Waits,
    /// The newest credited arrival.
    pub last_credited: Timestamp,
}

impl TenantQueue {
    /// Whether a job of it has not ended.
    #[must_use]
    pub fn has_jobs(&self) -> bool {
        !self.order.is_empty() || self.released > 0 || self.held > 0
    }

    /// What its released jobs hold for certain: where what runs is adjusted, the part that they
    /// cannot give back; else all of it.
    #[must_use]
    pub fn certain(&self, policy: &Policy) -> &Total {
        match policy.allocation {
            Allocation::Dorm => &self.firm,
            _ => &self.runs,
        }
    }

    /// The containers of that.
    #[must_use]
    pub fn certain_containers(&self, policy: &Policy) -> u64 {
        match policy.allocation {
            Allocation::Dorm => self.containers.1,
            _ => self.containers.0,
        }
    }
}
