//! Wraps HiGHS. One thread, a fixed seed and no time limit make runs deterministic.

use highs::{HighsModelStatus, HighsSolutionStatus, RowProblem, Sense};

pub(crate) type Column = usize;

/// A linear model to maximise.
#[derive(Debug, Default)]
pub(crate) struct Model {
    problem: RowProblem,
    columns: Vec<highs::Col>,
    integers: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub gap: f64,
    pub nodes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Optimal,
    Infeasible,
    Limit,
    Error,
}

#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub ending: Ending,
    pub columns: Option<Vec<f64>>,
    pub bound: f64,
    /// Simplex iterations of all models of the run.
    pub iterations: u64,
}

impl Outcome {
    pub const fn without_solution(ending: Ending) -> Self {
        Self {
            ending,
            columns: None,
            bound: f64::INFINITY,
            iterations: 0,
        }
    }
}

impl Model {
    pub fn column(&mut self, cost: f64, lower: f64, upper: f64, integer: bool) -> Column {
        let column = if integer {
            self.integers = true;
            self.problem.add_integer_column(cost, lower..=upper)
        } else {
            self.problem.add_column(cost, lower..=upper)
        };
        self.columns.push(column);
        self.columns.len() - 1
    }

    /// Adds a row `lower ≤ Σ factor · column ≤ upper`.
    pub fn row(&mut self, lower: f64, upper: f64, terms: &[(Column, f64)]) {
        let terms: Vec<_> = terms
            .iter()
            .map(|(c, factor)| (self.columns[*c], *factor))
            .collect();
        self.problem.add_row(lower..=upper, terms);
    }

    pub fn width(&self) -> usize {
        self.columns.len()
    }

    /// `start` is a solution to begin with.
    pub fn maximise(self, limits: &Limits, start: Option<&[f64]>) -> Outcome {
        let integers = self.integers;
        self.run(limits, start, integers)
            .unwrap_or(Outcome::without_solution(Ending::Error))
    }

    fn run(self, limits: &Limits, start: Option<&[f64]>, integers: bool) -> Option<Outcome> {
        let mut model = self.problem.try_optimise(Sense::Maximise).ok()?;
        model.try_set_option("output_flag", false).ok()?;
        model.try_set_option("threads", 1).ok()?;
        model.try_set_option("parallel", "off").ok()?;
        model.try_set_option("random_seed", 0).ok()?;
        if !integers {
            // The relaxations have many more columns than rows: primal simplex is twice as fast as dual
            // simplex.
            model.try_set_option("simplex_strategy", 4).ok()?;
        } else {
            let nodes = i32::try_from(limits.nodes).unwrap_or(i32::MAX);
            model.try_set_option("mip_max_nodes", nodes).ok()?;
            model
                .try_set_option("mip_rel_gap", limits.gap.max(0.0))
                .ok()?;
            model.try_set_option("mip_abs_gap", 1e-9).ok()?;
        }
        if let Some(start) = start {
            model.try_set_solution(Some(start), None, None, None).ok()?;
        }
        let solved = model.try_solve().ok()?;
        let ending = ending(solved.status());
        // An empty model, or one that presolve proves infeasible, has no valid info: reading it panics.
        if solved.status() == HighsModelStatus::ModelEmpty {
            return Some(Outcome {
                ending,
                columns: Some(Vec::new()),
                bound: 0.0,
                iterations: 0,
            });
        }
        let found = ending != Ending::Infeasible
            && ending != Ending::Error
            && solved.primal_solution_status() == HighsSolutionStatus::Feasible;
        let bound = if integers {
            solved
                .double_info_value(c"mip_dual_bound")
                .unwrap_or(f64::INFINITY)
        } else if ending == Ending::Optimal {
            solved.objective_value()
        } else {
            f64::INFINITY
        };
        let solution = solved.get_solution();
        Some(Outcome {
            ending,
            columns: (found && ending != Ending::Infeasible).then(|| solution.columns().to_vec()),
            bound: if bound.is_finite() {
                bound
            } else {
                f64::INFINITY
            },
            iterations: u64::try_from(solved.simplex_iteration_count()).unwrap_or(0),
        })
    }
}

fn ending(status: HighsModelStatus) -> Ending {
    match status {
        HighsModelStatus::Optimal | HighsModelStatus::ModelEmpty => Ending::Optimal,
        HighsModelStatus::Infeasible | HighsModelStatus::UnboundedOrInfeasible => {
            Ending::Infeasible
        }
        HighsModelStatus::ReachedIterationLimit
        | HighsModelStatus::ReachedSolutionLimit
        | HighsModelStatus::ObjectiveBound
        | HighsModelStatus::ObjectiveTarget => Ending::Limit,
        _ => Ending::Error,
    }
}

pub(crate) fn version() -> String {
    format!(
        "{}.{}.{}",
        highs_sys::HIGHS_VERSION_MAJOR,
        highs_sys::HIGHS_VERSION_MINOR,
        highs_sys::HIGHS_VERSION_PATCH
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_knapsack_and_an_impossible_one() {
        let limits = Limits {
            gap: 0.0,
            nodes: 1000,
        };
        let mut model = Model::default();
        let a = model.column(5.0, 0.0, 3.0, true);
        let b = model.column(4.0, 0.0, 3.0, true);
        model.row(f64::NEG_INFINITY, 10.0, &[(a, 4.0), (b, 3.0)]);
        let outcome = model.maximise(&limits, None);
        assert_eq!(outcome.ending, Ending::Optimal);
        assert!((outcome.bound - 13.0).abs() < 1e-6);
        let mut model = Model::default();
        let a = model.column(1.0, 0.0, 1.0, true);
        model.row(2.0, f64::INFINITY, &[(a, 1.0)]);
        assert_eq!(model.maximise(&limits, None).ending, Ending::Infeasible);
    }
}
