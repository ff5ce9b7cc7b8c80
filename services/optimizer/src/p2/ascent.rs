//! Prices that bound well: the duals of the class relaxation, improved step by step.
//!
//! The linear relaxation over classes of equal nodes (a few hundred rows, 30 ms at a thousand
//! nodes) gives prices at which the bound of [`super::relax`] is already at or below its own. From
//! there every price moves against its slope, by a part of its own size that shrinks with time and
//! with how much the slope swings (the steps of Adam, Kingma and Ba 2015, on a concave dual: plain
//! subgradient steps needed ten times as many). Any prices give a bound; the least is kept.
//!
//! On the way, averages over the last steps say what a fractional optimum looks like: how often
//! each job is restarted, what room and restarts are worth.

use super::groups::classes;
use super::held::Held;
use super::instance::Instance;
use super::lattice::Lattice;
use super::model::TypeModel;
use super::relax::{Prices, Relaxation, gains};
use super::solver::{Ending, Limits};

/// First and last step, as parts of a price; chosen on three seeds, not sensitive within ×3.
const FIRST: f64 = 0.05;
const LAST: f64 = 0.001;
/// How much faster blocks move than restarts, and containers slower: there are thousands of
/// blocks, each seen by one node, and few containers' prices, seen by all.
const BLOCKS: f64 = 6.0;
const CONTAINERS: f64 = 0.3;
/// Memory of the slope and of its square.
const SLOPE: f64 = 0.5;
const SQUARE: f64 = 0.99;
/// Weight of a step in the averages.
const NEW: f64 = 0.03;
const NEW_ROOMS: f64 = 0.2;
/// A price moves at least as if it were this part of a container's value.
const LEAST: f64 = 0.3;

/// What the steps so far say together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Averages {
    /// Per job: how often it was restarted.
    pub restarted: Vec<f64>,
    /// V.
    pub table: Vec<f64>,
    /// Per job: what its restart gains, its room apart.
    pub gains: Vec<f64>,
}

/// An ascent on the way.
#[derive(Debug)]
pub(crate) struct Ascent<'a> {
    relaxation: Relaxation<'a>,
    pub prices: Prices,
    scale: Vec<f64>,
    slope: Vec<f64>,
    square: Vec<f64>,
    step: i32,
    steps: i32,
    /// The least bound so far.
    pub bound: f64,
    pub averages: Averages,
}

impl<'a> Ascent<'a> {
    /// Starts from the class relaxation; `None` when that has no solution: P2 then has none.
    pub fn new(
        instance: &'a Instance,
        lattice: &'a Lattice,
        held: &'a Held,
        steps: i32,
        limits: &Limits,
    ) -> Option<Self> {
        let groups = classes(instance);
        let mut model = TypeModel::new(instance, &groups, false);
        let outcome = std::mem::take(&mut model.model).maximise(limits, None);
        if outcome.ending == Ending::Infeasible {
            return None;
        }
        let duals = model.duals(&outcome);
        let mut group_of = vec![0; instance.rooms.len()];
        for (index, group) in groups.iter().enumerate() {
            group.iter().for_each(|node| group_of[*node] = index);
        }
        let rate = |node: usize| duals.rates[group_of[node]].clone();
        let block = held.blocks.iter().map(|block| {
            let rates = &duals.rates[group_of[block.node]];
            block
                .size
                .iter()
                .zip(rates)
                .map(|(size, rate)| *size as f64 * rate)
                .sum()
        });
        let prices = Prices {
            container: duals.containers,
            block: block.collect(),
            restart: duals.restart,
            loss: duals.loss,
        };
        let scale = scales(instance, held, &prices);
        let bound = match outcome.ending {
            Ending::Optimal => model.bound(outcome.bound),
            _ => f64::INFINITY,
        };
        Some(Self {
            relaxation: Relaxation::new(instance, lattice, held, rate),
            slope: vec![0.0; scale.len()],
            square: vec![0.0; scale.len()],
            scale,
            prices,
            step: 0,
            steps,
            bound,
            averages: Averages::default(),
        })
    }

    /// Takes one step.
    pub fn step(&mut self) {
        let answer = self.relaxation.answer(&self.prices);
        self.bound = self.bound.min(answer.bound);
        self.average(&answer.restarted);
        let done = f64::from(self.step.min(self.steps)) / f64::from(self.steps.max(1));
        let size = FIRST * (LAST / FIRST).powf(done);
        self.step += 1;
        let (slope_memory, square_memory) = (SLOPE.powi(self.step), SQUARE.powi(self.step));
        let Prices {
            container,
            block,
            restart,
            loss,
        } = &mut self.prices;
        let slopes = &answer.slopes;
        let containers = container
            .iter_mut()
            .zip(&slopes.container)
            .map(|pair| (pair, CONTAINERS));
        let blocks = block
            .iter_mut()
            .zip(&slopes.block)
            .map(|pair| (pair, BLOCKS));
        let others = [
            ((restart, &slopes.restart), 1.0),
            ((loss, &slopes.loss), 1.0),
        ];
        for (index, ((price, slope), speed)) in containers.chain(blocks).chain(others).enumerate() {
            if !slope.is_finite() {
                continue;
            }
            let (mean, square) = (&mut self.slope[index], &mut self.square[index]);
            *mean = SLOPE * *mean + (1.0 - SLOPE) * slope;
            *square = SQUARE * *square + (1.0 - SQUARE) * slope * slope;
            let mean = *mean / (1.0 - slope_memory);
            let swing = (*square / (1.0 - square_memory)).sqrt() + 1e-6;
            *price = (*price - speed * size * self.scale[index] * mean / swing).max(0.0);
        }
    }

    fn average(&mut self, restarted: &[bool]) {
        let now = |restarted: &bool| f64::from(u8::from(*restarted));
        let instance = self.relaxation.instance;
        let gains = gains(instance, &self.prices.container, self.prices.loss);
        let table = &self.relaxation.table;
        let averages = &mut self.averages;
        if self.step == 0 {
            averages.restarted = restarted.iter().map(now).collect();
            averages.table.clone_from(table);
            averages.gains = gains;
            return;
        }
        mix(&mut averages.restarted, restarted.iter().map(now), NEW);
        mix(&mut averages.gains, gains.into_iter(), NEW_ROOMS);
        mix(&mut averages.table, table.iter().copied(), NEW_ROOMS);
    }
}

/// Moves an average towards what is new.
pub(crate) fn mix(average: &mut [f64], new: impl Iterator<Item = f64>, weight: f64) {
    for (average, new) in average.iter_mut().zip(new) {
        *average += weight * (new - *average);
    }
}

/// Per price, in the order of the steps: what its steps are parts of.
fn scales(instance: &Instance, held: &Held, prices: &Prices) -> Vec<f64> {
    let value = |ty: usize| LEAST * instance.types[ty].value;
    let containers = prices
        .container
        .iter()
        .enumerate()
        .map(|(ty, price)| price.max(value(ty)));
    let blocks = held.blocks.iter().zip(&prices.block).map(|(block, price)| {
        let job = &instance.jobs[block.job];
        let on_node = job.previous.iter().filter(|(node, _)| *node == block.node);
        let count: u32 = on_node.map(|(_, count)| count).sum();
        price.max(value(job.ty) * f64::from(count))
    });
    let kinds = instance.types.len().max(1);
    let mean = instance.types.iter().map(|ty| ty.value).sum::<f64>() / kinds as f64;
    let others = [prices.restart.max(mean), prices.loss.max(0.1)];
    containers.chain(blocks).chain(others).collect()
}
