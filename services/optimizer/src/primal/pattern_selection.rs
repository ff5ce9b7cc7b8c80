//! The third step of a packing ([`crate::primal::packing`]): each node takes one of the patterns that
//! the rounds of the second ([`crate::primal::price_rounds`]) gave it, or a better one, such that
//! together they supply what is wanted.
//!
//! A node that takes one pattern of each round supplies what is wanted on average only: of each of
//! some hundred types there are a few containers too many or too few. On a cluster of a thousand
//! nodes where each of five hundred jobs has a demand of its own, 3 to 7 % were lost. So node after
//! node takes the pattern that is worth most beside what the others have: there, 1 to 2 % below a
//! bound that is itself not yet the least.
//!
//! What a further container is worth to the jobs of a type falls in steps: at a job's fair share, and
//! to nothing at its most. Chosen at just that, no node alone can better what the first ones took. So
//! the steps are smoothed at first: a container is worth the average over some before and after it.
//! From pass to pass the smoothing shrinks.
//!
//! Where a price of the second step was wrong all along, none of the patterns has enough of its
//! containers. So before each pass the prices go half of the way to what the last container and the
//! next one are worth beside what there is, and every room's best pattern at these prices joins its
//! choices. Candidates are then .1 to .2 % below the bound of their packing, where without it minima were
//! missing and .35 % was lost even after a refill.

use std::collections::BTreeMap;

use crate::lagrangian::knapsack_table::RoomGrid;
use crate::primal::packing::Packing;

/// Over how many containers each way, pass by pass.
const SMOOTH: [usize; 10] = [16, 12, 8, 6, 4, 3, 2, 1, 0, 0];

/// How far prices go before each pass.
const WAY: f64 = 0.5;
/// The price of what lacks a minimum, relative to the first container beyond it.
const LACKING: f64 = 1.5;

/// What the nodes may be filled with.
#[derive(Debug)]
pub(super) struct Choices {
    /// Per grid entry of a room: the patterns, each in the order of the types.
    patterns: BTreeMap<usize, Vec<Vec<usize>>>,
    /// Per node: its entry, and which of the patterns it takes.
    pub taken: Vec<(usize, usize)>,
}

impl Choices {
    pub fn new(nodes: usize) -> Self {
        Self {
            patterns: BTreeMap::new(),
            taken: vec![(0, 0); nodes],
        }
    }

    /// One more pattern of the rooms of an entry; returns its number.
    pub fn add(&mut self, entry: usize, mut pattern: Vec<usize>) -> usize {
        pattern.sort_unstable();
        let patterns = self.patterns.entry(entry).or_default();
        // Mostly that of the round before.
        let known = patterns.iter().rposition(|known| *known == pattern);
        known.unwrap_or_else(|| {
            patterns.push(pattern);
            patterns.len() - 1
        })
    }

    /// The best pattern of each room at `prices` joins its choices.
    /// `table` is room for V.
    fn add_best(&mut self, grid: &RoomGrid, prices: &[f64], table: &mut Vec<f64>) {
        let types = grid.fill(prices, table);
        let entries: Vec<usize> = self.patterns.keys().copied().collect();
        for entry in entries {
            let mut pattern = Vec::new();
            grid.pattern(entry, &types, prices, table, |ty| pattern.push(ty));
            self.add(entry, pattern);
        }
    }

    /// The containers that a node takes, by their types.
    pub fn of(&self, node: usize) -> &[usize] {
        let (entry, pattern) = self.taken[node];
        &self.patterns[&entry][pattern]
    }

    /// Lets the nodes choose, one by one, beginning with patterns that were found at about `prices`;
    /// what was placed before does not count.
    pub fn select(&mut self, packing: &Packing<'_>, mut prices: Vec<f64>) {
        let mut counts = vec![0; packing.counts.len()];
        for node in 0..self.taken.len() {
            self.of(node).iter().for_each(|ty| counts[*ty] += 1);
        }
        let (mut last, mut table) = (None, Vec::new());
        for smooth in SMOOTH {
            if let Some(last) = last.replace(smooth) {
                for (ty, price) in prices.iter_mut().enumerate() {
                    *price += WAY * (worth_at(packing, ty, counts[ty], last) - *price);
                }
                self.add_best(packing.grid, &prices, &mut table);
            }
            self.choose(&Worths::new(packing, smooth), &mut counts);
        }
    }

    /// One pass: each node takes the pattern that is worth most beside what the others have.
    fn choose(&mut self, worths: &Worths, counts: &mut [usize]) {
        for node in 0..self.taken.len() {
            self.of(node).iter().for_each(|ty| counts[*ty] -= 1);
            let (entry, before) = self.taken[node];
            let patterns = &self.patterns[&entry];
            let mut best = (worths.added(&patterns[before], counts), before);
            for (number, pattern) in patterns.iter().enumerate() {
                let worth = worths.added(pattern, counts);
                if worth > best.0 {
                    best = (worth, number);
                }
            }
            self.taken[node].1 = best.1;
            self.of(node).iter().for_each(|ty| counts[*ty] += 1);
        }
    }
}

