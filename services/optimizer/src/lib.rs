//! Decides how many containers each job has on each node: DRF shares, then P2.
//!
//! [`solve()`] is a pure function of a [`Problem`] and never fails: keeping the present allocation is always
//! an answer. The policy `dorm` consists of floors; each uses only lower ones:
//!
//! - `explain`: why a job has no more;
//! - `drive`: the participants, then the stages that search P2 (Dorm, Sun et al. 2017, section IV), until the
//!   gap is small enough;
//! - `primal`: candidates;
//! - `dual`: bounds and prices on large clusters;
//! - `milp`: the exact model on small ones;
//! - `model`: instances of P2 by index;
//! - [`drf`]: fair shares by divisible progressive filling.
//!
//! `docs/optimizer.md` has the formulation and the guarantees. The policies `drf` and `static` are `drf_policy`
//! and `static_policy`. `decide` folds the log and turns solutions into events. Invariant: [`check()`] accepts
//! every solution. The placer assigns ranks, ports and GPUs.

pub mod check;
pub mod decimal;
pub mod document;
pub mod drf;
pub mod problem;
mod service_scaling;
pub mod solution;

mod decide;
mod drf_policy;
mod drive;
mod dual;
mod explain;
mod milp;
mod model;
mod present;
mod primal;
mod problem_builder;
mod recorded;
mod report;
mod speeds;
mod static_policy;
mod tenants;
pub mod useful;

pub use check::{Violation, check};
pub use decide::{Made, Optimizer};
pub use document::{DocumentError, solve_document};
pub use explain::conflict::{Conflict, Group, conflict};
pub use explain::forced::{givers, may_have};
pub use problem::Problem;
pub use problem_builder::problem_of;
pub use solution::Solution;
pub use speeds::unknown_speed;

use problem::Allocation;

/// Decides an allocation. Never fails: without a better answer the present allocation stays.
#[must_use]
pub fn solve(problem: &Problem) -> Solution {
    match problem.policy.allocation {
        Allocation::Dorm => drive::dorm_driver::solve(problem),
        Allocation::Drf => drf_policy::solve(problem),
        Allocation::Static => static_policy::solve(problem),
    }
}
