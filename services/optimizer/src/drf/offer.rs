//! Whole tasks: the smallest key is offered the free resources and takes one task if it fits. `skip` retires
//! a user whose task does not fit (Mesos); `stop` ends the run (Ghodsi et al., Algorithm 1).

use num_rational::Ratio;

use super::User;
use crate::problem::Misfit;

/// One offer and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    pub to: usize,
    pub offered: Vec<u64>,
    pub accepted: bool,
    pub tasks: Vec<u32>,
}

/// The outcome of [`offer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offers {
    pub tasks: Vec<u32>,
    pub free: Vec<u64>,
    pub trace: Vec<Offer>,
}

/// Dominant share over weight.
pub(crate) type Key = Ratio<u128>;

/// At most 2^32 · 2^64 over 2^64 · 2^32, so the fraction is exact.
pub(crate) fn key(user: &User, totals: &[u64], tasks: u32) -> Key {
    user.dominant(totals).map_or_else(
        || Ratio::new(0, 1),
        |resource| {
            let over = u128::from(tasks) * u128::from(user.demand[resource]);
            Ratio::new(
                over,
                u128::from(totals[resource]) * u128::from(user.weight()),
            )
        },
    )
}

pub(crate) fn take(user: &User, free: &mut [u64]) -> bool {
    let fits = user
        .demand
        .iter()
        .zip(free.iter())
        .all(|(amount, free)| amount <= free);
    if fits {
        for (free, amount) in free.iter_mut().zip(&user.demand) {
            *free -= amount;
        }
    }
    fits
}

/// Offers one pool (`totals`, by resource index) to the users until nobody takes.
#[must_use]
pub fn offer(totals: &[u64], users: &[User], misfit: Misfit) -> Offers {
    let mut tasks = vec![0u32; users.len()];
    let mut free = totals.to_vec();
    let mut trace = Vec::new();
    let open = |user: &User| user.takes_part(totals) && user.cap != Some(0);
    let mut queue: std::collections::BTreeSet<(Key, usize)> = users
        .iter()
        .enumerate()
        .filter(|(_, user)| open(user))
        .map(|(index, user)| (key(user, totals, 0), index))
        .collect();
    while let Some((_, index)) = queue.pop_first() {
        let user = &users[index];
        let offered = free.clone();
        let accepted = take(user, &mut free);
        if accepted {
            tasks[index] += 1;
            if user.cap != Some(tasks[index]) {
                queue.insert((key(user, totals, tasks[index]), index));
            }
        }
        trace.push(Offer {
            to: index,
            offered,
            accepted,
            tasks: tasks.clone(),
        });
        if !accepted && misfit == Misfit::Stop {
            break;
        }
    }
    Offers { tasks, free, trace }
}
