//! Searches for an allocation of one instance, stage by stage, until the gap is small enough.
//!
//! If all jobs fit at their best ([`crate::drive::independent_bound`]), that is the answer. If the exact model is
//! small:
//!
//! 1. `classes`: the type model over classes of equal nodes, which bounds P2. Its restarts and counts, packed
//!    into the nodes, are often optimal.
//! 2. `exact`: the type model with single nodes, which is P2, started from the best candidate.
//!
//! Otherwise:
//!
//! 3. `prices` ([`crate::drive::price_search`]);
//! 4. `classes` if no candidate was found, then `exact` if the gap is open and the model not too large.

use dormouse_messages::events::StoppedBy;

use crate::drive::independent_bound::independent_bound;
use crate::drive::price_search;
use crate::drive::search::{OPTIMAL, Search, Verdict};
use crate::drive::work::Work;
use crate::milp::highs::{Ending, Limits, Outcome};
use crate::milp::type_milp::{TypeMilp, may_be_feasible};
use crate::model::candidate::Candidate;
use crate::model::instance::Instance;
use crate::model::node_classes::{NodeClasses, classes, single_nodes};
use crate::primal::best_fit::best_fit;
use crate::primal::min_restart_heuristic::min_restart_heuristic;
use crate::problem::Budget;

/// Cuts at the root close most of the gap of a large model.
const LARGE_NODES: u64 = 10;
/// Solved first, in columns of slots.
const SMALL_COLUMNS: usize = 600;
const EXACT_COLUMNS: usize = 4_000;
/// Columns beyond which no model is begun: its first relaxation alone may take longer than a decision.
const MOST_COLUMNS: u64 = 100_000;
/// Steps of a simplex iteration a column, and of a node a column: some dozens of iterations.
const COLUMN_STEPS: u64 = 20;
const NODE_STEPS: u64 = 40 * COLUMN_STEPS;

pub(crate) fn search(instance: &Instance, budget: &Budget, work: &Work) -> Verdict {
    let mut search = Search::new(instance, budget, work);
    match search.stages() {
        Some(()) => search.verdict(),
        None => Verdict::Infeasible,
    }
}

#[cfg(test)]
pub(crate) fn search_by_prices(instance: &Instance, budget: &Budget) -> Verdict {
    let work = Work::new(u64::MAX);
    let mut search = Search::new(instance, budget, &work);
    match price_search::search(&mut search) {
        Some(()) if !search.has_candidate() => Verdict::Unknown,
        Some(()) => search.verdict(),
        None => Verdict::Infeasible,
    }
}

fn exact_columns(instance: &Instance) -> usize {
    instance.types.len() * instance.rooms.len()
}

/// `None` if the budget ended first.
pub(crate) fn any(instance: &Instance, budget: &Budget, work: &Work) -> Option<bool> {
    let simple = [
        Some(Candidate::incumbent(instance)),
        min_restart_heuristic(instance),
    ];
    if simple.iter().flatten().any(|it| it.is_feasible(instance)) {
        return Some(true);
    }
    if !may_be_feasible(instance) {
        return Some(false);
    }
    let mut budget = Budget {
        gap: f64::INFINITY,
        ..*budget
    };
    // A small model that mostly proves infeasibility already.
    let small = exact_columns(instance) <= SMALL_COLUMNS;
    budget.nodes = budget.nodes.or((!small).then_some(LARGE_NODES));
    let mut first = Search::new(instance, &budget, work);
    if first.classes().is_none() {
        return Some(false);
    }
    if first.has_candidate() {
        return Some(true);
    }
    match search(instance, &budget, work) {
        Verdict::Found(_) => Some(true),
        Verdict::Infeasible => Some(false),
        Verdict::Unknown => None,
    }
}

impl Search<'_> {
    fn stages(&mut self) -> Option<()> {
        if self.instance.jobs.iter().any(|job| job.in_place) {
            // Comes first: later candidates must be better, not equal.
            self.offer(Candidate::in_place(self.instance), "in_place");
        }
        let (bound, candidate) = independent_bound(self.instance);
        self.bounded(bound);
        self.offer(candidate, "alone");
        if self.is_within(OPTIMAL) {
            return Some(());
        }
        if exact_columns(self.instance) <= SMALL_COLUMNS {
            self.classes()?;
            if !self.good_enough() {
                self.exact()?;
            }
            if !self.has_candidate() {
                self.without_search();
            }
            return Some(());
        }
        price_search::search(self)?;
        if !self.has_candidate() {
            self.classes()?;
        }
        if !self.good_enough() && exact_columns(self.instance) <= EXACT_COLUMNS {
            self.exact()?;
        }
        Some(())
    }

    fn classes(&mut self) -> Option<()> {
        let groups = classes(self.instance);
        let limits = Limits {
            // If any allocation will do, stop at the first.
            gap: if self.budget.gap.is_finite() {
                OPTIMAL
            } else {
                f64::INFINITY
            },
            ..self.limits()
        };
        let (outcome, candidate) = self.run(&groups, limits, None);
        if outcome.ending == Ending::Infeasible {
            return None;
        }
        if let Some(candidate) = candidate {
            let placed = best_fit(self.instance, &candidate.restarted, &candidate.counts);
            self.offer(placed, "classes");
        }
        Some(())
    }

    fn exact(&mut self) -> Option<()> {
        let groups = single_nodes(self.instance);
        let start = self
            .best
            .as_ref()
            .map(|(candidate, _, _)| candidate.clone());
        let mut limits = self.limits();
        if self.budget.nodes.is_none() && exact_columns(self.instance) > SMALL_COLUMNS {
            limits.nodes = LARGE_NODES;
        }
        let (outcome, candidate) = self.run(&groups, limits, start.as_ref());
        if outcome.ending == Ending::Infeasible {
            return None;
        }
        self.offer(candidate, "exact");
        Some(())
    }

    fn run(
        &mut self,
        groups: &NodeClasses,
        limits: Limits,
        start: Option<&Candidate>,
    ) -> (Outcome, Option<Candidate>) {
        let columns = (groups.len() * self.instance.types.len()) as u64;
        if self.work.is_over() {
            return (Outcome::without_solution(Ending::Limit), None);
        }
        if columns > MOST_COLUMNS {
            self.work.meet(StoppedBy::Work);
            return (Outcome::without_solution(Ending::Limit), None);
        }
        let affordable = self.work.left() / (columns * NODE_STEPS).max(1);
        let is_short = affordable < limits.nodes;
        let limits = Limits {
            nodes: limits.nodes.min(affordable),
            ..limits
        };
        let mut model = TypeMilp::new(self.instance, groups, true);
        let start = start.map(|candidate| model.columns(candidate));
        let linear = std::mem::take(&mut model.model);
        let outcome = linear.maximise(&limits, start.as_deref());
        self.work.spend(outcome.iterations * columns * COLUMN_STEPS);
        self.bounded(model.bound(outcome.bound));
        match outcome.ending {
            Ending::Limit if is_short => self.work.meet(StoppedBy::Work),
            Ending::Limit => self.work.meet(StoppedBy::Nodes),
            Ending::Optimal | Ending::Infeasible | Ending::Error => {}
        }
        let candidate = model.candidate(&outcome);
        (outcome, candidate)
    }
}
