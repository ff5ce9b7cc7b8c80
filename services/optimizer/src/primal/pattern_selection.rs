//! Each node takes one of its patterns from the price rounds, or a better one, so that together they supply
//! the demand.
//!
//! The worth of a further container falls in steps, which would leave the choice in a local optimum; so
//! worths are smoothed at first, and less in each pass. Before each pass, prices move half way to the present
//! worths, and every room's best pattern joins its choices: a price that was wrong in all rounds leaves no
//! pattern with enough of its containers.

use std::collections::BTreeMap;

use crate::model::room_grid::RoomGrid;
use crate::primal::packing::Packing;

/// In each direction, pass by pass.
const SMOOTH: [usize; 10] = [16, 12, 8, 6, 4, 3, 2, 1, 0, 0];

const PRICE_STEP: f64 = 0.5;
/// Price of a type below its minima, relative to the first container beyond.
const LACKING: f64 = 1.5;

#[derive(Debug)]
pub(super) struct Choices {
    /// Patterns per grid entry of a room, each sorted by type.
    patterns: BTreeMap<usize, Vec<Vec<usize>>>,
    pub taken: Vec<(usize, usize)>,
}

impl Choices {
    pub fn new(nodes: usize) -> Self {
        Self {
            patterns: BTreeMap::new(),
            taken: vec![(0, 0); nodes],
        }
    }

    pub fn add(&mut self, entry: usize, mut pattern: Vec<usize>) -> usize {
        pattern.sort_unstable();
        let patterns = self.patterns.entry(entry).or_default();
        let known = patterns.iter().rposition(|known| *known == pattern);
        known.unwrap_or_else(|| {
            patterns.push(pattern);
            patterns.len() - 1
        })
    }

    /// `table` is a buffer for V.
    fn add_best(&mut self, grid: &RoomGrid, prices: &[f64], table: &mut Vec<f64>) {
        let types = grid.fill(prices, table);
        let entries: Vec<usize> = self.patterns.keys().copied().collect();
        for entry in entries {
            let mut pattern = Vec::new();
            grid.pattern(entry, &types, prices, table, |ty| pattern.push(ty));
            self.add(entry, pattern);
        }
    }

    pub fn of(&self, node: usize) -> &[usize] {
        let (entry, pattern) = self.taken[node];
        &self.patterns[&entry][pattern]
    }

    pub fn select(&mut self, packing: &Packing<'_>, mut prices: Vec<f64>) {
        let mut counts = vec![0; packing.counts.len()];
        for node in 0..self.taken.len() {
            self.of(node).iter().for_each(|ty| counts[*ty] += 1);
        }
        let (mut last, mut table) = (None, Vec::new());
        for smooth in SMOOTH {
            if let Some(last) = last.replace(smooth) {
                for (ty, price) in prices.iter_mut().enumerate() {
                    *price += PRICE_STEP * (worth_at(packing, ty, counts[ty], last) - *price);
                }
                self.add_best(packing.grid, &prices, &mut table);
            }
            self.choose(&Worths::new(packing, smooth), &mut counts);
        }
    }

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

/// Below the minima, worth more than any.
fn worth_at(packing: &Packing<'_>, ty: usize, count: usize, smooth: usize) -> f64 {
    let demand = &packing.demands[ty];
    let Some(beyond) = count.checked_sub(demand.min) else {
        let most = demand.worth.first().map(|(worth, _)| *worth);
        return LACKING * most.unwrap_or(packing.instance.types[ty].value);
    };
    demand.mean_worth(beyond.saturating_sub(smooth)..beyond + smooth.max(1))
}

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
    use crate::model::room_grid::RoomGrid;
    use crate::model::samples::{all_restarted, chance, samples};

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
                // Each node has its own room, and patterns need not fit.
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
