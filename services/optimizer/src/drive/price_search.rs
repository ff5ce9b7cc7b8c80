//! The search on a large cluster: bounds and candidates from prices.
//!
//! 1. [`crate::dual::dual_descent`] lowers the bound and learns the worth of rooms, containers and
//!    restarts.
//! 2. At some steps, restarts are chosen at those prices ([`crate::primal::restart_local_search`]), and again
//!    with a part of the packing's own prices ([`crate::primal::price_rounds`]).
//! 3. If the best choice's bound is good enough, and at the first and last stop, the nodes are packed
//!    ([`crate::primal::packing`]).
//! 4. If a minimum finds no room, one more restart is forced that makes room for it, and the choice is made
//!    again. Packed gangs leave rooms that no lacking container fits, and no price of a type says that one
//!    room is needed once.

use crate::drive::search::Search;
use crate::dual::dual_descent::{DualDescent, mix};
use crate::dual::incumbent_blocks::IncumbentBlocks;
use crate::dual::relaxation::gains;
use crate::milp::type_milp::may_be_feasible;
use crate::model::candidate::SHARE_SLACK;
use crate::model::instance::{Instance, State};
use crate::model::room_grid::RoomGrid;
use crate::primal::packing::Packing;
use crate::primal::restart_local_search::LocalSearch;

/// Most instances are done after the first or second stop.
const STOPS: [i32; 6] = [60, 100, 140, 180, 240, 300];
const CHOICES: usize = 3;
/// Steps of a node, block or job in a sweep.
const PART_STEPS: usize = 100;
/// A choice of restarts, and a packing, in sweeps.
const CHOICE_SWEEPS: u64 = 30;
const PACKING_SWEEPS: u64 = 40;
const PACKING_PRICE_WEIGHT: f64 = 0.25;
const FIRST_STEP: f64 = 0.1;
/// Least restart probability of a job in the first choice.
const LIKELY_RESTART: f64 = 0.3;
/// Extra price per unit of unfairness after a broken loss bound, and its growth. A share of 1 is the whole
/// cluster.
const UNFAIRNESS_PRICE: (f64, f64) = (0.02, 1.5);
/// Restarts that a choice may be given to make room for minima, one after the other.
const REPAIRS: usize = 4;

/// `None` if P2 is proven infeasible.
pub(crate) fn search(search: &mut Search<'_>) -> Option<()> {
    let instance = search.instance;
    search.without_search();
    if !search.has_candidate() && !may_be_feasible(instance) {
        return None;
    }
    let grid = RoomGrid::new(instance);
    let incumbents = IncumbentBlocks::new(instance, &grid);
    let mut candidates = Candidates {
        grid: &grid,
        incumbents: &incumbents,
        unfair: 0.0,
        steps: sweep_steps(instance, &grid, &incumbents),
    };
    candidates.climb(search, &mut DualDescent::new(instance, &grid, &incumbents));
    Some(())
}

struct Candidates<'a> {
    grid: &'a RoomGrid,
    incumbents: &'a IncumbentBlocks,
    unfair: f64,
    /// Steps of one sweep over tables, nodes and jobs.
    steps: u64,
}

fn sweep_steps(instance: &Instance, grid: &RoomGrid, incumbents: &IncumbentBlocks) -> u64 {
    let table = grid.size() * instance.types.len();
    let parts = instance.rooms.len() + incumbents.blocks.len() + instance.jobs.len();
    (table + PART_STEPS * parts) as u64
}

struct Restarts<'a> {
    restarted: Vec<bool>,
    packing: Packing<'a>,
    prices: Vec<f64>,
    most: f64,
}

impl<'p> Candidates<'p> {
    fn climb<'i: 'p>(&mut self, search: &mut Search<'i>, dual_descent: &mut DualDescent<'_>) {
        search.bounded(dual_descent.bound);
        for stop in STOPS {
            while dual_descent.step < stop && !search.good_enough() && !search.work.is_over() {
                search.work.spend(self.steps);
                dual_descent.step();
                search.bounded(dual_descent.bound);
            }
            if search.good_enough() || search.work.is_over() {
                return;
            }
            self.make(search, dual_descent);
        }
    }

    fn make<'i: 'p>(&mut self, search: &mut Search<'i>, dual_descent: &DualDescent<'_>) {
        // The first stop's candidate must serve if the work limit ends the search, the last stop's if nothing else is found.
        let in_any_case =
            dual_descent.step == STOPS[0] || dual_descent.step == STOPS[STOPS.len() - 1];
        let mut forced = Vec::new();
        loop {
            let Some(choice) = self.choose(search, dual_descent, &forced) else {
                return;
            };
            if !in_any_case && !search.would_do(choice.most) {
                return;
            }
            let Restarts {
                restarted,
                mut packing,
                prices,
                ..
            } = choice;
            search.work.spend(PACKING_SWEEPS * self.steps);
            packing.run_price_rounds(&prices);
            let makes_room = packing.misses_any().then(|| {
                let averages = &dual_descent.averages;
                let mut restarts = self.restarts(search.instance, &averages.table, &averages.gains);
                restarts.start(&restarted);
                restarts.best_to_make_room(&packing)
            });
            match makes_room {
                Some(Some(job)) if forced.len() < REPAIRS => forced.push(job),
                Some(_) => return,
                None => return self.offer(search, &packing, &restarted),
            }
        }
    }

