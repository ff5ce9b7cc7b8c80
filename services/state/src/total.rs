//! Sums over any number of jobs.

use dormouse_messages::roles::AuxiliaryRoles;
use dormouse_messages::{Amounts, Resource};
use serde::{Deserialize, Serialize};

/// A reversible sum: 128 bits, which no number of jobs overflows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    low: Amounts,
    high: Amounts,
}

impl Total {
    /// Adds amounts.
    pub fn add(&mut self, amounts: &Amounts) {
        self.change(amounts, u128::saturating_add);
    }

    /// Subtracts amounts; saturates at 0.
    pub fn subtract(&mut self, amounts: &Amounts) {
        self.change(amounts, u128::saturating_sub);
    }

    /// Adds a job's containers, roles included.
    pub fn add_job(&mut self, auxiliary: &AuxiliaryRoles, demand: &Amounts, containers: u64) {
        self.add(&held(auxiliary, demand, containers));
    }

    /// Subtracts a job's containers.
    pub fn subtract_job(&mut self, auxiliary: &AuxiliaryRoles, demand: &Amounts, containers: u64) {
        self.subtract(&held(auxiliary, demand, containers));
    }

    /// Adds amounts `times` over; saturates.
    pub fn add_times(&mut self, amounts: &Amounts, times: u64) {
        self.change(amounts, |sum, amount| {
            sum.saturating_add(amount * u128::from(times))
        });
    }

    /// Replaces one sum.
    pub fn set(&mut self, resource: &Resource, sum: u128) {
        self.put(resource, sum);
    }

    /// Multiplies every sum by `factor` ÷ 2^32.
    pub fn scale(&mut self, factor: u32) {
        let sums: Vec<(Resource, u128)> = self.sums().collect();
        for (resource, sum) in sums {
            self.put(&resource, sum.saturating_mul(factor.into()) >> 32);
        }
    }

    /// Iterates over the sums.
    pub fn sums(&self) -> impl Iterator<Item = (Resource, u128)> {
        let high_alone = self.high.iter().filter(|(it, _)| self.low.get(it) == 0);
        let resources = self.low.iter().chain(high_alone);
        resources.map(|(resource, _)| (resource.clone(), self.sum(resource)))
    }

    /// Returns one sum.
    #[must_use]
    pub fn sum(&self, resource: &Resource) -> u128 {
        u128::from(self.high.get(resource)) << 64 | u128::from(self.low.get(resource))
    }

    fn change(&mut self, amounts: &Amounts, change: impl Fn(u128, u128) -> u128) {
        for (resource, amount) in amounts.iter() {
            self.put(resource, change(self.sum(resource), amount.into()));
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "one half of the bits, then the other"
    )]
    fn put(&mut self, resource: &Resource, sum: u128) {
        self.low.set(resource.clone(), sum as u64);
        self.high.set(resource.clone(), (sum >> 64) as u64);
    }

    /// Reports whether all sums are 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.low.is_empty() && self.high.is_empty()
    }

    /// Returns one sum, at most `u64::MAX`.
    #[must_use]
    pub fn get(&self, resource: &Resource) -> u64 {
        match self.high.get(resource) {
            0 => self.low.get(resource),
            _ => u64::MAX,
        }
    }

    /// Returns all sums, at most `u64::MAX` each.
    #[must_use]
    pub fn amounts(&self) -> Amounts {
        let mut amounts = self.low.clone();
        for (resource, _) in self.high.iter() {
            amounts.set(resource.clone(), u64::MAX);
        }
        amounts
    }
}

fn held(auxiliary: &AuxiliaryRoles, demand: &Amounts, containers: u64) -> Amounts {
    let mut held = Amounts::new();
    auxiliary.add_to(&mut held, demand, containers);
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
