//! The search for an allocation of one instance, stage by stage, until the gap is small enough:
//!
//! 1. `classes`: the type model over classes of equal nodes. It bounds P2; if it has no solution,
//!    P2 has none. Its restarts and counts, packed into the nodes, are often optimal already.
//! 2. `exact`: the type model with every node on its own, which is P2, begun with the best plan.
//!
//! Where the exact model is too large, after the class relaxation:
//!
//! 3. `relax`: the linear relaxation over single nodes, or groups of similar ones: a tighter bound,
//!    and how much of each running job it would restart;
//! 4. [`dive`]: which running jobs are restarted;
//! 5. `round`, `choose`: with the restarts decided, counts and slots (`settle`).

use std::collections::BTreeSet;

use crate::problem::Budget;

use super::dive::dive;
use super::groups::{Groups, classes, similar, single_nodes};
use super::instance::{Instance, State, fits};
use super::model::TypeModel;
use super::place::{grow, place};
use super::plan::Plan;
use super::settle::Settling;
use super::solver::{Ending, Limits, Outcome};

/// The gap within which an allocation counts as optimal: below what a container is worth on any
/// cluster of a few thousand nodes, above what floats lose.
const OPTIMAL: f64 = 1e-6;
/// Branch-and-bound nodes of a run when the budget names no number: a few seconds at most.
const DEFAULT_NODES: u64 = 2_000;
/// The same for an exact model that is not small: its cuts at the root close most of the gap.
const LARGE_NODES: u64 = 10;
/// The largest exact model that is solved without a dive first: the testbed's is 140.
const SMALL_COLUMNS: usize = 600;
/// The largest exact model, in columns of slots, that is tried.
const EXACT_COLUMNS: usize = 4_000;

/// The largest relaxation, in columns of slots: half a second.
const RELAXED_COLUMNS: usize = 30_000;

/// The same over groups: larger instances have more jobs, and so more rows, too.
const GROUPED_COLUMNS: usize = 8_000;

/// What the search found.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub plan: Plan,
    /// What no allocation exceeds.
    pub bound: f64,
    pub stage: &'static str,
    pub stopped_by: &'static str,
}

/// The outcome of a search.
#[derive(Debug, Clone)]
pub(crate) enum Verdict {
    /// An allocation.
    Found(Box<Found>),
    /// There is none.
    Infeasible,
    /// None was found within the budget.
    Unknown,
}

/// (bound − objective) / |bound|.
pub(crate) fn gap(objective: f64, bound: f64) -> f64 {
    ((bound - objective) / bound.abs().max(1e-9)).max(0.0)
}

/// Searches for an allocation of `instance`.
pub(crate) fn search(instance: &Instance, budget: &Budget) -> Verdict {
    let mut search = Search {
        instance,
        budget,
        best: None,
        bound: f64::INFINITY,
        stopped_by: "stages",
    };
    match search.stages() {
        Some(()) => search.verdict(),
        None => Verdict::Infeasible,
    }
}

/// Whether the class relaxation has a solution: a cheap necessary condition.
pub(crate) fn may_be_feasible(instance: &Instance) -> bool {
    let groups = classes(instance);
    let model = TypeModel::new(instance, &groups, false);
    let limits = Limits {
        gap: 0.0,
        nodes: 0,
        seconds: None,
    };
    model.model.maximise(limits, None).ending != Ending::Infeasible
}

struct Search<'a> {
    instance: &'a Instance,
    budget: &'a Budget,
    best: Option<(Plan, f64, &'static str)>,
    bound: f64,
    stopped_by: &'static str,
}

