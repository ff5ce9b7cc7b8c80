//! Prices that bound well: the duals of the class relaxation, improved step by step.
//!
//! The linear relaxation over classes of equal nodes (a few hundred rows, 30 ms at a thousand
//! nodes) gives prices to begin with. A step then renews the prices of blocks node by node
//! ([`super::release`]), at a heat that falls from step to step; the price of a restart goes past
//! where it would be best, as the jobs' gains follow it; the few prices of containers and of the
//! loss move against their slopes, by a part of their own size that shrinks with time and with how
//! much the slope swings (the steps of Adam, Kingma and Ba 2015). Any prices give a bound; the
//! least is kept. On one cluster of a thousand nodes a hundred steps bounded as well as two thousand
//! that moved every price by its slope.
//!
//! On the way, averages over the last steps say what a fractional optimum looks like: how likely
//! each job is restarted, what room and restarts are worth.

use super::groups::classes;
use super::held::Held;
use super::instance::Instance;
use super::lattice::Lattice;
use super::model::TypeModel;
use super::relax::{Answer, Prices, Relaxation, gains};
use super::solver::{Ending, Limits};

/// How an ascent begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// The first step, as a part of a price.
    first: f64,
    /// A price moves at least as if it were this part of a container's value.
    least: f64,
    /// The first heat, as a part of a container's mean value.
    hot: f64,
}

impl Pace {
    /// Keeps to what the first prices know: bounds soonest. Prices of types with a scarce resource
    /// begin too high by half, so all move as if they were so high.
    pub const FINE: Self = Self {
        first: 0.01,
        least: 1.5,
        hot: 0.012,
    };
    /// Goes far: finds the price at which others make room for a new job. The bound rises for thirty
    /// steps first.
    pub const WIDE: Self = Self {
        first: 0.04,
        least: 0.3,
        hot: 0.06,
    };
}

/// The last step, as a part of a price.
const LAST: f64 = 0.001;
/// Steps in which only blocks and restarts find their prices: those of containers would follow
/// slopes that mean nothing yet. It saves a third of the steps that follow.
const SETTLING: i32 = 8;
/// The last heat, as a part of a container's mean value: hotter is smoother and further from the
/// true bound.
const COOL: f64 = 0.005;
/// How far the price of a restart goes, as parts of the way to where it is best. At 4 it swings.
const FURTHER: f64 = 2.0;
/// Memory of the slope and of its square.
const SLOPE: f64 = 0.5;
const SQUARE: f64 = 0.99;
/// Weight of a step in the averages.
const NEW: f64 = 0.1;
const NEW_ROOMS: f64 = 0.2;
/// What the steps so far say together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Averages {
    /// Per job: how likely it is restarted.
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
    /// How many steps it has taken.
    pub step: i32,
    steps: i32,
    pace: Pace,
    /// The least bound so far.
    pub bound: f64,
    pub averages: Averages,
    /// A container's mean value.
    value: f64,
}

impl<'a> Ascent<'a> {
    /// Starts from the class relaxation; `None` when that has no solution: P2 then has none.
    pub fn new(
        instance: &'a Instance,
        lattice: &'a Lattice,
        held: &'a Held,
        (steps, pace): (i32, Pace),
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
        let scale = scales(instance, &prices, pace.least);
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
            pace,
            bound,
            averages: Averages::default(),
            value: mean_value(instance),
        })
    }

    /// Takes one step.
    pub fn step(&mut self) {
        let done = f64::from(self.step.min(self.steps)) / f64::from(self.steps.max(1));
        let shrunk = |first: f64, last: f64| first * (last / first).powf(done);
        let heat = self.value * shrunk(self.pace.hot, COOL);
        let answer = self.relaxation.sweep(&mut self.prices, heat);
        self.bound = self.bound.min(answer.bound);
        self.average(&answer.going);
        self.step += 1;
        self.restart(answer.restart);
        if self.step > SETTLING {
            self.containers(&answer, shrunk(self.pace.first, LAST));
        }
    }

    /// The price of a restart goes past where it would be best.
    fn restart(&mut self, best: f64) {
        let restart = &mut self.prices.restart;
        *restart = (*restart + FURTHER * (best - *restart)).max(0.0);
    }

    /// The prices of containers and of the loss take a step of `size`.
    fn containers(&mut self, answer: &Answer, size: f64) {
        let step = self.step - SETTLING;
        let (slope_memory, square_memory) = (SLOPE.powi(step), SQUARE.powi(step));
        let prices = self.prices.container.iter_mut();
        let prices = prices.chain([&mut self.prices.loss]);
        let slopes = answer.container.iter().chain([&answer.loss]);
        for (index, (price, slope)) in prices.zip(slopes).enumerate() {
            let (mean, square) = (&mut self.slope[index], &mut self.square[index]);
            *mean = SLOPE * *mean + (1.0 - SLOPE) * slope;
            *square = SQUARE * *square + (1.0 - SQUARE) * slope * slope;
            let mean = *mean / (1.0 - slope_memory);
            let swing = (*square / (1.0 - square_memory)).sqrt() + 1e-6;
            *price = (*price - size * self.scale[index] * mean / swing).max(0.0);
        }
    }

    fn average(&mut self, going: &[f64]) {
        let instance = self.relaxation.instance;
        let gains = gains(instance, &self.prices.container, self.prices.loss);
        let table = &self.relaxation.table;
        let averages = &mut self.averages;
        if self.step == 0 {
            averages.restarted = going.to_vec();
            averages.table.clone_from(table);
            averages.gains = gains;
            return;
        }
        mix(&mut averages.restarted, going.iter().copied(), NEW);
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
fn scales(instance: &Instance, prices: &Prices, least: f64) -> Vec<f64> {
    let pairs = prices.container.iter().zip(&instance.types);
    let containers = pairs.map(|(price, ty)| price.max(least * ty.value));
    containers.chain([prices.loss.max(0.1)]).collect()
}

fn mean_value(instance: &Instance) -> f64 {
    let values = instance.types.iter().map(|ty| ty.value);
    values.sum::<f64>() / instance.types.len().max(1) as f64
}