    fn restarts<'b>(
        &'b self,
        instance: &'b Instance,
        table: &'b [f64],
        gains: &'b [f64],
    ) -> LocalSearch<'b> {
        LocalSearch::new(instance, self.grid, self.incumbents, table, gains)
    }

    fn choose<'i: 'p>(
        &self,
        search: &mut Search<'i>,
        dual_descent: &DualDescent<'_>,
        forced: &[usize],
    ) -> Option<Restarts<'p>> {
        let instance = search.instance;
        let averages = &dual_descent.averages;
        let (mut table, mut gained) = (averages.table.clone(), averages.gains.clone());
        let mut start = if forced.is_empty() {
            self.likely_restarts(search, &averages.restarted)
        } else {
            vec![false; averages.restarted.len()]
        };
        let loss = dual_descent.prices.loss + self.unfair;
        let mut tried: Vec<Vec<bool>> = Vec::new();
        let mut best: Option<Restarts<'_>> = None;
        for _ in 0..CHOICES {
            let restarts = self.restarts(instance, &table, &gained);
            let restarted = restarts.choose(forced, &start);
            if tried.contains(&restarted) || search.work.is_over() {
                break;
            }
            search.work.spend(CHOICE_SWEEPS * self.steps);
            tried.push(restarted.clone());
            let packing = Packing::new(instance, self.grid, &restarted, loss);
            let cleared = packing.cleared(
                dual_descent.descent_from_best(FIRST_STEP),
                &dual_descent.scale,
            );
            let known = cleared.prices.iter().zip(&dual_descent.prices.container);
            let prices: Vec<f64> = known.map(|(p, a)| if *p > 0.0 { *p } else { *a }).collect();
            mix(&mut table, cleared.table.into_iter(), PACKING_PRICE_WEIGHT);
            mix(
                &mut gained,
                gains(instance, &prices, loss).into_iter(),
                PACKING_PRICE_WEIGHT,
            );
            start.clone_from(&restarted);
            let most = cleared.most + incumbent_worth(search, &restarted, loss);
            if best.as_ref().is_none_or(|best| most > best.most) {
                best = Some(Restarts {
                    restarted,
                    packing,
                    prices: cleared.prices,
                    most,
                });
            }
        }
        best
    }

    fn likely_restarts(&self, search: &Search<'_>, restarted: &[f64]) -> Vec<bool> {
        let mut order: Vec<usize> = (0..restarted.len())
            .filter(|job| restarted[*job] > LIKELY_RESTART)
            .collect();
        order.sort_by(|a, b| restarted[*b].total_cmp(&restarted[*a]).then(a.cmp(b)));
        order.truncate(search.instance.restart_bound as usize);
        let mut likely_restarts = vec![false; restarted.len()];
        order
            .into_iter()
            .for_each(|job| likely_restarts[job] = true);
        likely_restarts
    }

    fn offer(&mut self, search: &mut Search<'_>, packing: &Packing<'_>, restarted: &[bool]) {
        let candidate = packing.candidate(restarted);
        let bound = search.instance.loss_bound + SHARE_SLACK;
        if candidate
            .as_ref()
            .is_some_and(|candidate| candidate.loss(search.instance) > bound)
        {
            self.unfair = (self.unfair * UNFAIRNESS_PRICE.1).max(UNFAIRNESS_PRICE.0);
        }
        search.offer(candidate, "priced");
    }
}

/// New and restarted jobs count at their minima.
fn incumbent_worth(search: &Search<'_>, restarted: &[bool], loss: f64) -> f64 {
    let instance = search.instance;
    let worth = |index: usize| {
        let job = &instance.jobs[index];
        let free = job.state == State::Free || restarted[index];
        let count = if free { job.min } else { job.count };
        let restart = if restarted[index] { job.restart } else { 0.0 };
        instance.worth(index, count) - loss * instance.loss(index, count) - restart
    };
    (0..instance.jobs.len()).map(worth).sum::<f64>() + instance.allowed_loss(loss)
}

#[cfg(test)]
mod tests {
    use dormouse_messages::events::StoppedBy;

    use crate::drive::ladder::{search, search_by_prices};
    use crate::drive::search::Verdict;
    use crate::drive::work::Work;
    use crate::model::samples::{bound_samples, samples};
    use crate::problem::Budget;

    #[test]
    fn prices_bound_the_optimum_and_their_plans_are_feasible() {
        let (mut solved, mut compared) = (0, 0);
        for (seed, mut instance) in samples(0..60).chain(bound_samples(0..60)) {
            let exact = Budget {
                gap: 0.0,
                nodes: Some(20_000),
                work: u64::MAX,
            };
            // Without a loss bound, as for an idle cluster.
            if seed % 3 == 0 {
                instance.loss_bound = f64::INFINITY;
            }
            let exact = match search(&instance, &exact, &Work::new(u64::MAX)) {
                Verdict::Found(found) if found.proven == StoppedBy::Optimal => found,
                Verdict::Infeasible | Verdict::Unknown | Verdict::Found(_) => continue,
            };
            let optimum = exact.candidate.objective(&instance);
            compared += 1;
            match search_by_prices(
                &instance,
                &Budget {
                    gap: 0.0,
                    nodes: None,
                    work: u64::MAX,
                },
            ) {
                Verdict::Found(found) => {
                    solved += 1;
                    assert!(
                        found.bound >= optimum - 1e-6,
                        "seed {seed}: bound {} < {optimum}",
                        found.bound
                    );
                    assert!(found.candidate.is_feasible(&instance), "seed {seed}");
                    let reached = found.candidate.objective(&instance);
                    assert!(
                        reached <= optimum + 1e-6,
                        "seed {seed}: {reached} > {optimum}"
                    );
                }
                Verdict::Infeasible => panic!("seed {seed} has a solution"),
                Verdict::Unknown => {}
            }
        }
        assert!(
            compared >= 10 && solved * 10 >= compared * 9,
            "{solved} of {compared}"
        );
    }
}
