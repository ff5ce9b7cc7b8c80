//! Amounts of any number of jobs together.

use dormouse_messages::roles::Beside;
use dormouse_messages::{Amounts, Resource};
use serde::{Deserialize, Serialize};

/// A sum that what is added can be subtracted from again: it is kept in 128 bits, in which no number of
/// jobs reaches the largest integer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// The lower half of each sum.
    low: Amounts,
    /// The upper half.
    high: Amounts,
}

impl Total {
    /// Adds amounts.
    pub fn add(&mut self, amounts: &Amounts) {
        self.change(amounts, u128::saturating_add);
    }

    /// Subtracts amounts; stops at 0.
    pub fn subtract(&mut self, amounts: &Amounts) {
        self.change(amounts, u128::saturating_sub);
    }

    /// Adds what a job holds that has so many containers, roles and all, of workers with `demand`.
    pub fn add_job(&mut self, beside: &Beside, demand: &Amounts, containers: u64) {
        self.add(&held(beside, demand, containers));
    }

    /// Subtracts the same.
    pub fn subtract_job(&mut self, beside: &Beside, demand: &Amounts, containers: u64) {
        self.subtract(&held(beside, demand, containers));
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "one half of the bits, then the other"
    )]
    fn change(&mut self, amounts: &Amounts, change: impl Fn(u128, u128) -> u128) {
        for (resource, amount) in amounts.iter() {
            let high = u128::from(self.high.get(resource)) << 64;
            let sum = change(high | u128::from(self.low.get(resource)), amount.into());
            self.low.set(resource.clone(), sum as u64);
            self.high.set(resource.clone(), (sum >> 64) as u64);
        }
    }

    /// Whether every sum is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.low.is_empty() && self.high.is_empty()
    }

    /// The sum of one resource; at most the largest integer.
    #[must_use]
    pub fn get(&self, resource: &Resource) -> u64 {
        match self.high.get(resource) {
            0 => self.low.get(resource),
            _ => u64::MAX,
        }
    }

    /// The sums; at most the largest integer each.
    #[must_use]
    pub fn amounts(&self) -> Amounts {
        let mut amounts = self.low.clone();
        for (resource, _) in self.high.iter() {
            amounts.set(resource.clone(), u64::MAX);
        }
        amounts
    }
}

fn held(beside: &Beside, demand: &Amounts, containers: u64) -> Amounts {
    let mut held = Amounts::new();
    beside.add_to(&mut held, demand, containers);
    held
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_subtracted_again_however_much_it_is() {
        let mut total = Total::default();
        let job: Amounts = "cpu=1,memory=8000Ti".parse().expect("amounts");
        (0..3_000).for_each(|_| total.add(&job));
        assert_eq!(total.get(&Resource::Memory), u64::MAX);
        assert_eq!(total.amounts().get(&Resource::Cpu), 3_000_000);
        (0..2_999).for_each(|_| total.subtract(&job));
        assert_eq!(total.amounts(), job);
        total.subtract(&job);
        assert_eq!(total, Total::default());
        assert!(total.is_empty());
    }
}
