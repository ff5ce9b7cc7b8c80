//! Chooses the running jobs to restart at given prices.
//!
//! At container prices π a set S of restarts is worth
//!
//! F(S) = Σ_{i ∈ S} (best fresh worth − incumbent worth − restart cost) + Σ_j V(room that stayers leave on j).
//!
//! S is built greedily and improved by exchanges.

use crate::dual::incumbent_blocks::IncumbentBlocks;
use crate::model::instance::{Instance, State};
use crate::model::room::{covers, give};
use crate::model::room_grid::RoomGrid;
use crate::primal::packing::Packing;

/// Below all other worths.
const OVERFULL: f64 = -1e3;
const PASSES: usize = 2;

pub(crate) struct LocalSearch<'a> {
    instance: &'a Instance,
    grid: &'a RoomGrid,
    table: &'a [f64],
    gains: &'a [f64],
    incumbents: &'a IncumbentBlocks,
    rooms: Vec<Vec<i64>>,
    restarted: Vec<bool>,
    open: usize,
    /// Change of F if a job flips; cleared when a neighbour flips.
    deltas: Vec<Option<f64>>,
}

impl<'a> LocalSearch<'a> {
    /// `table` is V at the prices behind `gains`.
    pub fn new(
        instance: &'a Instance,
        grid: &'a RoomGrid,
        incumbents: &'a IncumbentBlocks,
        table: &'a [f64],
        gains: &'a [f64],
    ) -> Self {
        let rooms = incumbents.nodes.iter().map(|node| node.room.clone());
        Self {
            instance,
            grid,
            table,
            gains,
            incumbents,
            rooms: rooms.collect(),
            deltas: vec![None; instance.jobs.len()],
            restarted: vec![false; instance.jobs.len()],
            open: usize::try_from(instance.restart_bound).unwrap_or(usize::MAX),
        }
    }

    /// `forced` jobs are restarted in any case; the search begins at `start`.
    pub fn choose(mut self, forced: &[usize], start: &[bool]) -> Vec<bool> {
        for job in forced {
            if self.open > 0 && !self.restarted[*job] {
                self.flip(*job);
            }
        }
        self.start(start);
        while self.open > 0 && self.add_best() {}
        for _ in 0..PASSES {
            if !self.exchange(forced) {
                break;
            }
        }
        self.restarted
    }

    pub fn start(&mut self, start: &[bool]) {
        for (job, starts) in start.iter().enumerate() {
            if *starts && self.open > 0 && !self.restarted[job] {
                self.flip(job);
            }
        }
    }

    /// Returns the job whose restart is worth most among those that make room for a container that `packing`
    /// lacks. Containers beyond the minima give way to it.
    pub fn best_to_make_room(&self, packing: &Packing<'_>) -> Option<usize> {
        let types = self.instance.types.iter().zip(&packing.counts);
        let lacking = types.zip(&packing.demands);
        let lacking = lacking.filter(|((_, count), demand)| **count < demand.min);
        let lacking: Vec<&[u64]> = lacking.map(|((ty, _), _)| ty.demand.as_slice()).collect();
        let mut best: Option<(f64, usize)> = None;
        for (node, blocks) in self.incumbents.nodes.iter().enumerate() {
            let mut room = packing.rooms[node].clone();
            for (ty, count) in &packing.placed[node] {
                let beyond = packing.counts[*ty].saturating_sub(packing.demands[*ty].min);
                let beyond = (*count).min(u32::try_from(beyond).unwrap_or(u32::MAX));
                give(&self.instance.types[*ty].demand, beyond, &mut room);
            }
            for block in &self.incumbents.blocks[blocks.blocks.clone()] {
                let pairs = room.iter().zip(&block.size);
                let room: Vec<u64> = pairs.map(|(r, size)| r + size.unsigned_abs()).collect();
                let makes_room = lacking.iter().any(|demand| covers(demand, &room));
                if self.restarted[block.job] || !makes_room {
                    continue;
                }
                let delta = self.delta(block.job);
                if best.is_none_or(|(other, _)| delta > other) {
                    best = Some((delta, block.job));
                }
            }
        }
        best.map(|(_, job)| job)
    }

    fn value(&self, room: &[i64]) -> f64 {
        self.grid
            .entry(room)
            .map_or(OVERFULL, |entry| self.table[entry])
    }

    fn delta(&self, job: usize) -> f64 {
        let sign = if self.restarted[job] { -1 } else { 1 };
        let mut delta = self.gains[job] * sign as f64;
        for block in &self.incumbents.of_job[job] {
            let block = &self.incumbents.blocks[*block];
            let mut room = self.rooms[block.node].clone();
            let before = self.value(&room);
            shift(&mut room, &block.size, sign);
            delta += self.value(&room) - before;
        }
        delta
    }

