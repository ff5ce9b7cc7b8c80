//! First prices: the worth of each resource on each class of equal nodes.
//!
//! The aggregated dual: a relaxation in which a class's nodes are one node with divisible room. With shadow
//! prices w_g ≥ 0 per class and π_t = min_g w_g · d_t,
//!
//! ```text
//! P2 ≤ λ F + Σ_g w_g · room_g + Σ_i stay_i + max Σ_{at most R of the i} (go_i − stay_i),
//! stay_i = worth_λ(p_i) − w · held_i,
//! go_i   = max_f worth_λ(f) − π f − restart_i.
//! ```

use crate::dual::r_algorithm::{RAlgorithm, minimise};
use crate::dual::relaxation::{FLOAT_SLACK, best_fresh, worth};
use crate::model::instance::{Instance, State};
use crate::model::node_classes::classes;

/// The first step as a part of a whole resource's worth, and the oracle evaluations: more hardly lower the
/// bound.
const FIRST: f64 = 0.5;
const EVALUATIONS: u32 = 100;

#[derive(Debug, Clone)]
pub(crate) struct WarmStart {
    shadow_prices: Vec<Vec<f64>>,
    class_of: Vec<usize>,
    /// π: price per container, by type.
    pub container: Vec<f64>,
    pub restart: f64,
    pub loss: f64,
    pub bound: f64,
}

impl WarmStart {
    pub fn new(instance: &Instance) -> Self {
        let dual = AggregatedDual::new(instance);
        let (prices, answer) = minimise(
            RAlgorithm::new(dual.first(), FIRST),
            EVALUATIONS,
            |prices| {
                let answer = dual.answer(prices);
                (answer.bound, answer.subgradient.clone(), answer)
            },
        );
        let (loss, shadow_prices) = prices.split_last().unwrap_or((&0.0, &[]));
        let unit = |shadow_prices: &[f64]| -> Vec<f64> {
            let pairs = shadow_prices.iter().zip(&instance.totals);
            pairs.map(|(rate, total)| rate / *total as f64).collect()
        };
        Self {
            shadow_prices: shadow_prices.chunks(dual.width()).map(unit).collect(),
            class_of: dual.class_of,
            container: answer.containers,
            restart: answer.restart,
            loss: *loss,
            bound: answer.bound,
        }
    }

    pub fn shadow_prices(&self, node: usize) -> &[f64] {
        &self.shadow_prices[self.class_of[node]]
    }
}

/// A price's index is class · resources + resource; the last price is λ.
struct AggregatedDual<'a> {
    instance: &'a Instance,
    class_of: Vec<usize>,
    room: Vec<f64>,
    held: Vec<Vec<(usize, f64)>>,
    types: Vec<Demand>,
}

struct Demand {
    parts: Vec<f64>,
    able: Vec<usize>,
}

struct Answer {
    bound: f64,
    subgradient: Vec<f64>,
    /// π: price per container, by type.
    containers: Vec<f64>,
    /// ρ: price of a restart.
    restart: f64,
}

impl<'a> AggregatedDual<'a> {
    fn new(instance: &'a Instance) -> Self {
        let width = instance.totals.len();
        let classes = classes(instance);
        let mut dual = Self {
            instance,
            class_of: vec![0; instance.rooms.len()],
            room: vec![0.0; classes.len() * width],
            held: Vec::new(),
            types: Vec::new(),
        };
        for (class, nodes) in classes.iter().enumerate() {
            for node in nodes {
                dual.class_of[*node] = class;
                let room = dual.parts(&instance.rooms[*node]);
                add(&mut dual.room, class * width, &room, 1.0);
            }
        }
        for ty in &instance.types {
            let fits = |nodes: &Vec<usize>| {
                let room = nodes.iter().flat_map(|node| &instance.rooms[*node]);
                ty.demand
                    .iter()
                    .zip(room)
                    .all(|(demand, room)| demand <= room)
            };
            let able = classes.iter().enumerate().filter(|(_, nodes)| fits(nodes));
            dual.types.push(Demand {
                able: able.map(|(class, _)| class * width).collect(),
                parts: dual.parts(&ty.demand),
            });
        }
        for job in &instance.jobs {
            let mut load = vec![0.0; dual.room.len()];
            for (node, count) in job.previous.iter().filter(|_| job.state != State::Free) {
                let demand = &dual.types[job.ty].parts;
                add(
                    &mut load,
                    dual.class_of[*node] * width,
                    demand,
                    f64::from(*count),
                );
            }
            add(&mut dual.room, 0, &load, -1.0);
            let held = load.into_iter().enumerate().filter(|(_, load)| *load > 0.0);
            dual.held.push(held.collect());
        }
        dual
    }

    fn width(&self) -> usize {
        self.instance.totals.len().max(1)
    }

    fn parts(&self, amounts: &[u64]) -> Vec<f64> {
        let pairs = amounts.iter().zip(&self.instance.totals);
        pairs
            .map(|(amount, total)| *amount as f64 / *total as f64)
            .collect()
    }

    /// At the first prices, a container costs its utilization.
    fn first(&self) -> Vec<f64> {
        let mut prices = vec![self.instance.objective.utilization; self.room.len()];
        prices.push(0.0);
        prices
    }

