//! The Lagrangian relaxation of the type model: each node and each job decides alone, in whole containers, at
//! prices of shared resources.
//!
//! The multipliers: π_t ≥ 0 per container of type t; μ_b per block, paid by the node to the job that frees
//! the room; ρ ≥ 0 per restart; λ ≥ 0 per unit of fairness loss. With worth_λ the objective's worth less λ
//! times the loss, for any such prices
//!
//! ```text
//! P2 ≤ ρ R + λ F
//!    + Σ_i max { stay: worth_λ(p_i);
//!                go: max_f worth_λ(f) − π f − restart_i − ρ + Σ_{b of i} μ_b }
//!    + Σ_j max_{B leaves j} { V(room of j next to the others) − Σ_{b ∈ B} μ_b }.
//! ```
//!
//! [`Relaxation::sweep`] renews μ node by node ([`crate::dual::node_subproblem`]), then takes the best
//! ρ. Proves: the sum, plus [`FLOAT_SLACK`] for rounding, bounds P2, more tightly than the linear relaxation.

use std::collections::BTreeMap;

use crate::dual::incumbent_blocks::IncumbentBlocks;
use crate::dual::node_subproblem::{Many, Memory, NodeSubproblem};
use crate::dual::shadow_prices::Items;
use crate::model::instance::{Instance, State};
use crate::model::room_grid::{RoomGrid, TableTypes};
use crate::useful::Useful;

/// Relative error from adding some ten thousand floats.
pub(crate) const FLOAT_SLACK: f64 = 1e-9;
const HALVINGS: usize = 20;

#[derive(Debug, Clone, Default)]
pub(crate) struct Multipliers {
    /// π: price per container.
    pub container: Vec<f64>,
    /// μ: price per block.
    pub block: Vec<f64>,
    /// ρ: price of a restart.
    pub restart: f64,
    /// λ: price of a unit of loss.
    pub loss: f64,
}

/// Subgradients are supply less demand.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub bound: f64,
    pub container: Vec<f64>,
    pub loss: f64,
    pub restart: f64,
    pub restart_chance: Vec<f64>,
}

#[derive(Debug)]
pub(crate) struct Relaxation<'a> {
    pub instance: &'a Instance,
    pub grid: &'a RoomGrid,
    pub incumbents: &'a IncumbentBlocks,
    memories: BTreeMap<usize, Memory>,
    pub table: Vec<f64>,
    types: TableTypes,
    used: Vec<f64>,
    subproblem: NodeSubproblem,
}

impl<'a> Relaxation<'a> {
    /// `shadow_prices` are nearly valid at the first prices.
    pub fn new(
        instance: &'a Instance,
        grid: &'a RoomGrid,
        incumbents: &'a IncumbentBlocks,
        shadow_prices: impl Fn(usize) -> Vec<f64>,
    ) -> Self {
        let nodes = incumbents.nodes.iter().enumerate();
        let large = nodes.filter(|(_, node)| !node.is_tabulated());
        Self {
            instance,
            grid,
            incumbents,
            memories: large
                .map(|(index, _)| (index, Memory::new(shadow_prices(index))))
                .collect(),
            table: Vec::new(),
            types: TableTypes::default(),
            used: vec![0.0; grid.size()],
            subproblem: NodeSubproblem::default(),
        }
    }

    pub fn sweep(&mut self, prices: &mut Multipliers, temperature: f64) -> Answer {
        self.types = self.grid.fill(&prices.container, &mut self.table);
        let mut answer = Answer {
            bound: self.instance.allowed_loss(prices.loss),
            container: vec![0.0; prices.container.len()],
            loss: 0.0,
            restart: 0.0,
            restart_chance: Vec::new(),
        };
        let mut gains = self.gains(prices);
        self.nodes(prices, temperature, &mut gains, &mut answer);
        answer.restart_chance = gains
            .iter()
            .map(|gain| chance(*gain, temperature))
            .collect();
        let jobs = self.instance.jobs.iter().zip(&gains);
        let running = jobs.filter(|(job, _)| job.state == State::Running);
        let without_price: Vec<f64> = running.map(|(_, gain)| gain + prices.restart).collect();
        answer.bound += self.restarts(&without_price);
        answer.restart = self.best_price(&without_price, temperature);
        for job in 0..self.instance.jobs.len() {
            self.job(job, prices, &mut answer);
        }
        answer.loss = self.instance.spared_loss(-answer.loss);
        answer.bound += FLOAT_SLACK * (1.0 + answer.bound.abs());
        answer
    }

    /// Includes the price and the payments for blocks.
    fn gains(&self, prices: &Multipliers) -> Vec<f64> {
        let mut gains = gains(self.instance, &prices.container, prices.loss);
        for (gain, blocks) in gains.iter_mut().zip(&self.incumbents.of_job) {
            let paid: f64 = blocks.iter().map(|block| prices.block[*block]).sum();
            *gain += paid - prices.restart;
        }
        gains
    }

