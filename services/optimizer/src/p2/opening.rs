//! Prices to begin with: what each resource is worth on each class of equal nodes.
//!
//! The Lagrangian relaxation in which the nodes of a class are one, and its room may be cut as fine
//! as one likes: with rates w_g ≥ 0 per class, λ ≥ 0 a unit of fairness loss, π_t = min_g w_g · d_t,
//!
//! P2 ≤ λ F + Σ_g w_g · room_g + Σ_i stay_i + max Σ_{at most R of the i} (go_i − stay_i),
//! stay_i = worth_λ(p_i) − w · held_i, go_i = max_f worth_λ(f) − π f − restart_i.
//!
//! There are a dozen prices at most clusters, so that a step costs microseconds. The linear
//! relaxation of the same model has the same bound or a worse one and takes HiGHS 6 ms at two hundred
//! nodes; its duals open no better.

use super::groups::classes;
use super::instance::{Instance, State};
use super::relax::{FLOAT_SLACK, best_fresh, worth};
use super::shor::minimise;

/// The first step, as a part of what a whole resource is worth, and how many answers are asked.
const FIRST: f64 = 0.5;
const ANSWERS: u32 = 100;

/// The prices, and what they prove.
#[derive(Debug, Clone)]
pub(crate) struct Opening {
    /// Per node's class and resource: one unit of it.
    rates: Vec<Vec<f64>>,
    /// Per node: its class.
    class_of: Vec<usize>,
    /// π per type.
    pub container: Vec<f64>,
    /// ρ.
    pub restart: f64,
    /// λ.
    pub loss: f64,
    /// What no allocation exceeds.
    pub bound: f64,
}

impl Opening {
    /// Finds them.
    pub fn new(instance: &Instance) -> Self {
        let market = Market::new(instance);
        let (prices, answer) = minimise(market.first(), FIRST, ANSWERS, |prices| {
            let answer = market.answer(prices);
            (answer.bound, answer.slopes.clone(), answer)
        });
        market.opening(&prices, answer)
    }

    /// What one unit of each resource is worth on a node.
    pub fn rates(&self, node: usize) -> &[f64] {
        &self.rates[self.class_of[node]]
    }
}

/// What is decided at some prices.
struct Answer {
    bound: f64,
    slopes: Vec<f64>,
    container: Vec<f64>,
    restart: f64,
}

/// The instance by class. Amounts are parts of the cluster's total; a price's index is class ·
/// resources + resource, the last one is λ.
struct Market<'a> {
    instance: &'a Instance,
    class_of: Vec<usize>,
    /// Per price: the room beside all that runs.
    room: Vec<f64>,
    /// Per job: prices, and what it holds of each.
    held: Vec<Vec<(usize, f64)>>,
    /// Per type: its demand, and the classes that it fits.
    types: Vec<(Vec<f64>, Vec<usize>)>,
}

impl<'a> Market<'a> {
    fn new(instance: &'a Instance) -> Self {
        let classes = classes(instance);
        let width = instance.totals.len();
        let parts = |amounts: &[u64]| -> Vec<f64> {
            let pairs = amounts.iter().zip(&instance.totals);
            pairs
                .map(|(amount, total)| *amount as f64 / (*total).max(1) as f64)
                .collect()
        };
        let mut class_of = vec![0; instance.rooms.len()];
        let mut room = vec![0.0; classes.len() * width];
        for (class, nodes) in classes.iter().enumerate() {
            for node in nodes {
                class_of[*node] = class;
                let cells = &mut room[class * width..][..width];
                cells
                    .iter_mut()
                    .zip(parts(&instance.rooms[*node]))
                    .for_each(|(cell, part)| *cell += part);
            }
        }
        let types = instance.types.iter().map(|ty| {
            let fits = |nodes: &Vec<usize>| {
                let room = nodes.first().map(|node| &instance.rooms[*node]);
                room.is_some_and(|room| ty.demand.iter().zip(room).all(|(d, c)| d <= c))
            };
            let able = (0..classes.len()).filter(|class| fits(&classes[*class]));
            (parts(&ty.demand), able.collect())
        });
        let types: Vec<(Vec<f64>, Vec<usize>)> = types.collect();
        let mut held = Vec::with_capacity(instance.jobs.len());
        for job in &instance.jobs {
            let mut load = vec![0.0; room.len()];
            for (node, count) in job.previous.iter().filter(|_| job.state != State::Free) {
                let cells = &mut load[class_of[*node] * width..][..width];
                let demand = types[job.ty].0.iter();
                cells
                    .iter_mut()
                    .zip(demand)
                    .for_each(|(cell, part)| *cell += part * f64::from(*count));
            }
            room.iter_mut()
                .zip(&load)
                .for_each(|(room, load)| *room -= load);
            held.push(
                load.into_iter()
                    .enumerate()
                    .filter(|(_, load)| *load > 0.0)
                    .collect(),
            );
        }
        Self {
            instance,
            class_of,
            room,
            held,
            types,
        }
    }

