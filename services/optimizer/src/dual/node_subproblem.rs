//! The departing blocks of a node: the worth of each set, and the price of each block.
//!
//! The price of block b moves gain between a job and the nodes that its restart frees. Let g_b be the job's
//! gain without the price of b, and u_b the gain with it. A set B of departing blocks is worth V(room left by
//! the others) + Σ_{b ∈ B} (g_b − u_b) to the node, whatever the u.
//!
//! The u of one node are renewed together: sets are drawn with a probability that falls e-fold with each
//! `temperature` of worth, and u_b gives the job the same odds of departing as block b. Each step lowers the
//! smoothed bound as far as one block's price can, without a step size (the star updates of Globerson and
//! Jaakkola, Fixing Max-Product, 2007, at a temperature).
//!
//! Proves: `value` is never below the worth of any set. All sets of up to [`TABULATED`] blocks are tried; on
//! larger nodes all sets of the most likely blocks, and [`crate::dual::subset_dp`] if a linear bound
//! does not exclude larger sets.

use crate::dual::incumbent_blocks::{Block, NodeBlocks, TABULATED, entries};
use crate::dual::shadow_prices::{Items, at_shadow_prices, raise, shadow_prices};
use crate::dual::subset_dp::{Leaving, SubsetDp};
use crate::model::room_grid::RoomGrid;

/// Small, so that the linear bound stays low.
const LEFT: f64 = 0.1;
/// For a block that the node cannot keep.
const DECISIVE: f64 = 10.0;
/// Sets further below the best, in temperatures, do not count.
const NEGLIGIBLE: f64 = 8.0;
/// A block's weight changes at most e-fold this many times at once.
const MOST_CHANGE: f64 = 40.0;
/// No addition waits for the previous one.
const LANES: usize = 4;
/// Patterns of rarer sets are not recorded.
const RARE: f64 = 0.01;

#[derive(Debug, Default)]
pub(crate) struct NodeSubproblem {
    /// Upper bound on the node's worth.
    pub value: f64,
    pub left: Vec<f64>,
    /// With their probabilities.
    pub rooms: Vec<(usize, f64)>,
    values: Vec<f64>,
    /// Padded with weight 0 to a multiple of [`LANES`].
    warm: Vec<i32>,
    weights: Vec<f64>,
    bests: [(f64, f64); TABULATED],
    better: Vec<f64>,
    shifts: Vec<f64>,
    subset_dp: SubsetDp,
}

impl NodeSubproblem {
    /// `left` holds the previous u. Returns false if the node stays overfull in any case.
    pub fn of_few(
        &mut self,
        node: &NodeBlocks,
        gains: &[f64],
        table: &[f64],
        temperature: f64,
    ) -> bool {
        let all: Vec<usize> = (0..gains.len()).collect();
        self.decide(&node.entries, &all, gains, table, temperature)
    }

    fn decide(
        &mut self,
        entries: &[u32],
        likely: &[usize],
        gains: &[f64],
        table: &[f64],
        temperature: f64,
    ) -> bool {
        self.rooms.clear();
        self.evaluate(entries, likely, gains, table);
        let best = self.compare(likely.len());
        if best == f64::NEG_INFINITY {
            return false;
        }
        self.warm_up(best, temperature);
        let mut changes = [0.0; TABULATED];
        for (bit, block) in likely.iter().enumerate() {
            let odds = self.odds(bit, best, temperature);
            let change = 0.5 * (odds - self.left[*block]);
            self.left[*block] += change;
            changes[bit] = change;
            // Bounded so that no product of weights overflows.
            let times = libm::exp((-change / temperature).clamp(-MOST_CHANGE, MOST_CHANGE));
            for (weight, set) in self.weights.iter_mut().zip(&self.warm) {
                *weight *= if set >> bit & 1 == 1 { times } else { 1.0 };
            }
        }
        self.value = self.renewed(&changes[..likely.len()]);
        let total: f64 = self.weights.iter().sum();
        let pairs = self.warm.iter().zip(&self.weights);
        let often = pairs.filter(|(_, weight)| **weight > RARE * total);
        self.rooms
            .extend(often.map(|(set, weight)| (entries[*set as usize] as usize, weight / total)));
        true
    }