    fn flip(&mut self, job: usize) {
        let sign = if self.restarted[job] { -1 } else { 1 };
        for block in &self.incumbents.of_job[job] {
            let node = self.incumbents.blocks[*block].node;
            shift(
                &mut self.rooms[node],
                &self.incumbents.blocks[*block].size,
                sign,
            );
            for neighbour in self.incumbents.nodes[node].blocks.clone() {
                self.deltas[self.incumbents.blocks[neighbour].job] = None;
            }
        }
        self.restarted[job] = !self.restarted[job];
        if sign > 0 {
            self.open -= 1;
        } else {
            self.open += 1;
        }
    }

    fn add_best(&mut self) -> bool {
        let mut best: Option<(f64, usize)> = None;
        for job in 0..self.instance.jobs.len() {
            let able = self.instance.jobs[job].state == State::Running && !self.restarted[job];
            if !able {
                continue;
            }
            let delta = self.deltas[job].unwrap_or_else(|| self.delta(job));
            self.deltas[job] = Some(delta);
            if delta > 1e-12 && best.is_none_or(|(other, _)| delta > other) {
                best = Some((delta, job));
            }
        }
        best.map(|(_, job)| self.flip(job)).is_some()
    }

    fn exchange(&mut self, forced: &[usize]) -> bool {
        let before = self.restarted.clone();
        for job in 0..self.restarted.len() {
            if self.restarted[job] && !forced.contains(&job) {
                self.flip(job);
                self.add_best();
            }
        }
        before != self.restarted
    }
}

fn shift(room: &mut [i64], size: &[i64], sign: i64) {
    for (room, size) in room.iter_mut().zip(size) {
        *room += sign * size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dual::relaxation::gains;
    use crate::model::samples::samples;

    fn worth(
        instance: &Instance,
        grid: &RoomGrid,
        incumbents: &IncumbentBlocks,
        table: &[f64],
        gains: &[f64],
        restarted: &[bool],
    ) -> f64 {
        let mut sum = 0.0;
        let mut rooms: Vec<Vec<i64>> = incumbents
            .nodes
            .iter()
            .map(|node| node.room.clone())
            .collect();
        for job in (0..instance.jobs.len()).filter(|job| restarted[*job]) {
            sum += gains[job];
            for block in &incumbents.of_job[job] {
                let block = &incumbents.blocks[*block];
                shift(&mut rooms[block.node], &block.size, 1);
            }
        }
        let value = |room: &Vec<i64>| grid.entry(room).map_or(OVERFULL, |entry| table[entry]);
        sum + rooms.iter().map(value).sum::<f64>()
    }

    fn brute(
        instance: &Instance,
        worth: &dyn Fn(&[bool]) -> f64,
        restarted: &mut Vec<bool>,
        job: usize,
        open: u32,
    ) -> f64 {
        if job == restarted.len() {
            return worth(restarted);
        }
        let mut best = brute(instance, worth, restarted, job + 1, open);
        if open > 0 && instance.jobs[job].state == State::Running {
            restarted[job] = true;
            best = best.max(brute(instance, worth, restarted, job + 1, open - 1));
            restarted[job] = false;
        }
        best
    }

    #[test]
    fn as_many_as_may_and_nearly_as_good_as_the_best() {
        let (mut exact, mut all) = (0, 0);
        for (seed, mut instance) in samples(0..60) {
            instance.restart_bound = 1 + (seed % 3) as u32;
            let grid = RoomGrid::new(&instance);
            let incumbents = IncumbentBlocks::new(&instance, &grid);
            let prices: Vec<f64> = instance.types.iter().map(|ty| 0.8 * ty.value).collect();
            let mut table = Vec::new();
            grid.fill(&prices, &mut table);
            let gains = gains(&instance, &prices, 0.0);
            let nobody = vec![false; instance.jobs.len()];
            let worth = |restarted: &[bool]| {
                worth(&instance, &grid, &incumbents, &table, &gains, restarted)
            };
            let search = LocalSearch::new(&instance, &grid, &incumbents, &table, &gains);
            let chosen = search.choose(&[], &nobody);
            let many = chosen.iter().filter(|restarted| **restarted).count();
            assert!(many <= instance.restart_bound as usize, "seed {seed}");
            let best = brute(
                &instance,
                &worth,
                &mut nobody.clone(),
                0,
                instance.restart_bound,
            );
            let reached = worth(&chosen);
            assert!(
                reached >= worth(&nobody) - 1e-12 && reached <= best + 1e-9,
                "seed {seed}"
            );
            exact += u32::from(reached > best - 1e-9);
            all += 1;
        }
        assert!(all >= 10 && exact * 10 >= all * 9, "{exact} of {all}");
    }
}
