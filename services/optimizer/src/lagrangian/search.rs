//! The search on a large cluster: bounds and plans from prices.
//!
//! Plans with no more restarts than new jobs need come first ([`crate::primal::min_restart_heuristic`]). Then:
//!
//! 1. [`crate::lagrangian::dual_descent`] lowers a bound step by step, and learns on the way what rooms, containers
//!    and restarts are worth.
//! 2. After some of its steps, restarts are chosen at those prices ([`crate::primal::restart_local_search`]), beginning
//!    with the jobs that the ascent restarted most. With them the rooms of a packing are known, and
//!    it has prices of its own ([`crate::primal::price_rounds`]), which bound what comes of these restarts; a part
//!    of them mixed with the earlier ones, restarts are chosen again, a few times.
//! 3. If by those bounds the best of the choices may be good enough, the nodes are packed for it
//!    ([`crate::primal::packing`]); after the first and the last of these steps in any case.
//! 4. Where a minimum finds no room, which happens on clusters of a hundred nodes, it is refilled node
//!    by node: others' containers give way.
//!
//! It ends as soon as the gap is proven. All of it is deterministic; the step counts are the
//! budget.

use crate::candidate::{Plan, SHARE_SLACK};
use crate::instance::State;
use crate::lagrangian::dual_descent::{Ascent, mix};
use crate::lagrangian::incumbent_blocks::Held;
use crate::lagrangian::knapsack_table::Lattice;
use crate::lagrangian::relaxation::gains;
use crate::primal::min_restart_heuristic::beside;
use crate::primal::packing::Packing;
use crate::primal::restart_local_search::choose;
use crate::solve::{Search, may_be_feasible};

/// After how many steps of the ascent plans are made. Most instances are done after the first
/// or second.
const STOPS: [i32; 6] = [60, 100, 140, 180, 240, 300];
/// How often restarts are chosen at each stop.
const CHOICES: usize = 3;
/// How much of what a packing says counts for the next choice.
const HEARD: f64 = 0.25;
/// The first step of a packing's prices, as a part of what they are compared with.
const FIRST: f64 = 0.1;
/// A job that the ascent restarted more often than this is restarted to begin with.
const OFTEN: f64 = 0.3;
/// What a unit of unfairness is made to cost at least, and how much more, when a plan breaks its
/// bound: the scale is that of shares, where 1 is the whole cluster.
const FAIRER: (f64, f64) = (0.02, 1.5);

/// Searches; `None` when P2 is proven to have no solution.
pub(crate) fn search(search: &mut Search<'_>) -> Option<()> {
    let instance = search.instance;
    search.offer(Some(Plan::standing(instance)), "standing");
    search.offer(beside(instance), "beside");
    if !search.has_plan() && !may_be_feasible(instance) {
        return None;
    }
    let lattice = Lattice::new(instance);
    let held = Held::new(instance, &lattice);
    let mut plans = Plans {
        lattice: &lattice,
        held: &held,
        unfair: 0.0,
    };
    plans.climb(search, &mut Ascent::new(instance, &lattice, &held));
    Some(())
}

struct Plans<'a> {
    lattice: &'a Lattice,
    held: &'a Held,
    /// What is added to λ, since plans were too unfair without it.
    unfair: f64,
}

/// Restarts, and their packing before anything is placed.
struct Choice<'a> {
    restarted: Vec<bool>,
    packing: Packing<'a>,
    /// Its cleared prices.
    prices: Vec<f64>,
    /// What no plan with these restarts exceeds.
    most: f64,
}

impl<'p> Plans<'p> {
    /// Steps 1 to 4 until the gap is proven, at most until the last stop.
    fn climb<'i: 'p>(&mut self, search: &mut Search<'i>, ascent: &mut Ascent<'_>) {
        search.bounded(ascent.bound);
        for stop in STOPS {
            while ascent.step < stop && !search.good_enough() && !search.is_late() {
                ascent.step();
                search.bounded(ascent.bound);
            }
            if search.good_enough() || search.is_late() {
                return;
            }
            self.make(search, ascent);
        }
    }

    /// Steps 2 to 4.
    fn make<'i: 'p>(&mut self, search: &mut Search<'i>, ascent: &Ascent<'_>) {
        let Some(choice) = self.choose(search, ascent) else {
            return;
        };
        // What comes of the first stop may have to do if time ends, and of the last if nothing does.
        let in_any_case = ascent.step == STOPS[0] || ascent.step == STOPS[STOPS.len() - 1];
        if !in_any_case && !search.would_do(choice.most) {
            return;
        }
        let Choice {
            restarted,
            mut packing,
            prices,
            ..
        } = choice;
        packing.settle(&prices);
        if packing.misses_any() {
            packing.refill();
        }
        self.offer(search, &packing, &restarted);
    }

