//! Improves the multipliers of the classes ([`crate::dual::warm_start`]) step by step.
//!
//! A step renews the block prices node by node ([`crate::dual::node_subproblem`]) at a falling temperature.
//! The restart price overshoots because gains follow it. The prices of containers and of the loss descend by
//! Shor's method ([`crate::dual::r_algorithm`]); without progress they return to the best point with smaller
//! steps. Any prices give a bound; the least is kept.

use crate::dual::incumbent_blocks::IncumbentBlocks;
use crate::dual::r_algorithm::RAlgorithm;
use crate::dual::relaxation::{Answer, Multipliers, Relaxation, gains};
use crate::dual::shadow_prices::at_shadow_prices;
use crate::dual::warm_start::WarmStart;
use crate::model::instance::Instance;
use crate::model::room_grid::RoomGrid;

/// First step: the root of the number of prices times this part of their scale.
const FIRST: f64 = 0.005;
/// Multipliers of types with a scarce resource start too high by half.
const LEAST: f64 = 1.5;
/// First and last temperature as parts of a container's mean value, and the steps between them. Hotter is
/// smoother and further from the true bound.
const FIRST_TEMPERATURE: f64 = 0.0075;
const LAST_TEMPERATURE: f64 = 0.003;
const COOLING_STEPS: i32 = 250;
/// Steps without a lower bound before the return, and the factor on the step size.
const PATIENCE: i32 = 12;
const SMALLER: f64 = 0.5;
/// Part of the way to the best restart price: block prices follow, so the optimum lies further ahead.
const AHEAD: f64 = 2.0;
/// Steps that move only block and restart prices: early subgradients of container prices mean nothing.
const BLOCK_STEPS: i32 = 8;
const RESTART_WEIGHT: f64 = 0.1;
const TABLE_WEIGHT: f64 = 0.2;

#[derive(Debug, Clone, Default)]
pub(crate) struct Averages {
    pub restarted: Vec<f64>,
    pub table: Vec<f64>,
    pub gains: Vec<f64>,
}

#[derive(Debug)]
struct Best {
    container: Vec<f64>,
    loss: f64,
    step: i32,
}

impl Best {
    fn of(prices: &Multipliers, step: i32) -> Self {
        Self {
            container: prices.container.clone(),
            loss: prices.loss,
            step,
        }
    }

    fn parts(&self, scale: &[f64]) -> Vec<f64> {
        let pairs = self.container.iter().chain([&self.loss]).zip(scale);
        pairs.map(|(price, scale)| price / scale).collect()
    }
}

#[derive(Debug)]
pub(crate) struct DualDescent<'a> {
    relaxation: Relaxation<'a>,
    pub prices: Multipliers,
    best: Best,
    /// For containers, then the loss.
    pub scale: Vec<f64>,
    descent: RAlgorithm,
    pub step: i32,
    pub bound: f64,
    pub averages: Averages,
    value: f64,
}

impl<'a> DualDescent<'a> {
    pub fn new(
        instance: &'a Instance,
        grid: &'a RoomGrid,
        incumbents: &'a IncumbentBlocks,
    ) -> Self {
        let warm_start = WarmStart::new(instance);
        let rate = |node: usize| warm_start.shadow_prices(node).to_vec();
        let relaxation = Relaxation::new(instance, grid, incumbents, rate);
        let block = incumbents.blocks.iter();
        let block =
            block.map(|block| at_shadow_prices(&block.size, warm_start.shadow_prices(block.node)));
        let prices = Multipliers {
            block: block.collect(),
            container: warm_start.container,
            restart: warm_start.restart,
            loss: warm_start.loss,
        };
        let scale = scales(instance, &prices);
        let size = FIRST * (scale.len() as f64).sqrt();
        let best = Best::of(&prices, 0);
        Self {
            relaxation,
            descent: RAlgorithm::new(best.parts(&scale), size),
            best,
            prices,
            scale,
            step: 0,
            bound: warm_start.bound,
            averages: Averages::default(),
            value: mean_value(instance),
        }
    }

    pub fn descent_from_best(&self, size: f64) -> RAlgorithm {
        self.descent
            .beginning_at(self.best.parts(&self.scale), size)
    }

