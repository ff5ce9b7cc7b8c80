//! The Lagrangian relaxation of the type model: what the jobs share gets a price, and each node
//! and each job then decides alone, in whole containers.
//!
//! Prices: π_t ≥ 0 a container of type t; μ_b ≥ 0 a block (what a running job has on one node),
//! paid by the node that uses its room to the job that gives it; ρ ≥ 0 a restart; λ ≥ 0 a unit of
//! fairness loss. With worth_λ the objective's worth less λ times the loss, for any prices
//!
//! P2 ≤ ρ R + λ F + Σ_i max { stay: worth_λ(p_i); go: max_f worth_λ(f) − π f − restart_i − ρ + Σ_{b of i} μ_b }
//!    + Σ_j max_{B leaves j} { V(room of j beside the others) − Σ_{b ∈ B} μ_b }.
//!
//! Proves: the sum, plus [`FLOAT_SLACK`] for rounding, bounds P2. It is tighter than the linear
//! relaxation, because a node is filled with whole containers and gives up whole blocks. Where a
//! node has too many blocks to try every set, the sets among its most likely ones are tried, and
//! whatever goes beyond is bounded linearly ([`super::rates`]).

use std::collections::BTreeMap;

use super::held::{Held, HeldNode, TABULATED};
use super::instance::{Instance, State};
use super::lattice::Lattice;
use super::rates::{Goods, raise, rates};

/// What adding some ten thousand floats may lose, relative to the sum.
pub(crate) const FLOAT_SLACK: f64 = 1e-9;
/// Blocks whose room is worth less than their price by more than this part of the node are not
/// among the likely ones.
const UNLIKELY: f64 = 0.2;

/// The prices.
#[derive(Debug, Clone, Default)]
pub(crate) struct Prices {
    /// π per type.
    pub container: Vec<f64>,
    /// μ per block.
    pub block: Vec<f64>,
    /// ρ.
    pub restart: f64,
    /// λ.
    pub loss: f64,
}

/// What the jobs and nodes decide at some prices. The slopes say how the bound changes with each
/// price: supply less demand.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// What no allocation exceeds.
    pub bound: f64,
    pub slopes: Prices,
    /// The running jobs that go.
    pub restarted: Vec<bool>,
}

/// The relaxation of an instance.
#[derive(Debug)]
pub(crate) struct Relaxation<'a> {
    pub instance: &'a Instance,
    pub lattice: &'a Lattice,
    pub held: &'a Held,
    /// Per node of many blocks: its rates, which are good again at similar prices.
    rates: BTreeMap<usize, Vec<f64>>,
    /// V at the last prices.
    pub table: Vec<f64>,
}

/// A node's decision.
struct Filling {
    value: f64,
    entry: usize,
    /// The blocks that leave.
    leaving: Vec<usize>,
}

