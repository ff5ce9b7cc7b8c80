//! Prices at which the nodes' best patterns supply what the jobs want.
//!
//! 1. [`Packing::cleared`] minimises the packing's dual, Σ V(room) + Σ (worth − price), by Shor's method
//!    ([`crate::dual::r_algorithm`]), starting from the dual descent.
//! 2. [`Packing::run_price_rounds`]: prices follow supply and demand; every node takes another round's
//!    pattern, so that together they mix patterns like an optimum.

use std::collections::BTreeMap;

use crate::dual::r_algorithm::{RAlgorithm, minimise};
use crate::model::room_grid::{RoomGrid, TableTypes};
use crate::primal::packing::Packing;
use crate::primal::pattern_selection::Choices;

const EVALUATIONS: u32 = 30;
/// Rounds mixed in step 2, and the step of a price as a part of its container's value.
const MIXED: usize = 40;
const STEP: f64 = 0.002;
/// Decay of the averages of the subgradient and of its square.
const SUBGRADIENT_DECAY: f64 = 0.7;
const SQUARE_DECAY: f64 = 0.9;

#[derive(Debug, Clone)]
pub(crate) struct Cleared {
    pub prices: Vec<f64>,
    pub table: Vec<f64>,
    /// Bounds `Packing::value` with all minima.
    pub most: f64,
}

type Alike = BTreeMap<usize, Vec<usize>>;

impl Packing<'_> {
    /// `descent` starts at estimated worths as parts of `scale`.
    pub fn cleared(&self, descent: RAlgorithm, scale: &[f64]) -> Cleared {
        let alike = self.alike();
        let mut table = Vec::new();
        let prices = self.clearing(descent, scale, &alike, &mut table);
        let (most, _) = self.dual(&prices, &alike, &mut table);
        Cleared {
            prices,
            table,
            most,
        }
    }

    pub fn run_price_rounds(&mut self, prices: &[f64]) {
        let alike = self.alike();
        let mut tatonnement = Tatonnement::new(prices.to_vec());
        let mut choices = Choices::new(self.rooms.len());
        for round in 0..MIXED {
            tatonnement.price_rooms(self.grid);
            let mut supply = vec![0.0; prices.len()];
            for (entry, nodes) in &alike {
                let pattern = tatonnement.pattern(self.grid, *entry);
                pattern
                    .iter()
                    .for_each(|ty| supply[*ty] += nodes.len() as f64);
                let pattern = choices.add(*entry, pattern);
                // Equal nodes take turns; the node's number tells single nodes apart.
                let turn = |index: usize, node: usize| (index + node) % MIXED == round;
                for (index, node) in nodes.iter().enumerate() {
                    if turn(index, *node) {
                        choices.taken[*node] = (*entry, pattern);
                    }
                }
            }
            tatonnement.step(self, &supply);
        }
        choices.select(self, tatonnement.prices);
        for node in 0..self.rooms.len() {
            self.put_all(node, choices.of(node));
        }
        (0..self.rooms.len()).for_each(|node| self.top_up(node));
    }

    fn alike(&self) -> Alike {
        let mut alike = Alike::new();
        for (node, room) in self.rooms.iter().enumerate() {
            let entry = self.grid.entry_of(room);
            alike.entry(entry).or_default().push(node);
        }
        alike
    }

    fn clearing(
        &self,
        descent: RAlgorithm,
        scale: &[f64],
        alike: &Alike,
        table: &mut Vec<f64>,
    ) -> Vec<f64> {
        let types = self.counts.len();
        let wanted = |ty: usize| if self.is_wanted(ty) { scale[ty] } else { 0.0 };
        let priced =
            |at: &[f64]| -> Vec<f64> { (0..types).map(|ty| at[ty] * wanted(ty)).collect() };
        let (at, ()) = minimise(descent, EVALUATIONS, |at| {
            let (dual, excess) = self.dual(&priced(at), alike, table);
            let subgradient = (0..types).map(|ty| excess[ty] * wanted(ty));
            let rest = std::iter::repeat_n(0.0, at.len() - types);
            (dual, subgradient.chain(rest).collect(), ())
        });
        priced(&at)
    }

    /// Returns the bound and each type's excess supply.
    fn dual(&self, prices: &[f64], alike: &Alike, table: &mut Vec<f64>) -> (f64, Vec<f64>) {
        let types = self.grid.fill(prices, table);
        let (mut dual, mut excess) = (0.0, vec![0.0; prices.len()]);
        let mut rooms = vec![0.0; table.len()];
        for (entry, nodes) in alike {
            rooms[*entry] = nodes.len() as f64;
            dual += rooms[*entry] * table[*entry];
        }
        let supply = |ty: usize, many: f64| excess[ty] += many;
        self.grid
            .patterns(&mut rooms, &types, prices, table, supply);
        for ty in (0..prices.len()).filter(|ty| self.is_wanted(*ty)) {
            let (count, surplus) = self.wanted_at(ty, prices[ty]);
            dual += surplus;
            excess[ty] -= count as f64;
        }
        (dual, excess)
    }

    /// The minima count with worth 0.
    fn wanted_at(&self, ty: usize, price: f64) -> (usize, f64) {
        let demand = &self.demands[ty];
        let more = demand.worth.iter().map(|(worth, _)| worth - price);
        let (count, surplus) = more
            .take_while(|surplus| *surplus > 0.0)
            .fold((0, 0.0), |(count, sum), surplus| (count + 1, sum + surplus));
        (demand.min + count, surplus - price * demand.min as f64)
    }
}