    pub fn step(&mut self) {
        let done = f64::from(self.step.min(COOLING_STEPS)) / f64::from(COOLING_STEPS);
        let temperature =
            self.value * FIRST_TEMPERATURE * libm::pow(LAST_TEMPERATURE / FIRST_TEMPERATURE, done);
        let answer = self.relaxation.sweep(&mut self.prices, temperature);
        self.average(&answer.restart_chance);
        self.step += 1;
        if answer.bound < self.bound || self.step == 1 {
            self.bound = self.bound.min(answer.bound);
            self.best = Best::of(&self.prices, self.step);
        } else if self.step - self.best.step >= PATIENCE {
            self.again();
            return;
        }
        let restart = &mut self.prices.restart;
        *restart = (*restart + AHEAD * (answer.restart - *restart)).max(0.0);
        if self.step > BLOCK_STEPS {
            self.descend(&answer);
        }
    }

    fn descend(&mut self, answer: &Answer) {
        let subgradient = answer.container.iter().chain([&answer.loss]);
        let subgradient = subgradient
            .zip(&self.scale)
            .map(|(part, scale)| part * scale);
        let to = self.descent.step(&subgradient.collect::<Vec<f64>>());
        let Multipliers {
            container, loss, ..
        } = &mut self.prices;
        let prices = container.iter_mut().chain([loss]).zip(&self.scale);
        for ((price, scale), to) in prices.zip(to.into_iter().flatten()) {
            *price = to * scale;
        }
    }

    /// Restart and block prices stay: they need no step size, and sent back they repeat the slow descent.
    fn again(&mut self) {
        self.prices.container.clone_from(&self.best.container);
        self.prices.loss = self.best.loss;
        self.best.step = self.step;
        self.descent
            .return_to(self.best.parts(&self.scale), SMALLER);
    }

    fn average(&mut self, restart_chance: &[f64]) {
        let instance = self.relaxation.instance;
        let gains = gains(instance, &self.prices.container, self.prices.loss);
        let table = &self.relaxation.table;
        let averages = &mut self.averages;
        if self.step == 0 {
            averages.restarted = restart_chance.to_vec();
            averages.table.clone_from(table);
            averages.gains = gains;
            return;
        }
        mix(
            &mut averages.restarted,
            restart_chance.iter().copied(),
            RESTART_WEIGHT,
        );
        mix(&mut averages.gains, gains.into_iter(), TABLE_WEIGHT);
        mix(&mut averages.table, table.iter().copied(), TABLE_WEIGHT);
    }
}

pub(crate) fn mix(average: &mut [f64], new: impl Iterator<Item = f64>, weight: f64) {
    for (average, new) in average.iter_mut().zip(new) {
        *average += weight * (new - *average);
    }
}

fn scales(instance: &Instance, prices: &Multipliers) -> Vec<f64> {
    let pairs = prices.container.iter().zip(&instance.types);
    let containers = pairs.map(|(price, ty)| price.max(LEAST * ty.value));
    containers.chain([prices.loss.max(0.1)]).collect()
}

fn mean_value(instance: &Instance) -> f64 {
    let values = instance.types.iter().map(|ty| ty.value);
    values.sum::<f64>() / instance.types.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::samples::samples;

    #[test]
    fn what_needs_no_step_size_is_not_sent_back() {
        let (_, instance) = samples(0..9).next().expect("a sample");
        let grid = RoomGrid::new(&instance);
        let incumbents = IncumbentBlocks::new(&instance, &grid);
        let mut dual_descent = DualDescent::new(&instance, &grid, &incumbents);
        for _ in 0..2 * BLOCK_STEPS {
            dual_descent.step();
        }
        let best = dual_descent.best.container.clone();
        dual_descent.prices.restart += 1.0;
        dual_descent
            .prices
            .container
            .iter_mut()
            .for_each(|price| *price += 1.0);
        let before = dual_descent.prices.clone();
        dual_descent.again();
        assert_eq!(dual_descent.prices.container, best);
        assert_eq!(dual_descent.prices.restart, before.restart);
        assert_eq!(dual_descent.prices.block, before.block);
    }
}
