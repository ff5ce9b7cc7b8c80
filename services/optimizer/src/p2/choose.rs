//! Which running jobs are restarted, at given prices.
//!
//! At container prices π a set S of restarts is worth
//! F(S) = Σ_{i ∈ S} (best fresh worth − standing worth − restart cost) + Σ_j V(room of j beside who stays),
//! which counts what two neighbours' rooms are worth together. It is built greedily and improved
//! by exchanges. A heuristic: it proves nothing, the plan that comes of it is checked.

use super::held::Held;
use super::instance::{Instance, State};
use super::lattice::Lattice;

/// A node that is overfull until somebody leaves: worse than anything.
const OVERFULL: f64 = -1e3;
/// Passes of exchanges.
const PASSES: usize = 2;

/// The restarts, chosen.
pub(crate) struct Choice<'a> {
    instance: &'a Instance,
    lattice: &'a Lattice,
    table: &'a [f64],
    /// Per running job: what its restart gains, its room apart.
    gains: &'a [f64],
    held: &'a Held,
    rooms: Vec<Vec<i64>>,
    restarted: Vec<bool>,
    /// How many more may be restarted.
    open: usize,
    /// Per job: what changing its state would add to F; forgotten when a neighbour changes.
    deltas: Vec<Option<f64>>,
}

/// Chooses at most as many restarts as the instance allows; `table` is V at the prices that
/// `gains` were computed with.
pub(crate) fn choose(
    instance: &Instance,
    lattice: &Lattice,
    held: &Held,
    table: &[f64],
    gains: &[f64],
    start: &[bool],
) -> Vec<bool> {
    let mut choice = Choice {
        instance,
        lattice,
        table,
        gains,
        held,
        rooms: held.nodes.iter().map(|node| node.room.clone()).collect(),
        deltas: vec![None; instance.jobs.len()],
        restarted: vec![false; instance.jobs.len()],
        open: usize::try_from(instance.restart_bound).unwrap_or(usize::MAX),
    };
    for (job, starts) in start.iter().enumerate() {
        if *starts && choice.open > 0 {
            choice.flip(job);
        }
    }
    while choice.open > 0 && choice.add_best() {}
    for _ in 0..PASSES {
        if !choice.exchange() {
            break;
        }
    }
    choice.restarted
}

impl Choice<'_> {
    fn value(&self, room: &[i64]) -> f64 {
        self.lattice
            .entry(room)
            .map_or(OVERFULL, |entry| self.table[entry])
    }

    /// What changing the state of `job` would add to F.
    fn delta(&self, job: usize) -> f64 {
        let sign = if self.restarted[job] { -1 } else { 1 };
        let mut delta = self.gains[job] * sign as f64;
        for block in &self.held.of_job[job] {
            let block = &self.held.blocks[*block];
            let mut room = self.rooms[block.node].clone();
            let before = self.value(&room);
            shift(&mut room, &block.size, sign);
            delta += self.value(&room) - before;
        }
        delta
    }

    fn flip(&mut self, job: usize) {
        let sign = if self.restarted[job] { -1 } else { 1 };
        for block in &self.held.of_job[job] {
            let node = self.held.blocks[*block].node;
            shift(&mut self.rooms[node], &self.held.blocks[*block].size, sign);
            for neighbour in self.held.nodes[node].blocks.clone() {
                self.deltas[self.held.blocks[neighbour].job] = None;
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

    /// Takes each restart out once and puts the best in its place.
    fn exchange(&mut self) -> bool {
        let before = self.restarted.clone();
        for job in 0..self.restarted.len() {
            if self.restarted[job] {
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