    /// Returns the least cost of a container's room and the first price index of that class; `None` if the
    /// type fits no class.
    fn cheapest(&self, ty: &Demand, prices: &[f64]) -> Option<(f64, usize)> {
        let cost = |at: &usize| {
            let pairs = ty.parts.iter().zip(&prices[*at..]);
            (pairs.map(|(part, price)| part * price).sum(), *at)
        };
        ty.able
            .iter()
            .map(cost)
            .min_by(|a: &(f64, usize), b| a.0.total_cmp(&b.0))
    }

    fn answer(&self, prices: &[f64]) -> Answer {
        let instance = self.instance;
        let (last, lambda) = (self.room.len(), prices[self.room.len()]);
        let types = self.types.iter();
        let cheapest: Vec<Option<(f64, usize)>> =
            types.map(|ty| self.cheapest(ty, prices)).collect();
        let pairs = self.room.iter().zip(prices);
        let mut bound: f64 = pairs.map(|(room, price)| room * price).sum();
        let mut subgradient = self.room.clone();
        subgradient.push(0.0);
        bound += instance.allowed_loss(lambda);
        let mut restarts = Vec::new();
        for (index, job) in instance.jobs.iter().enumerate() {
            let stays = match job.state {
                State::Free => 0.0,
                State::Pinned | State::Running => worth(instance, index, job.count, lambda),
            };
            bound += stays;
            if job.state != State::Free {
                subgradient[last] -= instance.loss(index, job.count);
            }
            let Some((price, at)) = cheapest[job.ty].filter(|_| job.state != State::Pinned) else {
                continue;
            };
            let (fresh, count) = best_fresh(instance, index, price, lambda);
            let room = Room { at, count };
            if job.state == State::Free {
                bound += fresh;
                self.start(index, room, &mut subgradient);
                continue;
            }
            let held = self.held[index].iter();
            let freed: f64 = held.map(|(at, load)| load * prices[*at]).sum();
            let gain = fresh - job.restart + freed - stays;
            if gain > 0.0 {
                restarts.push((gain, index, room));
            }
        }
        restarts.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let most = usize::try_from(instance.restart_bound).unwrap_or(usize::MAX);
        let restart = restarts.get(most).map_or(0.0, |(gain, _, _)| *gain);
        for (gain, index, room) in restarts.into_iter().take(most) {
            bound += gain;
            self.start(index, room, &mut subgradient);
            let held = self.held[index].iter();
            held.for_each(|(at, load)| subgradient[*at] += load);
            subgradient[last] += instance.loss(index, instance.jobs[index].count);
        }
        subgradient[last] = instance.spared_loss(-subgradient[last]);
        Answer {
            bound: bound + FLOAT_SLACK * (1.0 + bound.abs()),
            subgradient,
            containers: cheapest
                .iter()
                .map(|room| room.map_or(0.0, |(price, _)| price))
                .collect(),
            restart,
        }
    }

    /// Subtracts a job's new containers from the supply, and adds their loss.
    fn start(&self, job: usize, room: Room, subgradient: &mut [f64]) {
        let demand = &self.types[self.instance.jobs[job].ty].parts;
        add(subgradient, room.at, demand, -f64::from(room.count));
        subgradient[self.room.len()] -= self.instance.loss(job, room.count);
    }
}

#[derive(Clone, Copy)]
struct Room {
    at: usize,
    count: u32,
}

fn add(sums: &mut [f64], at: usize, parts: &[f64], times: f64) {
    for (sum, part) in sums[at..].iter_mut().zip(parts) {
        *sum += times * part;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::milp::highs::{Ending, Limits};
    use crate::milp::type_milp::TypeMilp;
    use crate::model::samples::{bound_samples, samples};

    /// Integral counts and losses only tighten the linear relaxation.
    #[test]
    fn it_bounds_as_well_as_the_linear_relaxation() {
        let mut compared = 0;
        for (seed, instance) in samples(0..100).chain(bound_samples(0..100)) {
            let groups = classes(&instance);
            let mut model = TypeMilp::new(&instance, &groups, false);
            let limits = Limits { gap: 0.0, nodes: 0 };
            let outcome = std::mem::take(&mut model.model).maximise(&limits, None);
            if outcome.ending != Ending::Optimal {
                continue;
            }
            compared += 1;
            let (linear, warm_start) = (model.bound(outcome.bound), WarmStart::new(&instance));
            assert!(
                warm_start.bound <= linear + 0.002 * linear.abs(),
                "seed {seed}: {} above {linear}",
                warm_start.bound
            );
        }
        assert!(compared >= 10, "{compared}");
    }

    #[test]
    fn no_allocation_exceeds_it() {
        use crate::drive::ladder::search;
        use crate::drive::search::Verdict;
        use crate::drive::work::Work;
        use crate::problem::Budget;

        let mut compared = 0;
        for (seed, instance) in samples(0..100).chain(bound_samples(0..100)) {
            let verdict = search(&instance, &Budget::default(), &Work::new(u64::MAX));
            let Verdict::Found(found) = verdict else {
                continue;
            };
            compared += 1;
            let reached = found.candidate.objective(&instance);
            let bound = WarmStart::new(&instance).bound;
            assert!(reached <= bound + 1e-9, "seed {seed}: {reached} > {bound}");
        }
        assert!(compared >= 10, "{compared}");
    }
}
