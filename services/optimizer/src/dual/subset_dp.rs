//! The best set of a node's blocks if there are too many to try all sets.
//!
//! A state is a room with the best worth that reaches it; rooms at one grid entry merge (with the larger of
//! both), and the linear bound of the remaining blocks prunes states. Proves: the result is never below the
//! worth of any set. Beyond [`STATES`] states the linear bound ends the search.

use crate::model::room_grid::RoomGrid;

/// Under a millisecond a node.
const STATES: usize = 4_000;
const OVERFULL: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Leaving<'a> {
    pub size: &'a [i64],
    pub worth: f64,
    /// Worth plus the room at linear shadow prices.
    pub linear: f64,
}

#[derive(Debug, Default)]
pub(crate) struct SubsetDp {
    states: Vec<Reached>,
    rooms: Vec<i64>,
    at: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Reached {
    entry: u32,
    worth: f64,
    linear: f64,
}

impl SubsetDp {
    /// Returns at least `known`. `room` is left by all blocks, worth `linear` at the shadow prices.
    pub fn best(
        &mut self,
        (room, linear): (&[i64], f64),
        blocks: &mut [Leaving<'_>],
        known: f64,
        grid: &RoomGrid,
        table: &[f64],
    ) -> f64 {
        let mut rest: f64 = blocks.iter().map(|block| block.linear.max(0.0)).sum();
        if linear + rest <= known {
            return known;
        }
        // Decisive blocks come first: the later ones can then change little.
        blocks.sort_by(|a, b| b.linear.abs().total_cmp(&a.linear.abs()));
        self.at.resize(table.len(), 0);
        self.states.clear();
        self.rooms.clear();
        self.rooms.extend_from_slice(room);
        self.states.push(Reached {
            entry: entry_of(grid, room),
            worth: 0.0,
            linear,
        });
        for block in blocks.iter() {
            rest -= block.linear.max(0.0);
            let before = self.states.len();
            self.branch(block, known - rest, grid);
            self.merge(before, known - rest, room.len());
            if self.states.len() > STATES {
                let linear = self.states.iter().map(|state| state.linear + rest);
                return linear.fold(known, f64::max);
            }
        }
        let worth = |state: &Reached| {
            table
                .get(state.entry as usize)
                .map(|room| room + state.worth)
        };
        self.states.iter().filter_map(worth).fold(known, f64::max)
    }

    fn branch(&mut self, block: &Leaving<'_>, least: f64, grid: &RoomGrid) {
        let width = block.size.len();
        for state in 0..self.states.len() {
            let without = self.states[state];
            if without.linear + block.linear <= least {
                continue;
            }
            let start = self.rooms.len();
            for (resource, size) in block.size.iter().enumerate() {
                let amount = self.rooms[state * width + resource] + size;
                self.rooms.push(amount);
            }
            self.states.push(Reached {
                entry: entry_of(grid, &self.rooms[start..]),
                worth: without.worth + block.worth,
                linear: without.linear + block.linear,
            });
        }
    }

    /// Drops those of the first `before` states that cannot exceed `least`, and merges states at one entry.
    fn merge(&mut self, before: usize, least: f64, width: usize) {
        let mut kept = 0;
        for state in 0..self.states.len() {
            let reached = self.states[state];
            if state < before && reached.linear <= least {
                continue;
            }
            let rooms = state * width..(state + 1) * width;
            if reached.entry != OVERFULL {
                let other = self.at[reached.entry as usize] as usize;
                if other < kept && self.states[other].entry == reached.entry {
                    let into = &mut self.states[other];
                    into.worth = into.worth.max(reached.worth);
                    into.linear = into.linear.max(reached.linear);
                    for (resource, at) in rooms.enumerate() {
                        let amount = self.rooms[at].max(self.rooms[other * width + resource]);
                        self.rooms[other * width + resource] = amount;
                    }
                    continue;
                }
                self.at[reached.entry as usize] = kept as u32;
            }
            self.states[kept] = reached;
            self.rooms.copy_within(rooms, kept * width);
            kept += 1;
        }
        self.states.truncate(kept);
        self.rooms.truncate(kept * width);
    }
}

fn entry_of(grid: &RoomGrid, room: &[i64]) -> u32 {
    grid.entry(room).map_or(OVERFULL, |entry| entry as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dual::incumbent_blocks::IncumbentBlocks;
    use crate::dual::shadow_prices::{Items, at_shadow_prices, shadow_prices};
    use crate::model::samples::{chance, samples};

    fn brute(blocks: &[Leaving<'_>], room: &[i64], worth: &dyn Fn(&[i64]) -> f64) -> f64 {
        let Some((block, others)) = blocks.split_first() else {
            return worth(room);
        };
        let pairs = room.iter().zip(block.size);
        let more: Vec<i64> = pairs.map(|(room, size)| room + size).collect();
        brute(others, room, worth).max(block.worth + brute(others, &more, worth))
    }

    #[test]
    fn as_good_as_the_best_of_all_sets() {
        let mut large = 0;
        for (seed, instance) in samples(0..40) {
            let grid = RoomGrid::new(&instance);
            let incumbents = IncumbentBlocks::new(&instance, &grid);
            let prices: Vec<f64> = instance.types.iter().map(|ty| ty.value).collect();
            let mut table = Vec::new();
            grid.fill(&prices, &mut table);
            let types = instance.types.iter();
            let demands: Vec<&[u64]> = types.map(|ty| ty.demand.as_slice()).collect();
            let items = Items {
                demands: &demands,
                prices: &prices,
            };
            let mut below = chance(seed + 1000);
            let mut subset_dp = SubsetDp::default();
            for (node, capacity) in incumbents.nodes.iter().zip(&instance.rooms) {
                let shadow_prices = shadow_prices(&node.room, capacity, items);
                let blocks = &incumbents.blocks[node.blocks.clone()];
                let leaving = blocks.iter().map(|block| {
                    let worth = 0.1 - below(100) as f64 / 300.0;
                    let linear = worth + at_shadow_prices(&block.size, &shadow_prices);
                    Leaving {
                        size: &block.size,
                        worth,
                        linear,
                    }
                });
                let mut leaving: Vec<_> = leaving.collect();
                let value = |room: &[i64]| {
                    let entry = grid.entry(room);
                    entry.map_or(f64::NEG_INFINITY, |entry| table[entry])
                };
                let best = brute(&leaving, &node.room, &value);
                let room = (
                    node.room.as_slice(),
                    at_shadow_prices(&node.room, &shadow_prices),
                );
                let found = subset_dp.best(room, &mut leaving, 0.0, &grid, &table);
                assert!((found - best.max(0.0)).abs() < 1e-9, "{found} for {best}");
                let known = subset_dp.best(room, &mut leaving, best + 1.0, &grid, &table);
                assert!((known - best - 1.0).abs() < 1e-12, "what is known stays");
                large += u32::from(!node.is_tabulated());
            }
        }
        assert!(large > 0, "a node of many blocks");
    }
}
