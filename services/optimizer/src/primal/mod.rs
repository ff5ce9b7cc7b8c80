//! Primal heuristics: they find allocations, from nothing or from the relaxation's prices, and improve the
//! chosen one.
//!
//! - [`min_restart_heuristic`]: new jobs next to running ones, with the fewest restarts;
//! - [`restart_local_search`]: restarts at given prices; then [`packing`] of the new containers:
//!   [`price_rounds`] between jobs and nodes, [`pattern_selection`] per node, [`ruin_and_recreate`];
//! - [`best_fit`]: counts into rooms;
//! - [`slots_to_jobs`]: which job's containers take which slots;
//! - [`restart_pruning`]: undoes restarts that win less than the proven gap;
//! - [`in_place`], [`gathering`], [`preferences`] and [`role_affinity`]: exchange places that P2 does not
//!   tell apart.

pub(crate) mod best_fit;
pub(crate) mod gathering;
pub(crate) mod in_place;
pub(crate) mod min_restart_heuristic;
pub(crate) mod packing;
pub(crate) mod pattern_selection;
pub(crate) mod preferences;
pub(crate) mod price_rounds;
pub(crate) mod restart_local_search;
pub(crate) mod restart_pruning;
pub(crate) mod role_affinity;
pub(crate) mod ruin_and_recreate;
pub(crate) mod slots_to_jobs;