    fn evaluate(&mut self, entries: &[u32], likely: &[usize], gains: &[f64], table: &[f64]) {
        let gains = likely.iter().map(|block| gains[*block] - self.left[*block]);
        sums(gains, &mut self.values);
        for (value, entry) in self.values.iter_mut().zip(entries) {
            let room = table.get(*entry as usize);
            *value = room.map_or(f64::NEG_INFINITY, |room| *value + room);
        }
    }

    /// Records the best worth with and without each bit by comparing and merging halves.
    fn compare(&mut self, bits: usize) -> f64 {
        let better = &mut self.better;
        better.clone_from(&self.values);
        for bit in (0..bits).rev() {
            let (without, with) = better.split_at_mut(1 << bit);
            self.bests[bit] = (most(with), most(without));
            for (without, with) in without.iter_mut().zip(with) {
                *without = larger(*without, *with);
            }
            better.truncate(1 << bit);
        }
        better[0]
    }

    fn warm_up(&mut self, best: f64, temperature: f64) {
        self.warm.clear();
        self.weights.clear();
        let least = best - NEGLIGIBLE * temperature;
        for (part, values) in self.values.chunks(2 * LANES).enumerate() {
            // Most chunks hold no set that counts.
            if most(values) <= least {
                continue;
            }
            for (set, value) in (part * 2 * LANES..).zip(values) {
                if *value > least {
                    self.warm.push(set as i32);
                    self.weights.push(libm::exp((value - best) / temperature));
                }
            }
        }
        let whole = self.warm.len().next_multiple_of(LANES);
        self.warm.resize(whole, 0);
        self.weights.resize(whole, 0.0);
    }

    fn sides(&self, bit: usize) -> (f64, f64) {
        let (mut with, mut without) = ([0.0; LANES], [0.0; LANES]);
        let sets = self.warm.chunks_exact(LANES);
        for (sets, weights) in sets.zip(self.weights.chunks_exact(LANES)) {
            for lane in 0..LANES {
                let is_in = sets[lane] >> bit & 1 == 1;
                with[lane] += if is_in { weights[lane] } else { 0.0 };
                without[lane] += if is_in { 0.0 } else { weights[lane] };
            }
        }
        (with.iter().sum(), without.iter().sum())
    }

    fn odds(&self, bit: usize, best: f64, temperature: f64) -> f64 {
        let (with, without) = self.sides(bit);
        if with > 0.0 && without > 0.0 {
            return temperature * libm::log(with / without);
        }
        // One side is empty: compare the best worths instead.
        let (best_with, best_without) = self.bests[bit];
        if with > 0.0 {
            (best - best_without).min(DECISIVE)
        } else {
            -(best - best_with).min(DECISIVE)
        }
    }

    fn renewed(&mut self, changes: &[f64]) -> f64 {
        sums(changes.iter().copied(), &mut self.shifts);
        for (shift, value) in self.shifts.iter_mut().zip(&self.values) {
            *shift = value - *shift;
        }
        most(&self.shifts)
    }
}

/// By bit mask.
fn sums(terms: impl ExactSizeIterator<Item = f64>, sums: &mut Vec<f64>) {
    sums.clear();
    sums.resize(1 << terms.len(), 0.0);
    for (bit, term) in terms.enumerate() {
        let (without, with) = sums.split_at_mut(1 << bit);
        for (with, without) in with.iter_mut().zip(without) {
            *with = *without + term;
        }
    }
}

/// One machine instruction, unlike [`f64::max`].
fn larger(a: f64, b: f64) -> f64 {
    if b > a { b } else { a }
}

fn most(values: &[f64]) -> f64 {
    let (lanes, others) = values.as_chunks::<{ 2 * LANES }>();
    let mut bests = [f64::NEG_INFINITY; 2 * LANES];
    for values in lanes {
        for (best, value) in bests.iter_mut().zip(values) {
            *best = larger(*best, *value);
        }
    }
    let all = bests.iter().chain(others).copied();
    all.fold(f64::NEG_INFINITY, larger)
}

#[derive(Debug, Default)]
pub(crate) struct Memory {
    shadow_prices: Vec<f64>,
    likely: Vec<usize>,
    entries: Vec<u32>,
}

