//! Lagrangian relaxation of P2, for clusters on which the exact model is too large.
//!
//! [`search`] drives it. The relaxation gives a price (a multiplier) to what the jobs share, and each
//! node and each job then decides alone ([`relaxation`]); any prices bound P2 from above.
//!
//! - Prices: begun with on the classes of equal nodes ([`warm_start`]), then improved step by step
//!   ([`dual_descent`], with [`step_size`]); both by Shor's [`r_algorithm`].
//! - A node: which of its [`incumbent_blocks`] leave it ([`node_subproblem`]; [`subset_dp`] where they are
//!   many), and what is put into the room that is free then ([`knapsack_table`] for all rooms at once,
//!   [`knapsack`] for one; [`shadow_prices`] bound both linearly).

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