    /// Step 2: the choice with the highest bound.
    fn choose<'i: 'p>(&self, search: &mut Search<'i>, ascent: &Ascent<'_>) -> Option<Choice<'p>> {
        let instance = search.instance;
        let averages = &ascent.averages;
        let (mut table, mut gained) = (averages.table.clone(), averages.gains.clone());
        let mut start = self.often(search, &averages.restarted);
        let loss = ascent.prices.loss + self.unfair;
        let mut tried: Vec<Vec<bool>> = Vec::new();
        let mut best: Option<Choice<'_>> = None;
        for _ in 0..CHOICES {
            let restarted = choose(instance, self.lattice, self.held, &table, &gained, &start);
            if tried.contains(&restarted) || search.is_late() {
                break;
            }
            tried.push(restarted.clone());
            let packing = Packing::new(instance, self.lattice, &restarted, loss);
            let cleared = packing.cleared(ascent.way_from_best(FIRST), &ascent.scale);
            let known = cleared.prices.iter().zip(&ascent.prices.container);
            let prices: Vec<f64> = known.map(|(p, a)| if *p > 0.0 { *p } else { *a }).collect();
            mix(&mut table, cleared.table.into_iter(), HEARD);
            mix(
                &mut gained,
                gains(instance, &prices, loss).into_iter(),
                HEARD,
            );
            start.clone_from(&restarted);
            let most = cleared.most + standing_worth(search, &restarted, loss);
            if best.as_ref().is_none_or(|best| most > best.most) {
                best = Some(Choice {
                    restarted,
                    packing,
                    prices: cleared.prices,
                    most,
                });
            }
        }
        best
    }

    /// The jobs that the ascent restarted most often, as many as may be.
    fn often(&self, search: &Search<'_>, restarted: &[f64]) -> Vec<bool> {
        let mut order: Vec<usize> = (0..restarted.len())
            .filter(|job| restarted[*job] > OFTEN)
            .collect();
        order.sort_by(|a, b| restarted[*b].total_cmp(&restarted[*a]).then(a.cmp(b)));
        order.truncate(search.instance.restart_bound as usize);
        let mut often = vec![false; restarted.len()];
        order.into_iter().for_each(|job| often[job] = true);
        often
    }

    fn offer(&mut self, search: &mut Search<'_>, packing: &Packing<'_>, restarted: &[bool]) {
        let plan = packing.plan(restarted);
        let bound = search.instance.loss_bound + SHARE_SLACK;
        if plan
            .as_ref()
            .is_some_and(|plan| plan.loss(search.instance) > bound)
        {
            self.unfair = (self.unfair * FAIRER.1).max(FAIRER.0);
        }
        search.offer(plan, "priced");
    }
}

/// What the jobs are worth with the new ones and the restarted ones at their minima, and what the
/// bound on the loss is worth at its price.
fn standing_worth(search: &Search<'_>, restarted: &[bool], loss: f64) -> f64 {
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

    use crate::instance::samples::{bound_samples, samples};
    use crate::milp::highs::Purse;
    use crate::problem::Budget;
    use crate::solve::{Verdict, search, search_by_prices};

    /// The bound is never below the optimum that branch and bound proves, the plan never above it
    /// and never infeasible; and it is within a few containers of it.
    #[test]
    fn prices_bound_the_optimum_and_their_plans_are_feasible() {
        let (mut solved, mut compared) = (0, 0);
        for (seed, mut instance) in samples(0..60).chain(bound_samples(0..60)) {
            let exact = Budget {
                gap: 0.0,
                nodes: Some(20_000),
                seconds: None,
            };
            // Some without a bound on the loss, as for the head of an idle cluster's queue.
            if seed % 3 == 0 {
                instance.loss_bound = f64::INFINITY;
            }
            let exact = match search(&instance, &exact, &Purse::new(None)) {
                Verdict::Found(found) if found.stopped_by == StoppedBy::Optimal => found,
                Verdict::Infeasible | Verdict::Unknown | Verdict::Found(_) => continue,
            };
            let optimum = exact.plan.objective(&instance);
            compared += 1;
            match search_by_prices(
                &instance,
                &Budget {
                    gap: 0.0,
                    nodes: None,
                    seconds: None,
                },
            ) {
                Verdict::Found(found) => {
                    solved += 1;
                    assert!(
                        found.bound >= optimum - 1e-6,
                        "seed {seed}: bound {} < {optimum}",
                        found.bound
                    );
                    assert!(found.plan.is_feasible(&instance), "seed {seed}");
                    let reached = found.plan.objective(&instance);
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
