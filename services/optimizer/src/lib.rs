//! Decides how many containers each job has: DRF shares, then P2.
//!
//! [`solve()`] is a pure function of a [`Problem`] and never fails: keeping the present allocation is always
//! an answer. The policy `dorm`:
//!
//! 1. fair shares by divisible progressive filling ([`drf::fill()`]);
//! 2. participants: running jobs, then the longest feasible prefix of the queue (`queue`);
//! 3. P2 (Dorm, Sun et al. 2017, section IV), in stages (`solve`): `independent_bound`, then `milp` on small
//!    clusters, or `lagrangian` prices that guide the heuristics of `primal` on large ones. A `candidate`
//!    counts if it keeps every constraint of an `instance`;
//! 4. slots to jobs, in place as far as possible; restarts worth less than the proven gap are undone
//!    (`primal`);
//! 5. reasons for waiting (`explain`).
//!
//! `docs/optimizer.md` has the formulation and the guarantees. The policies `drf` and `static` are `drf_policy`
//! and `static_policy`. Invariant: [`check()`] accepts every solution. The placer assigns processes, ranks and GPUs
//! to the slots.

pub mod check;
pub mod decimal;
pub mod document;
pub mod drf;
pub mod problem;
mod service_scaling;
pub mod solution;

mod candidate;
mod deadline;
mod decide;
mod drf_policy;
mod explain;
mod independent_bound;
mod instance;
mod lagrangian;
mod milp;
mod present;
mod primal;
mod problem_builder;
mod queue;
mod recheck;
mod report;
mod search;
mod solve;
mod static_policy;
mod tenants;

pub use check::{Violation, check};
pub use decide::{Made, Optimizer};
pub use document::{DocumentError, solve_document};
pub use explain::conflict::{Conflict, Group, conflict};
pub use explain::forced::{givers, may_have};
pub use problem::Problem;
pub use problem_builder::problem_of;
pub use solution::Solution;

use problem::Allocation;

/// Decides an allocation. Never fails: without a better answer the present allocation stays.
#[must_use]
pub fn solve(problem: &Problem) -> Solution {
    match problem.policy.allocation {
        Allocation::Dorm => queue::dorm_driver::solve(problem),
        Allocation::Drf => drf_policy::solve(problem),
        Allocation::Static => static_policy::solve(problem),
    }
}