impl<'a> Relaxation<'a> {
    /// `rates` are valid or nearly so at the first prices, per node.
    pub fn new(
        instance: &'a Instance,
        lattice: &'a Lattice,
        held: &'a Held,
        rates: impl Fn(usize) -> Vec<f64>,
    ) -> Self {
        let large = held
            .nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| !node.is_tabulated());
        Self {
            instance,
            lattice,
            held,
            rates: large.map(|(index, _)| (index, rates(index))).collect(),
            table: Vec::new(),
        }
    }

    /// The decisions at `prices`.
    pub fn answer(&mut self, prices: &Prices) -> Answer {
        self.lattice.fill(&prices.container, &mut self.table);
        let bound = self.instance.loss_bound;
        let fair = if prices.loss > 0.0 {
            prices.loss * bound
        } else {
            0.0
        };
        let restarts = f64::from(self.instance.restart_bound);
        let mut answer = Answer {
            bound: prices.restart * restarts + fair,
            slopes: Prices {
                container: vec![0.0; prices.container.len()],
                block: vec![0.0; prices.block.len()],
                restart: restarts,
                loss: bound,
            },
            restarted: vec![false; self.instance.jobs.len()],
        };
        for job in 0..self.instance.jobs.len() {
            self.job(job, prices, &mut answer);
        }
        self.nodes(prices, &mut answer);
        answer.bound += FLOAT_SLACK * (1.0 + answer.bound.abs());
        answer
    }

    fn job(&self, index: usize, prices: &Prices, answer: &mut Answer) {
        let job = &self.instance.jobs[index];
        let price = prices.container[job.ty];
        let stay = worth(self.instance, index, job.count, prices.loss);
        let (go, count) = match job.state {
            State::Pinned => (f64::NEG_INFINITY, 0),
            _ => best_fresh(self.instance, index, price, prices.loss),
        };
        let blocks = &self.held.of_job[index];
        let paid: f64 = blocks.iter().map(|block| prices.block[*block]).sum();
        let go = match job.state {
            State::Running => go - job.restart - prices.restart + paid,
            _ => go,
        };
        if job.state != State::Free && stay >= go {
            answer.bound += stay;
            answer.slopes.loss -= self.instance.loss(index, job.count);
            return;
        }
        answer.bound += go;
        answer.slopes.loss -= self.instance.loss(index, count);
        answer.slopes.container[job.ty] -= f64::from(count);
        if job.state == State::Running {
            answer.restarted[index] = true;
            answer.slopes.restart -= 1.0;
            for block in blocks {
                answer.slopes.block[*block] += 1.0;
            }
        }
    }

    fn nodes(&mut self, prices: &Prices, answer: &mut Answer) {
        let types = self.instance.types.iter();
        let demands: Vec<&[u64]> = types.map(|ty| ty.demand.as_slice()).collect();
        let goods = Goods {
            demands: &demands,
            prices: &prices.container,
        };
        let mut used: BTreeMap<usize, f64> = BTreeMap::new();
        let held = self.held;
        for (index, node) in held.nodes.iter().enumerate() {
            let filling = match self.rates.get_mut(&index) {
                None => tabulated(node, prices, &self.table),
                Some(rates) => {
                    let capacity = &self.instance.rooms[index];
                    let large = Large {
                        held,
                        node,
                        prices,
                        capacity,
                        goods,
                    };
                    large.filling(rates, self.lattice, &self.table)
                }
            };
            // A node that stays overfull whoever leaves: the instance has no solution, and any
            // value bounds it.
            let Some(filling) = filling else { continue };
            answer.bound += filling.value;
            for block in filling.leaving {
                answer.slopes.block[block] -= 1.0;
            }
            *used.entry(filling.entry).or_insert(0.0) += 1.0;
        }
        let supply = &mut answer.slopes.container;
        for (entry, times) in used {
            self.lattice
                .filling(entry, &prices.container, &self.table, |ty| {
                    supply[ty] += times
                });
        }
    }
}

/// What `count` containers of a job are worth at loss price `price`.
fn worth(instance: &Instance, job: usize, count: u32, price: f64) -> f64 {
    instance.worth(job, count) - price * instance.loss(job, count)
}

/// The best count of new containers at a price, and its value. The worth is concave with one kink
/// where the share is fair, so one of four counts is best.
pub(crate) fn best_fresh(instance: &Instance, index: usize, price: f64, loss: f64) -> (f64, u32) {
    let job = &instance.jobs[index];
    let fair = (job.fair / instance.types[job.ty].share) as u32;
    let value = |count: u32| worth(instance, index, count, loss) - price * f64::from(count);
    let counts = [job.min, fair, fair.saturating_add(1), job.max];
    let valued = counts
        .map(|count| count.clamp(job.min, job.max))
        .map(|count| (value(count), count));
    let better = |best: (f64, u32), next: (f64, u32)| if next.0 > best.0 { next } else { best };
    valued.into_iter().fold(valued[0], better)
}

/// Per job: what its restart gains at some prices, its room apart.
pub(crate) fn gains(instance: &Instance, container: &[f64], loss: f64) -> Vec<f64> {
    let gain = |index: usize| {
        let job = &instance.jobs[index];
        let (fresh, _) = best_fresh(instance, index, container[job.ty], loss);
        fresh - job.restart - worth(instance, index, job.count, loss)
    };
    (0..instance.jobs.len()).map(gain).collect()
}

/// The best set of blocks to leave, of all.
fn tabulated(node: &HeldNode, prices: &Prices, table: &[f64]) -> Option<Filling> {
    let mut costs = [0.0; 1 << TABULATED];
    let mut best: Option<(f64, usize, usize)> = None;
    for (set, entry) in node.entries().enumerate() {
        if set > 0 {
            let block = node.blocks.start + set.trailing_zeros() as usize;
            costs[set] = costs[set & (set - 1)] + prices.block[block];
        }
        let Some(entry) = entry else { continue };
        let value = table[entry] - costs[set];
        if best.is_none_or(|(other, _, _)| value > other) {
            best = Some((value, entry, set));
        }
    }
    best.map(|(value, entry, set)| Filling {
        value,
        entry,
        leaving: members(set).map(|bit| node.blocks.start + bit).collect(),
    })
}