/// What the last container and the next one are worth when there are `count`, on average over
/// `smooth` each way; of a type whose minima are not there, more than any.
fn worth_at(packing: &Packing<'_>, ty: usize, count: usize, smooth: usize) -> f64 {
    let demand = &packing.demands[ty];
    let Some(beyond) = count.checked_sub(demand.min) else {
        let most = demand.worth.first().map(|(worth, _)| *worth);
        return LACKING * most.unwrap_or(packing.instance.types[ty].value);
    };
    demand.mean_worth(beyond.saturating_sub(smooth)..beyond + smooth.max(1))
}

/// Per type: what so many containers are worth together.
struct Worths(Vec<Vec<f64>>);

impl Worths {
    fn new(packing: &Packing<'_>, smooth: usize) -> Self {
        let worths = (0..packing.counts.len()).map(|ty| {
            let mut sums = vec![0.0];
            let mut sum = 0.0;
            loop {
                let worth = smoothed(packing, ty, sums.len() - 1, smooth);
                if worth <= 0.0 {
                    return sums;
                }
                sum += worth;
                sums.push(sum);
            }
        });
        Self(worths.collect())
    }

    /// What a pattern adds to what `counts` are worth.
    fn added(&self, pattern: &[usize], counts: &[usize]) -> f64 {
        let alike = pattern.chunk_by(|a, b| a == b);
        let added = alike.map(|alike| {
            let (sums, count) = (&self.0[alike[0]], counts[alike[0]]);
            let sum = |count: usize| sums[count.min(sums.len() - 1)];
            sum(count + alike.len()) - sum(count)
        });
        added.sum()
    }
}

/// What one container more is worth when there are `count`, on average over `smooth` each way.
fn smoothed(packing: &Packing<'_>, ty: usize, count: usize, smooth: usize) -> f64 {
    let demand = &packing.demands[ty];
    let worth = packing.worth(ty, count);
    let Some(beyond) = count.checked_sub(demand.min).filter(|_| worth > 0.0) else {
        return worth;
    };
    demand.mean_worth(beyond.saturating_sub(smooth)..beyond + smooth + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::samples::{all_restarted, chance, samples};
    use crate::lagrangian::knapsack_table::RoomGrid;

    /// Whatever the nodes began with, no single one could choose better in the end; and all together
    /// are worth more than by turns.
    #[test]
    fn nobody_could_choose_better_alone() {
        let (mut before, mut after) = (0.0, 0.0);
        for (seed, instance) in samples(0..60) {
            let grid = RoomGrid::new(&instance);
            let restarted = all_restarted(&instance);
            let packing = Packing::new(&instance, &grid, &restarted, 0.0);
            let mut below = chance(seed);
            let mut choices = Choices::new(packing.rooms.len());
            for node in 0..packing.rooms.len() {
                // A room of its own for each node, and patterns that need not fit.
                for _ in 0..4 {
                    let types = packing.counts.len() as u64;
                    let pattern = (0..below(4)).map(|_| below(types) as usize).collect();
                    let number = choices.add(node, pattern);
                    choices.taken[node] = (node, number);
                }
            }
            let worths = Worths::new(&packing, 0);
            let worth = |taken: &Choices| {
                let all: Vec<usize> = (0..packing.rooms.len())
                    .flat_map(|node| taken.of(node).to_vec())
                    .collect();
                let mut counts = vec![0; packing.counts.len()];
                all.iter().for_each(|ty| counts[*ty] += 1);
                let sums = worths.0.iter().zip(&counts);
                sums.map(|(sums, count)| sums[(*count).min(sums.len() - 1)])
                    .sum::<f64>()
            };
            before += worth(&choices);
            choices.select(&packing, vec![0.0; packing.counts.len()]);
            let reached = worth(&choices);
            after += reached;
            for node in 0..packing.rooms.len() {
                let taken = choices.taken[node];
                for number in 0..choices.patterns[&node].len() {
                    choices.taken[node] = (node, number);
                    assert!(worth(&choices) <= reached + 1e-9, "seed {seed}");
                }
                choices.taken[node] = taken;
            }
        }
        assert!(after > 1.1 * before, "{before} to {after}");
    }

    #[test]
    fn what_no_filling_had_is_supplied() {
        let (mut wanted, mut supplied) = (0, 0);
        for (_, instance) in samples(0..60) {
            let grid = RoomGrid::new(&instance);
            let restarted = all_restarted(&instance);
            let packing = Packing::new(&instance, &grid, &restarted, 0.0);
            let mut choices = Choices::new(packing.rooms.len());
            for (node, room) in packing.rooms.iter().enumerate() {
                let entry = grid.entry_of(room);
                choices.taken[node] = (entry, choices.add(entry, Vec::new()));
            }
            choices.select(&packing, vec![0.0; packing.counts.len()]);
            let all = (0..packing.rooms.len()).flat_map(|node| choices.of(node).to_vec());
            supplied += all.count();
            let minima = packing.demands.iter().map(|demand| demand.min);
            wanted += minima.sum::<usize>();
        }
        assert!(supplied >= wanted, "{supplied} for minima of {wanted}");
    }

    #[test]
    fn a_filling_that_is_known_keeps_its_number() {
        let mut choices = Choices::new(1);
        assert_eq!(choices.add(7, vec![2, 1]), 0);
        assert_eq!(choices.add(7, vec![3]), 1);
        assert_eq!(choices.add(7, vec![1, 2]), 0);
        choices.taken[0] = (7, 0);
        assert_eq!(choices.of(0), [1, 2]);
    }
}