struct Tatonnement {
    prices: Vec<f64>,
    table: Vec<f64>,
    types: TableTypes,
    subgradient: Vec<f64>,
    square: Vec<f64>,
}

impl Tatonnement {
    fn new(prices: Vec<f64>) -> Self {
        Self {
            table: Vec::new(),
            types: TableTypes::default(),
            subgradient: vec![0.0; prices.len()],
            square: vec![0.0; prices.len()],
            prices,
        }
    }

    fn price_rooms(&mut self, grid: &RoomGrid) {
        self.types = grid.fill(&self.prices, &mut self.table);
    }

    fn pattern(&self, grid: &RoomGrid, entry: usize) -> Vec<usize> {
        let mut pattern = Vec::new();
        grid.pattern(entry, &self.types, &self.prices, &self.table, |ty| {
            pattern.push(ty)
        });
        pattern
    }

    fn step(&mut self, packing: &Packing<'_>, supply: &[f64]) {
        let wanted = (0..supply.len()).filter(|ty| packing.is_wanted(*ty));
        for ty in wanted {
            let price = self.prices[ty];
            let (count, _) = packing.wanted_at(ty, price);
            let subgradient = supply[ty] - count as f64;
            self.subgradient[ty] =
                SUBGRADIENT_DECAY * self.subgradient[ty] + (1.0 - SUBGRADIENT_DECAY) * subgradient;
            self.square[ty] =
                SQUARE_DECAY * self.square[ty] + (1.0 - SQUARE_DECAY) * subgradient * subgradient;
            let step = STEP * packing.instance.types[ty].value * self.subgradient[ty];
            self.prices[ty] = (price - step / (self.square[ty].sqrt() + 1.0)).max(0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::samples::{all_restarted, bound_samples, samples};

    #[test]
    fn cleared_prices_bound_every_packing_and_lower_than_those_before() {
        let (mut before, mut after, mut packed, mut all) = (0.0, 0.0, 0.0, 0);
        for (_, instance) in samples(0..400).chain(bound_samples(0..400)) {
            let grid = RoomGrid::new(&instance);
            let restarted = all_restarted(&instance);
            let mut packing = Packing::new(&instance, &grid, &restarted, 0.0);
            let alike = packing.alike();
            let first: Vec<f64> = instance.types.iter().map(|ty| ty.value).collect();
            let mut table = Vec::new();
            let (dual_before, _) = packing.dual(&first, &alike, &mut table);
            let descent = RAlgorithm::new(vec![1.0; first.len()], 0.2);
            let cleared = packing.cleared(descent, &first);
            let dual = cleared.most;
            packing.run_price_rounds(&cleared.prices);
            if packing.misses_any() {
                continue;
            }
            let value = packing.value();
            assert!(value <= dual + 1e-9, "{value} in {dual}");
            assert!(value <= dual_before + 1e-9, "{value} in {dual_before}");
            before += dual_before;
            after += dual;
            packed += value;
            all += 1;
        }
        assert!(all > 30, "{all}");
        assert!(
            after - packed < 0.3 * (before - packed),
            "{before} {after} {packed}"
        );
    }
}