fn members(set: usize) -> impl Iterator<Item = usize> {
    (0..TABULATED).filter(move |bit| set >> bit & 1 == 1)
}

/// A node of many blocks.
struct Large<'a> {
    held: &'a Held,
    node: &'a HeldNode,
    prices: &'a Prices,
    capacity: &'a [u64],
    goods: Goods<'a>,
}

impl Large<'_> {
    /// What a block's room is worth at `rates` beyond its price.
    fn surplus(&self, block: usize, rates: &[f64]) -> f64 {
        at_rates(&self.held.blocks[block].size, rates) - self.prices.block[block]
    }

    /// The linear bound: all blocks with a surplus leave.
    fn linear(&self, rates: &[f64]) -> f64 {
        let blocks = self.node.blocks.clone();
        let surplus: f64 = blocks
            .map(|block| self.surplus(block, rates).max(0.0))
            .sum();
        at_rates(&self.node.room, rates) + surplus
    }

    /// Makes `rates` valid again, and better if those of the room that would be free are.
    fn tighten(&self, rates_now: &mut Vec<f64>) {
        raise(rates_now, self.capacity, self.goods);
        let mut room = self.node.room.clone();
        for block in self.node.blocks.clone() {
            if self.surplus(block, rates_now) > 0.0 {
                let size = &self.held.blocks[block].size;
                room.iter_mut()
                    .zip(size)
                    .for_each(|(room, size)| *room += size);
            }
        }
        let others = rates(&room, self.capacity, self.goods);
        if self.linear(&others) < self.linear(rates_now) {
            *rates_now = others;
        }
    }

    fn filling(&self, rates: &mut Vec<f64>, lattice: &Lattice, table: &[f64]) -> Option<Filling> {
        self.tighten(rates);
        let blocks = self.node.blocks.clone();
        let mut order: Vec<(f64, usize)> = blocks
            .map(|block| (self.surplus(block, rates), block))
            .collect();
        order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let capacity = self.capacity.iter().zip(rates.iter());
        let least = -UNLIKELY * capacity.map(|(c, rate)| *c as f64 * rate).sum::<f64>();
        let likely = order
            .iter()
            .take(TABULATED)
            .filter(|(surplus, _)| *surplus > least)
            .count();
        let (likely, others) = order.split_at(likely);
        let best = self.best_of(likely, lattice, table);
        let Some((first, rest)) = others.split_first() else {
            return best;
        };
        // With at least one of the others: linear.
        let surplus = likely
            .iter()
            .chain(rest)
            .map(|(surplus, _)| surplus.max(0.0));
        let beyond = at_rates(&self.node.room, rates) + first.0 + surplus.sum::<f64>();
        let leaves = |(surplus, block): &&(f64, usize)| *surplus > 0.0 || *block == first.1;
        match best {
            Some(best) if best.value >= beyond => Some(best),
            best => Some(Filling {
                value: beyond,
                entry: best.map_or(0, |best| best.entry),
                leaving: order
                    .iter()
                    .filter(leaves)
                    .map(|(_, block)| *block)
                    .collect(),
            }),
        }
    }

    /// The best set of `likely` blocks to leave.
    fn best_of(
        &self,
        likely: &[(f64, usize)],
        lattice: &Lattice,
        table: &[f64],
    ) -> Option<Filling> {
        let width = self.node.room.len();
        let mut rooms = self.node.room.clone();
        rooms.reserve(width << likely.len());
        let mut costs = vec![0.0; 1 << likely.len()];
        let mut best: Option<(f64, usize, usize)> = None;
        for set in 0..1usize << likely.len() {
            if set > 0 {
                let block = likely[set.trailing_zeros() as usize].1;
                let before = set & (set - 1);
                costs[set] = costs[before] + self.prices.block[block];
                for (resource, size) in self.held.blocks[block].size.iter().enumerate() {
                    rooms.push(rooms[before * width + resource] + size);
                }
            }
            let Some(entry) = lattice.entry(&rooms[set * width..(set + 1) * width]) else {
                continue;
            };
            let value = table[entry] - costs[set];
            if best.is_none_or(|(other, _, _)| value > other) {
                best = Some((value, entry, set));
            }
        }
        best.map(|(value, entry, set)| Filling {
            value,
            entry,
            leaving: members(set).map(|bit| likely[bit].1).collect(),
        })
    }
}

fn at_rates(amounts: &[i64], rates: &[f64]) -> f64 {
    amounts
        .iter()
        .zip(rates)
        .map(|(amount, rate)| *amount as f64 * rate)
        .sum()
}
