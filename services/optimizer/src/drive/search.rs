//! The state of a search: the best candidate, the proven bound, and the limits.

use dormouse_messages::events::StoppedBy;

use crate::drive::work::Work;
use crate::milp::highs::Limits;
use crate::model::candidate::Candidate;
use crate::model::instance::Instance;
use crate::primal::best_fit::grow;
use crate::primal::min_restart_heuristic::min_restart_heuristic;
use crate::problem::Budget;

/// Below one container's worth on some thousand nodes, above rounding errors.
pub(crate) const OPTIMAL: f64 = 1e-6;
const DEFAULT_NODES: u64 = 2_000;

#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub candidate: Candidate,
    pub bound: f64,
    pub stage: &'static str,
    /// Optimality, the requested gap, or neither.
    pub proven: StoppedBy,
}

#[derive(Debug, Clone)]
pub(crate) enum Verdict {
    Found(Box<Found>),
    Infeasible,
    Unknown,
}

pub(crate) fn gap(objective: f64, bound: f64) -> f64 {
    ((bound - objective) / bound.abs().max(1e-9)).max(0.0)
}

/// One search on an instance.
pub(crate) struct Search<'a> {
    pub instance: &'a Instance,
    pub budget: &'a Budget,
    pub work: &'a Work,
    /// Candidate, objective and stage.
    pub best: Option<(Candidate, f64, &'static str)>,
    bound: f64,
}

impl<'a> Search<'a> {
    pub fn new(instance: &'a Instance, budget: &'a Budget, work: &'a Work) -> Self {
        Self {
            instance,
            budget,
            work,
            best: None,
            bound: f64::INFINITY,
        }
    }

    pub fn limits(&self) -> Limits {
        Limits {
            gap: self.budget.gap.max(0.0),
            nodes: self.budget.nodes.unwrap_or(DEFAULT_NODES),
        }
    }

    pub fn without_search(&mut self) {
        self.offer(Some(Candidate::incumbent(self.instance)), "standing");
        self.offer(min_restart_heuristic(self.instance), "beside");
    }

    pub fn bounded(&mut self, bound: f64) {
        self.bound = self.bound.min(bound);
    }

    pub fn offer(&mut self, candidate: Option<Candidate>, stage: &'static str) {
        let Some(mut candidate) =
            candidate.filter(|candidate| candidate.is_feasible(self.instance))
        else {
            return;
        };
        grow(self.instance, &mut candidate);
        let objective = candidate.objective(self.instance);
        if self
            .best
            .as_ref()
            .is_none_or(|(_, best, _)| objective > best + 1e-12)
        {
            self.best = Some((candidate, objective, stage));
        }
    }

    pub fn has_candidate(&self) -> bool {
        self.best.is_some()
    }

    pub fn would_do(&self, objective: f64) -> bool {
        gap(objective, self.bound) <= self.budget.gap
    }

    pub fn good_enough(&self) -> bool {
        self.is_within(self.budget.gap)
    }

    pub fn is_within(&self, wanted: f64) -> bool {
        let best = self.best.as_ref();
        best.is_some_and(|(_, objective, _)| gap(*objective, self.bound) <= wanted)
    }

    pub fn verdict(self) -> Verdict {
        let Some((candidate, objective, stage)) = self.best else {
            return Verdict::Unknown;
        };
        // Rounding may push the bound slightly below the objective.
        let bound = self.bound.max(objective);
        let proven = match gap(objective, bound) {
            gap if gap <= OPTIMAL => StoppedBy::Optimal,
            gap if gap <= self.budget.gap => StoppedBy::Gap,
            _ => StoppedBy::Stages,
        };
        Verdict::Found(Box::new(Found {
            candidate,
            bound,
            stage,
            proven,
        }))
    }
}