impl Memory {
    pub fn new(shadow_prices: Vec<f64>) -> Self {
        Self {
            shadow_prices,
            ..Self::default()
        }
    }
}

#[derive(Debug)]
pub(crate) struct Many<'a> {
    pub node: &'a NodeBlocks,
    pub blocks: &'a [Block],
    pub capacity: &'a [u64],
    pub items: Items<'a>,
    pub gains: &'a [f64],
}

impl Many<'_> {
    /// g plus the worth of the room at `shadow_prices`.
    fn surpluses(&self, shadow_prices: &[f64]) -> Vec<f64> {
        let pairs = self.blocks.iter().zip(self.gains);
        pairs
            .map(|(block, gain)| at_shadow_prices(&block.size, shadow_prices) + gain)
            .collect()
    }

    /// All blocks with a surplus depart.
    fn linear(&self, shadow_prices: &[f64]) -> f64 {
        let surpluses = self.surpluses(shadow_prices).into_iter();
        at_shadow_prices(&self.node.room, shadow_prices)
            + surpluses.map(|surplus| surplus.max(0.0)).sum::<f64>()
    }

    /// Replaces the shadow prices if those of the freed room bound better.
    fn tighten(&self, shadow_prices_now: &mut Vec<f64>) {
        raise(shadow_prices_now, self.capacity, self.items);
        let mut room = self.node.room.clone();
        for (block, surplus) in self.blocks.iter().zip(self.surpluses(shadow_prices_now)) {
            if surplus > 0.0 {
                let pairs = room.iter_mut().zip(&block.size);
                pairs.for_each(|(room, size)| *room += size);
            }
        }
        let others = shadow_prices(&room, self.capacity, self.items);
        if self.linear(&others) < self.linear(shadow_prices_now) {
            *shadow_prices_now = others;
        }
    }

    pub fn decide(
        &self,
        subproblem: &mut NodeSubproblem,
        memory: &mut Memory,
        grid: &RoomGrid,
        table: &[f64],
        temperature: f64,
    ) -> bool {
        self.tighten(&mut memory.shadow_prices);
        let shadow_prices = &memory.shadow_prices;
        let surpluses = self.surpluses(shadow_prices);
        let mut order: Vec<usize> = (0..self.blocks.len()).collect();
        order.sort_by(|a, b| surpluses[*b].total_cmp(&surpluses[*a]).then(a.cmp(b)));
        let many = TABULATED.min(order.len());
        let (likely, others) = order.split_at_mut(many);
        likely.sort_unstable();
        if memory.likely != likely {
            let sizes = likely
                .iter()
                .map(|block| self.blocks[*block].size.as_slice());
            memory.entries = entries(&self.node.room, &sizes.collect::<Vec<_>>(), grid);
            memory.likely = likely.to_vec();
        }
        if !subproblem.decide(&memory.entries, likely, self.gains, table, temperature) {
            subproblem.value = f64::NEG_INFINITY;
        }
        let Some(first) = others.first() else {
            return subproblem.value > f64::NEG_INFINITY;
        };
        for block in &*others {
            let surplus = surpluses[*block];
            subproblem.left[*block] = surplus.max(LEFT * surplus);
        }
        // Bound with at least one other block, at the shadow prices: the first has the least deficit.
        let over = |block: &usize| surpluses[*block] - subproblem.left[*block];
        let gained: f64 = likely.iter().map(|block| over(block).max(0.0)).sum();
        let room = at_shadow_prices(&self.node.room, shadow_prices);
        if room + gained + over(first) > subproblem.value {
            let leaving = |block: usize| Leaving {
                size: &self.blocks[block].size,
                worth: self.gains[block] - subproblem.left[block],
                linear: over(&block),
            };
            let mut leaving: Vec<_> = (0..self.blocks.len()).map(leaving).collect();
            let room = (self.node.room.as_slice(), room);
            let known = subproblem.value;
            subproblem.value = subproblem
                .subset_dp
                .best(room, &mut leaving, known, grid, table);
        }
        subproblem.value > f64::NEG_INFINITY
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dual::incumbent_blocks::IncumbentBlocks;
    use crate::model::samples::{chance, samples};

    fn worths(
        node: &NodeBlocks,
        blocks: &[Block],
        worth: &[f64],
        grid: &RoomGrid,
        table: &[f64],
    ) -> Vec<f64> {
        let set_worth = |set: usize| {
            let (mut room, mut sum) = (node.room.clone(), 0.0);
            for (bit, block) in blocks
                .iter()
                .enumerate()
                .filter(|(bit, _)| set >> bit & 1 == 1)
            {
                let pairs = room.iter_mut().zip(&block.size);
                pairs.for_each(|(room, size)| *room += size);
                sum += worth[bit];
            }
            let entry = grid.entry(&room);
            entry.map_or(f64::NEG_INFINITY, |entry| table[entry] + sum)
        };
        (0..1 << blocks.len()).map(set_worth).collect()
    }

    /// ln Σ e^x: the maximum, smoothed by `temperature`.
    fn soft(values: impl Iterator<Item = f64>, temperature: f64) -> f64 {
        temperature
            * libm::log(
                values
                    .map(|value| libm::exp(value / temperature))
                    .sum::<f64>(),
            )
    }

    struct Sample<'a> {
        many: Many<'a>,
        grid: &'a RoomGrid,
        table: &'a [f64],
        subproblem: NodeSubproblem,
    }

    impl Sample<'_> {
        fn worths(&self) -> (Vec<f64>, f64) {
            let pairs = self.many.gains.iter().zip(&self.subproblem.left);
            let worth: Vec<f64> = pairs.map(|(gain, left)| gain - left).collect();
            let (node, blocks) = (self.many.node, self.many.blocks);
            let worths = worths(node, blocks, &worth, self.grid, self.table);
            let best = worths.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            (worths, best)
        }

        fn check_few(&mut self, temperature: f64) {
            let mut before = f64::INFINITY;
            for _ in 0..4 {
                let Many { node, gains, .. } = self.many;
                assert!(self.subproblem.of_few(node, gains, self.table, temperature));
                let (sets, best) = self.worths();
                assert!((self.subproblem.value - best).abs() < 1e-9);
                let jobs = self.subproblem.left.iter();
                let jobs = jobs.map(|left| soft([0.0, *left].into_iter(), temperature));
                let now = soft(sets.into_iter(), temperature) + jobs.sum::<f64>();
                assert!(now <= before + 1e-4, "{before} to {now}");
                before = now;
            }
        }

        fn check_many(&mut self, temperature: f64) {
            let mut memory = Memory::new(vec![0.0; self.many.capacity.len()]);
            for _ in 0..4 {
                let (many, subproblem) = (&self.many, &mut self.subproblem);
                assert!(many.decide(subproblem, &mut memory, self.grid, self.table, temperature));
                assert!(self.subproblem.value >= self.worths().1 - 1e-9);
            }
        }
    }

    #[test]
    fn no_set_is_worth_more_and_every_step_lowers_the_smoothed_bound() {
        let mut large = 0;
        for (seed, instance) in samples(0..40) {
            let grid = RoomGrid::new(&instance);
            let incumbents = IncumbentBlocks::new(&instance, &grid);
            let prices: Vec<f64> = instance.types.iter().map(|ty| ty.value).collect();
            let mut table = Vec::new();
            grid.fill(&prices, &mut table);
            let types = instance.types.iter();
            let demands: Vec<&[u64]> = types.map(|ty| ty.demand.as_slice()).collect();
            let mut below = chance(seed + 1000);
            for (node, capacity) in incumbents.nodes.iter().zip(&instance.rooms) {
                let blocks = &incumbents.blocks[node.blocks.clone()];
                let mut random = |_| 0.4 - below(100) as f64 / 100.0;
                let gains: Vec<f64> = blocks.iter().map(&mut random).collect();
                let left = blocks.iter().map(&mut random).collect();
                let items = Items {
                    demands: &demands,
                    prices: &prices,
                };
                let many = Many {
                    node,
                    blocks,
                    capacity,
                    items,
                    gains: &gains,
                };
                let mut sample = Sample {
                    many,
                    grid: &grid,
                    table: &table,
                    subproblem: NodeSubproblem {
                        left,
                        ..NodeSubproblem::default()
                    },
                };
                if node.is_tabulated() {
                    sample.check_few(0.05);
                } else {
                    large += 1;
                    sample.check_many(0.05);
                }
            }
        }
        assert!(large > 0, "a node of many blocks");
    }
}
