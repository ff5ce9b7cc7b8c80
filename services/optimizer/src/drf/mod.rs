//! Dominant Resource Fairness (Ghodsi et al., NSDI 2011), exact: amounts are integers, keys are fractions, no
//! step size.
//!
//! - [`fill()`]: divisible progressive filling with floors and caps; the fair shares ŝ of Dorm.
//! - [`offer()`]: whole tasks, one offer at a time, with a trace; [`Misfit`](crate::problem::Misfit) handles
//!   a task that does not fit.
//!
//! `share_i = max_r allocated_ir / total_r` over resources with a positive total; `key_i = share_i /
//! weight_i`. The smallest key is served next; ties go to the lowest index.

mod fill;
mod offer;

pub use fill::{Filling, Stop, fill, fill_within};
pub(crate) use offer::{Key, key};
pub use offer::{Offer, Offers, offer};

/// One user of a pool.
#[derive(Debug, Clone, Default)]
pub struct User {
    pub demand: Vec<u64>,
    /// A weight of 0 counts as 1.
    pub weight: u32,
    /// Tasks granted before sharing ([`fill()`] only).
    pub floor: u32,
    pub cap: Option<u32>,
    /// Amounts besides the tasks, by resource; may be empty ([`fill()`] only).
    pub auxiliary: Vec<u64>,
}

impl User {
    pub(crate) fn weight(&self) -> u32 {
        self.weight.max(1)
    }

    pub(crate) fn takes_part(&self, totals: &[u64]) -> bool {
        let mut pairs = self.demand.iter().zip(totals);
        self.demand.iter().any(|amount| *amount > 0)
            && pairs.all(|(amount, total)| *amount == 0 || *total > 0)
    }

    /// The largest `demand / total`; ties go to the first.
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
