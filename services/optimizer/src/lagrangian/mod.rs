//! Lagrangian relaxation of P2, for clusters too large for the exact model. [`price_search`] drives the rest;
//! [`relaxation`] prices shared resources, so that nodes and jobs decide alone.
//!
//! - Prices: [`warm_start`], then [`dual_descent`] with [`step_size`]; both use [`r_algorithm`].
//! - Nodes: departing [`incumbent_blocks`] ([`node_subproblem`], [`subset_dp`] for many) and patterns for
//!   freed rooms ([`knapsack_table`] for all rooms, [`knapsack`] for one, [`shadow_prices`] as linear
//!   bounds).

pub(crate) mod dual_descent;
pub(crate) mod incumbent_blocks;
pub(crate) mod knapsack;
pub(crate) mod knapsack_table;
pub(crate) mod node_subproblem;
pub(crate) mod price_search;
pub(crate) mod r_algorithm;
pub(crate) mod relaxation;
pub(crate) mod shadow_prices;
pub(crate) mod step_size;
pub(crate) mod subset_dp;
pub(crate) mod warm_start;