    fn nodes(
        &mut self,
        prices: &mut Multipliers,
        temperature: f64,
        gains: &mut [f64],
        answer: &mut Answer,
    ) {
        // Types that the node does not allow are worth 0.
        let resources = self.instance.totals.len();
        let types = self.instance.types.iter();
        let demands: Vec<&[u64]> = types.map(|ty| &ty.demand[..resources]).collect();
        let priced = priced(self.instance, &prices.container);
        let incumbents = self.incumbents;
        let (table, subproblem) = (&self.table, &mut self.subproblem);
        let mut unpaid = Vec::new();
        for (index, node) in incumbents.nodes.iter().enumerate() {
            let blocks = &incumbents.blocks[node.blocks.clone()];
            let block_prices = &mut prices.block[node.blocks.clone()];
            let now = blocks.iter().map(|block| gains[block.job]);
            subproblem.left.clear();
            subproblem.left.extend(now.clone());
            unpaid.clear();
            unpaid.extend(now.zip(&*block_prices).map(|(gain, price)| gain - price));
            let possible = match self.memories.get_mut(&index) {
                None => subproblem.of_few(node, &unpaid, table, temperature),
                Some(memory) => {
                    let room = &self.instance.rooms[index];
                    let class = room.last().filter(|_| !self.instance.classes.is_empty());
                    let class = class.map_or(0, |class| *class as usize);
                    let many = Many {
                        node,
                        blocks,
                        capacity: &room[..resources],
                        items: Items {
                            demands: &demands,
                            prices: &priced[class],
                        },
                        gains: &unpaid,
                    };
                    many.decide(subproblem, memory, self.grid, table, temperature)
                }
            };
            // The node stays overfull in any case: the instance is infeasible, and any value bounds it.
            if !possible {
                continue;
            }
            let decided = subproblem.left.iter().zip(&unpaid);
            for ((price, block), (left, unpaid)) in block_prices.iter_mut().zip(blocks).zip(decided)
            {
                *price = left - unpaid;
                gains[block.job] = *left;
            }
            answer.bound += subproblem.value;
            for (entry, part) in &subproblem.rooms {
                self.used[*entry] += part;
            }
        }
        let supply = &mut answer.container;
        let (types, prices) = (&self.types, &prices.container);
        let put = |ty: usize, times: f64| supply[ty] += times;
        self.grid
            .patterns(&mut self.used, types, prices, table, put);
    }

    /// ρ R + Σ max { 0, gain − ρ } at the best ρ.
    fn restarts(&self, gains: &[f64]) -> f64 {
        let mut gains: Vec<f64> = gains.iter().copied().filter(|gain| *gain > 0.0).collect();
        gains.sort_by(|a, b| b.total_cmp(a));
        gains.iter().take(self.restart_bound()).sum()
    }

    fn restart_bound(&self) -> usize {
        usize::try_from(self.instance.restart_bound).unwrap_or(usize::MAX)
    }

    /// The expected restarts meet the bound.
    fn best_price(&self, gains: &[f64], temperature: f64) -> f64 {
        let most = self.restart_bound() as f64;
        let (mut low, mut high) = (0.0, gains.iter().copied().fold(0.0, f64::max));
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            let restart_chance: f64 = gains
                .iter()
                .map(|gain| chance(gain - middle, temperature))
                .sum();
            if restart_chance > most {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }

    fn job(&self, index: usize, prices: &Multipliers, answer: &mut Answer) {
        let job = &self.instance.jobs[index];
        let restart_chance = match job.state {
            State::Free => 1.0,
            State::Running => answer.restart_chance[index],
            State::Pinned => 0.0,
        };
        let price = prices.container[job.ty];
        let (fresh, count) = best_fresh(self.instance, index, price, prices.loss);
        answer.container[job.ty] -= restart_chance * f64::from(count);
        answer.loss -= restart_chance * self.instance.loss(index, count);
        if job.state == State::Free {
            answer.bound += fresh;
        } else {
            answer.bound += worth(self.instance, index, job.count, prices.loss);
            answer.loss -= (1.0 - restart_chance) * self.instance.loss(index, job.count);
        }
    }
}

/// 0 for types that a class does not allow.
fn priced(instance: &Instance, prices: &[f64]) -> Vec<Vec<f64>> {
    if instance.classes.is_empty() {
        return vec![prices.to_vec()];
    }
    let classes = instance.classes.iter().map(|allowed| {
        let pairs = prices.iter().zip(allowed);
        pairs
            .map(|(price, allowed)| if *allowed { *price } else { 0.0 })
            .collect()
    });
    classes.collect()
}

fn chance(gain: f64, temperature: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-gain / temperature))
}

pub(crate) fn worth(instance: &Instance, job: usize, count: u32, price: f64) -> f64 {
    instance.worth(job, count) - price * instance.loss(job, count)
}

/// The worth is concave and linear between the kinks of the job's value and the fair share, so a count at a
/// kink or a limit is best.
pub(crate) fn best_fresh(instance: &Instance, index: usize, price: f64, loss: f64) -> (f64, u32) {
    let job = &instance.jobs[index];
    let fair = (job.fair / instance.types[job.ty].share) as u32;
    let value = |count: u32| worth(instance, index, count, loss) - price * f64::from(count);
    let kinks = job.useful.iter().flat_map(Useful::kinks);
    let kinks = kinks.map(|kink| kink.saturating_sub(job.base()));
    let counts = [job.min, fair, fair.saturating_add(1), job.max];
    let counts = counts.into_iter().chain(kinks);
    let valued = counts
        .map(|count| count.clamp(job.min, job.max))
        .map(|count| (value(count), count));
    let better = |best: (f64, u32), next: (f64, u32)| if next.0 > best.0 { next } else { best };
    valued.fold((f64::NEG_INFINITY, job.min), better)
}

pub(crate) fn gains(instance: &Instance, container: &[f64], loss: f64) -> Vec<f64> {
    let gain = |index: usize| {
        let job = &instance.jobs[index];
        let (fresh, _) = best_fresh(instance, index, container[job.ty], loss);
        fresh - job.restart - worth(instance, index, job.count, loss)
    };
    (0..instance.jobs.len()).map(gain).collect()
}
