//! Decides how many containers each job has: DRF shares, then P2.
//!
//! [`solve`] is a pure function of a [`Problem`]; it never fails, because keeping what is there
//! is always an answer. The steps:
//!
//! 1. fair shares by divisible progressive filling ([`drf::fill`]);
//! 2. admission: what runs, then the longest prefix of the queue that P2 has a solution for;
//! 3. P2 (Dorm, Sun et al. 2017, section IV) in the type model: counts per job, restarts within
//!    θ2, unfairness within θ1, and slots per node and shape, so that the counts are proven to fit;
//! 4. slots to jobs, in place as far as possible; restarts worth less than the proven gap undone;
//! 5. who waits, and why.
//!
//! The invariant: [`check`] accepts every solution. Which processes run in the slots, their ranks
//! and GPUs are left to the placer.

pub mod check;
pub mod decimal;
pub mod document;
pub mod drf;
pub mod problem;
mod scaled;
pub mod solution;

mod candidate;
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
