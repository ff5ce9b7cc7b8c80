//! Lagrangian relaxation of P2, for clusters too large for the exact model.
//!
//! [`search`] drives the rest. [`relaxation`] prices the shared resources, so that each node and each job
//! decides alone; any prices bound P2 from above.
//!
//! - Prices: [`warm_start`] on classes of equal nodes, then [`dual_descent`] with [`step_size`]; both use
//!   Shor's [`r_algorithm`].
//! - A node: the departing [`incumbent_blocks`] ([`node_subproblem`]; [`subset_dp`] for many blocks) and the
//!   pattern in the freed room ([`knapsack_table`] for all rooms at once, [`knapsack`] for one;
//!   [`shadow_prices`] bound both linearly).

pub(crate) mod dual_descent;
pub(crate) mod incumbent_blocks;
pub(crate) mod knapsack;
pub(crate) mod knapsack_table;
pub(crate) mod node_subproblem;
pub(crate) mod r_algorithm;
pub(crate) mod relaxation;
pub(crate) mod search;
pub(crate) mod shadow_prices;
pub(crate) mod step_size;
pub(crate) mod subset_dp;
pub(crate) mod warm_start;
