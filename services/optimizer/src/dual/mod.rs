//! The Lagrangian relaxation of P2, for clusters too large for the exact model: bounds and prices.
//!
//! - [`relaxation`]: prices of shared resources, so that nodes and jobs decide alone;
//! - [`warm_start`]: first prices, from classes of nodes;
//! - [`dual_descent`]: improves the prices step by step;
//! - [`r_algorithm`]: Shor's method, for both;
//! - [`incumbent_blocks`]: what running jobs hold on nodes;
//! - [`node_subproblem`]: the blocks that leave one node;
//! - [`subset_dp`]: the same for nodes with many blocks;
//! - [`shadow_prices`]: linear bounds on the worth of a room.

pub(crate) mod dual_descent;
pub(crate) mod incumbent_blocks;
pub(crate) mod node_subproblem;
pub(crate) mod r_algorithm;
pub(crate) mod relaxation;
pub(crate) mod shadow_prices;
pub(crate) mod subset_dp;
pub(crate) mod warm_start;