impl Search<'_> {
    /// Runs the stages; `None` when P2 is proven to have no solution.
    fn stages(&mut self) -> Option<()> {
        if self.exact_columns() <= SMALL_COLUMNS {
            self.classes()?;
            if !self.good_enough() {
                self.exact()?;
            }
            return Some(());
        }
        self.relax(&classes(self.instance))?;
        let groups = self.relaxation_groups();
        let fractions = self.relax(&groups)?;
        let restarted = dive(self.instance, &groups, &fractions, self.limits(0.1));
        self.settle(&restarted);
        if self.best.is_none() {
            self.classes()?;
        }
        if !self.good_enough() && self.exact_columns() <= EXACT_COLUMNS {
            self.exact()?;
        }
        Some(())
    }

    /// Single nodes as long as the relaxation stays small enough, else groups of similar ones.
    fn relaxation_groups(&self) -> Groups {
        if self.exact_columns() <= RELAXED_COLUMNS {
            return single_nodes(self.instance);
        }
        similar(
            self.instance,
            GROUPED_COLUMNS / self.instance.types.len().max(1),
        )
    }

    fn limits(&self, seconds_part: f64) -> Limits {
        Limits {
            gap: self.budget.gap.max(0.0),
            nodes: self.budget.nodes.unwrap_or(DEFAULT_NODES),
            seconds: self.budget.seconds.map(|seconds| seconds * seconds_part),
        }
    }

    fn exact_columns(&self) -> usize {
        self.instance.types.len() * self.instance.rooms.len()
    }

    fn classes(&mut self) -> Option<()> {
        let groups = classes(self.instance);
        let limits = Limits {
            gap: OPTIMAL,
            ..self.limits(0.2)
        };
        let (outcome, plan) = self.run(&groups, limits, None);
        if outcome.ending == Ending::Infeasible {
            return None;
        }
        if let Some(plan) = plan {
            let placed = place(self.instance, &plan.restarted, &plan.counts);
            self.offer(placed, "classes");
        }
        Some(())
    }

    /// Solves the linear relaxation over `groups`: a bound, and how much of each job it restarts.
    fn relax(&mut self, groups: &Groups) -> Option<Vec<f64>> {
        let mut model = TypeModel::new(self.instance, groups, false);
        let outcome = std::mem::take(&mut model.model).maximise(self.limits(0.2), None);
        if outcome.ending == Ending::Infeasible {
            return None;
        }
        self.bound = self.bound.min(model.bound(outcome.bound));
        let columns = outcome.columns.unwrap_or_default();
        let value = |r: Option<usize>| r.and_then(|r| columns.get(r).copied()).unwrap_or(0.0);
        Some(model.restart.iter().map(|r| value(*r)).collect())
    }

    /// With the restarts decided: counts and slots.
    fn settle(&mut self, restarted: &[bool]) {
        let decided = self.instance.decided(restarted);
        if slot_columns(&decided) > RELAXED_COLUMNS {
            return self.settle_groups(&decided, restarted);
        }
        let Some(settling) = Settling::new(self.instance, restarted, self.limits(0.2)) else {
            return;
        };
        self.offer(settling.round(), "round");
        if !self.good_enough() {
            let limits = Limits {
                gap: self.budget.gap / 10.0,
                ..self.limits(0.3)
            };
            let start = self.best.as_ref().map(|(plan, _, _)| plan);
            let plan = settling.choose(limits, start);
            self.offer(plan, "choose");
        }
    }

    /// The same on a cluster too large for that: counts from groups of similar nodes, packed.
    fn settle_groups(&mut self, decided: &Instance, restarted: &[bool]) {
        let free = decided.jobs.iter().filter(|job| job.state == State::Free);
        let types: BTreeSet<usize> = free.map(|job| job.ty).collect();
        let groups = similar(decided, GROUPED_COLUMNS / types.len().max(1));
        let mut model = TypeModel::new(decided, &groups, false);
        let outcome = std::mem::take(&mut model.model).maximise(self.limits(0.2), None);
        if let Some(columns) = outcome.columns {
            let count = |fresh: &Option<usize>| fresh.map_or(0.0, |fresh| columns[fresh]);
            let targets: Vec<u32> = model
                .fresh
                .iter()
                .map(|fresh| count(fresh).round().max(0.0) as u32)
                .collect();
            self.offer(place(self.instance, restarted, &targets), "groups");
        }
    }

    fn exact(&mut self) -> Option<()> {
        let groups = single_nodes(self.instance);
        let start = self.best.as_ref().map(|(plan, _, _)| plan.clone());
        let mut limits = self.limits(0.7);
        if self.budget.nodes.is_none() && self.exact_columns() > SMALL_COLUMNS {
            limits.nodes = LARGE_NODES;
        }
        let (outcome, plan) = self.run(&groups, limits, start.as_ref());
        if outcome.ending == Ending::Infeasible {
            return None;
        }
        self.offer(plan, "exact");
        Some(())
    }

    fn run(
        &mut self,
        groups: &Groups,
        limits: Limits,
        start: Option<&Plan>,
    ) -> (Outcome, Option<Plan>) {
        let mut model = TypeModel::new(self.instance, groups, true);
        let start = start.map(|plan| model.columns(plan));
        let linear = std::mem::take(&mut model.model);
        let outcome = linear.maximise(limits, start.as_deref());
        self.bound = self.bound.min(model.bound(outcome.bound));
        self.stopped_by = match outcome.ending {
            Ending::Optimal => "gap",
            Ending::Limit => "nodes",
            Ending::Time => "time",
            Ending::Infeasible | Ending::Error => "stages",
        };
        let plan = model.plan(&outcome);
        (outcome, plan)
    }

    /// Takes a plan if it is feasible and better than the best so far.
    fn offer(&mut self, plan: Option<Plan>, stage: &'static str) {
        let Some(mut plan) = plan.filter(|plan| plan.is_feasible(self.instance)) else {
            return;
        };
        grow(self.instance, &mut plan);
        let objective = plan.objective(self.instance);
        if self
            .best
            .as_ref()
            .is_none_or(|(_, best, _)| objective > best + 1e-12)
        {
            self.best = Some((plan, objective, stage));
        }
    }

    fn good_enough(&self) -> bool {
        let best = self.best.as_ref();
        best.is_some_and(|(_, objective, _)| gap(*objective, self.bound) <= self.budget.gap)
    }

    fn verdict(self) -> Verdict {
        let Some((plan, objective, stage)) = self.best else {
            return Verdict::Unknown;
        };
        // A bound from floats may lie a hair below what was reached.
        let bound = self.bound.max(objective);
        let stopped_by = match gap(objective, bound) {
            gap if gap <= OPTIMAL => "optimal",
            gap if gap <= self.budget.gap => "gap",
            _ => self.stopped_by,
        };
        Verdict::Found(Box::new(Found {
            plan,
            bound,
            stage,
            stopped_by,
        }))
    }
}

/// How many slots an instance with decided restarts has: free types and nodes that they fit.
fn slot_columns(decided: &Instance) -> usize {
    let free = decided.jobs.iter().filter(|job| job.state == State::Free);
    let types: BTreeSet<usize> = free.map(|job| job.ty).collect();
    let nodes = |ty: &usize| {
        let demand = &decided.types[*ty].demand;
        decided
            .rooms
            .iter()
            .filter(|room| fits(demand, room) > 0)
            .count()
    };
    types.iter().map(nodes).sum()
}
