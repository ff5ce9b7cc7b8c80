//! Decides how many containers each job has: DRF shares, then P2.
//!
//! [`solve()`] is a pure function of a [`Problem`]; it never fails, because keeping what is there
//! is always an answer. For the policy `dorm`:
//!
//! 1. fair shares by divisible progressive filling ([`drf::fill()`]);
//! 2. who takes part: what runs, then the longest prefix of the queue that P2 has a solution for (`queue`);
//! 3. P2 (Dorm, Sun et al. 2017, section IV): counts per job, restarts within θ2, unfairness within θ1, and
//!    slots per node and type, so that the counts are proven to fit. An `instance` is solved stage by stage
//!    (`solve`): `independent_bound`; on small clusters `milp`; on large ones `lagrangian`, whose
//!    prices guide the heuristics of `primal`. A `candidate` counts if it keeps every constraint;
//! 4. slots to jobs, in place as far as possible; restarts worth less than the proven gap undone (`primal`);
//! 5. who waits, and why (`explain`).
//!
//! The formulation, and what each stage guarantees, are in `docs/optimizer.md`. The policies `drf` and
//! `static` are `offers` and `fixed`.
//!
//! The invariant: [`check()`] accepts every solution. Which processes run in the slots, their ranks
//! and GPUs are left to the placer.

pub mod check;
pub mod decimal;
pub mod document;
pub mod drf;
pub mod problem;
mod scaled;
pub mod solution;

mod candidate;
mod deadline;
mod decide;
mod explain;
mod fixed;
mod independent_bound;
mod instance;
mod lagrangian;
mod milp;
mod offers;
mod primal;
mod queue;
mod recheck;
mod report;
mod solve;
mod state;
mod tenants;

pub use check::{Violation, check};
pub use decide::{Made, Optimizer};
pub use document::{DocumentError, solve_document};
pub use explain::conflict::{Conflict, Group, conflict};
pub use explain::forced::{givers, may_have};
pub use problem::Problem;
pub use solution::Solution;
pub use state::problem_of;

use problem::Allocation;

/// Decides an allocation. Never fails: what is there stays when nothing better is found.
#[must_use]
pub fn solve(problem: &Problem) -> Solution {
    match problem.policy.allocation {
        Allocation::Dorm => queue::prefix::solve(problem),
        Allocation::Drf => offers::solve(problem),
        Allocation::Static => fixed::solve(problem),
    }
}
