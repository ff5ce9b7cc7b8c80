//! Dominant Resource Fairness (Ghodsi et al., NSDI 2011), exactly: amounts are integers, keys are
//! compared as fractions, and nothing depends on a step size.
//!
//! - [`fill()`]: divisible progressive filling with floors and caps; the fair shares ŝ of Dorm.
//! - [`offer()`]: whole tasks, one offer at a time, with a trace; [`Misfit`](crate::problem::Misfit)
//!   says what a task that does not fit means.
//!
//! `share_i = max_r allocated_ir / total_r` over the resources of which there are any;
//! `key_i = share_i / weight_i`; the smallest key is served next, ties go to the lowest index.

mod fill;
mod offer;

pub use fill::{Filling, Stop, fill, fill_within};
pub(crate) use offer::{Key, key};
pub use offer::{Offer, Offers, offer};

/// One user of a pool.
#[derive(Debug, Clone, Default)]
pub struct User {
    /// The demand of one task, by resource index.
    pub demand: Vec<u64>,
    /// Its weight; 0 is read as 1.
    pub weight: u32,
    /// Tasks that it is granted before anything is shared ([`fill()`] only).
    pub floor: u32,
    /// The most tasks it takes.
    pub cap: Option<u32>,
    /// What it has beside its tasks in any case, by resource; empty where that is nothing ([`fill()`]
    /// only).
    pub beside: Vec<u64>,
}

impl User {
    /// The weight as a positive number.
    pub(crate) fn weight(&self) -> u32 {
        self.weight.max(1)
    }

    /// Whether it takes part at all: it demands something, and nothing of which there is none.
    pub(crate) fn takes_part(&self, totals: &[u64]) -> bool {
        let mut pairs = self.demand.iter().zip(totals);
        self.demand.iter().any(|amount| *amount > 0)
            && pairs.all(|(amount, total)| *amount == 0 || *total > 0)
    }

    /// The resource of its dominant share: the largest `demand / total`, ties to the first.
    pub(crate) fn dominant(&self, totals: &[u64]) -> Option<usize> {
        let mut best: Option<usize> = None;
        for (index, (amount, total)) in self.demand.iter().zip(totals).enumerate() {
            if *total == 0 || *amount == 0 {
                continue;
            }
            let larger = best.is_none_or(|other| {
                // d/c > d'/c', multiplied out: both products are below 2^128.
                u128::from(*amount) * u128::from(totals[other])
                    > u128::from(self.demand[other]) * u128::from(*total)
            });
            if larger {
                best = Some(index);
            }
        }
        best
    }
}
