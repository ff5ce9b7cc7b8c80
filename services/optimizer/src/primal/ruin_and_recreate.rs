//! Empties each node of new containers and refills it with the best of all patterns, never for worse.

use crate::instance::take;
use crate::lagrangian::knapsack::Knapsack;
use crate::primal::packing::Packing;

impl Packing<'_> {
    pub fn ruin_and_recreate(&mut self) {
        let mut knapsack = Knapsack::new(self.grid, self.counts.len());
        let values = (0..self.counts.len()).map(|ty| self.worth(ty, self.counts[ty]));
        let mut values: Vec<f64> = values.collect();
        for node in 0..self.rooms.len() {
            self.recreate_node(node, &mut values, &mut knapsack);
        }
    }

    /// `values` holds the worth of one more container of each type.
    fn recreate_node(&mut self, node: usize, values: &mut [f64], knapsack: &mut Knapsack<'_>) {
        if self.placed[node].is_empty() && self.rooms[node].iter().all(|room| *room == 0) {
            return;
        }
        let before = self.worth_of(node);
        let old = self.clear(node);
        for ty in old.keys() {
            values[*ty] = self.worth(*ty, self.counts[*ty]);
        }
        let mut chosen = Vec::new();
        let best = knapsack.fill(&self.rooms[node], values, |ty| chosen.push(ty));
        if best > before {
            self.put_all(node, &chosen);
        }
        if self.worth_of(node) <= before + 1e-12 {
            self.clear(node);
            for (ty, count) in &old {
                let demand = &self.instance.types[*ty].demand;
                take(demand, *count, &mut self.rooms[node]);
                self.counts[*ty] += *count as usize;
            }
            self.placed[node].clone_from(&old);
        }
        for ty in old.keys().chain(self.placed[node].keys()) {
            values[*ty] = self.worth(*ty, self.counts[*ty]);
        }
    }

    /// Counts the containers on `node` as the last ones placed.
    fn worth_of(&self, node: usize) -> f64 {
        let last = |(ty, count): (&usize, &u32)| {
            let counts = self.counts[*ty] - *count as usize..self.counts[*ty];
            counts.map(|count| self.worth(*ty, count)).sum::<f64>()
        };
        self.placed[node].iter().map(last).sum()
    }
}