    /// A container costs what it is worth.
    fn first(&self) -> Vec<f64> {
        let mut prices = vec![self.instance.objective.utilization; self.room.len()];
        prices.push(0.0);
        prices
    }

    /// Per type: the least that its room costs, and in which class.
    fn containers(&self, prices: &[f64]) -> Vec<(f64, Option<usize>)> {
        let cheapest = |(demand, able): &(Vec<f64>, Vec<usize>)| {
            let width = demand.len();
            let cost = |class: usize| -> f64 {
                let rates = &prices[class * width..][..width];
                demand
                    .iter()
                    .zip(rates)
                    .map(|(part, rate)| part * rate)
                    .sum()
            };
            let costs = able.iter().map(|class| (cost(*class), Some(*class)));
            costs
                .min_by(|a, b| a.0.total_cmp(&b.0))
                .unwrap_or((f64::INFINITY, None))
        };
        self.types.iter().map(cheapest).collect()
    }

    fn answer(&self, prices: &[f64]) -> Answer {
        let instance = self.instance;
        let lambda = prices[self.room.len()];
        let containers = self.containers(prices);
        let mut slopes = self.room.clone();
        slopes.push(0.0);
        let mut bound: f64 = self
            .room
            .iter()
            .zip(prices)
            .map(|(room, price)| room * price)
            .sum();
        if instance.loss_bound.is_finite() {
            bound += lambda * instance.loss_bound;
            slopes[self.room.len()] = instance.loss_bound;
        }
        let mut going: Vec<(f64, usize, u32)> = Vec::new();
        for (index, job) in instance.jobs.iter().enumerate() {
            let price = containers[job.ty].0;
            if job.state != State::Free {
                bound += worth(instance, index, job.count, lambda);
                slopes[self.room.len()] -= instance.loss(index, job.count);
            }
            if job.state == State::Pinned || price == f64::INFINITY {
                continue;
            }
            let (fresh, count) = best_fresh(instance, index, price, lambda);
            if job.state == State::Free {
                bound += fresh;
                self.take(&mut slopes, index, count, containers[job.ty].1);
                slopes[self.room.len()] -= instance.loss(index, count);
                continue;
            }
            let frees: f64 = self.held[index]
                .iter()
                .map(|(at, load)| load * prices[*at])
                .sum();
            let gain = fresh - job.restart + frees - worth(instance, index, job.count, lambda);
            if gain > 0.0 {
                going.push((gain, index, count));
            }
        }
        let most = usize::try_from(instance.restart_bound).unwrap_or(usize::MAX);
        going.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let restart = going.get(most).map_or(0.0, |(gain, _, _)| *gain);
        for (gain, index, count) in going.into_iter().take(most) {
            bound += gain;
            self.take(
                &mut slopes,
                index,
                count,
                containers[instance.jobs[index].ty].1,
            );
            let held = self.held[index].iter();
            held.for_each(|(at, load)| slopes[*at] += load);
            let before = instance.loss(index, instance.jobs[index].count);
            slopes[self.room.len()] -= instance.loss(index, count) - before;
        }
        Answer {
            bound: bound + FLOAT_SLACK * (1.0 + bound.abs()),
            slopes,
            container: containers
                .into_iter()
                .map(|(price, _)| if price.is_finite() { price } else { 0.0 })
                .collect(),
            restart,
        }
    }

    /// `count` containers of a job take room of a class.
    fn take(&self, slopes: &mut [f64], job: usize, count: u32, class: Option<usize>) {
        let Some(class) = class else { return };
        let demand = &self.types[self.instance.jobs[job].ty].0;
        let cells = &mut slopes[class * demand.len()..][..demand.len()];
        cells
            .iter_mut()
            .zip(demand)
            .for_each(|(cell, part)| *cell -= part * f64::from(count));
    }

    fn opening(self, prices: &[f64], answer: Answer) -> Opening {
        let width = self.instance.totals.len();
        let rate = |rates: &[f64]| {
            let pairs = rates.iter().zip(&self.instance.totals);
            pairs
                .map(|(rate, total)| rate / (*total).max(1) as f64)
                .collect()
        };
        Opening {
            rates: prices[..self.room.len()]
                .chunks(width.max(1))
                .map(rate)
                .collect(),
            class_of: self.class_of,
            container: answer.container,
            restart: answer.restart,
            loss: prices[self.room.len()],
            bound: answer.bound,
        }
    }
}
