//! Primal heuristics.
//!
//! - [`min_restart_heuristic`]: new jobs next to running ones;
//! - [`restart_local_search`]: restarts at given prices; then [`packing`] by [`price_rounds`],
//!   [`pattern_selection`] and [`ruin_and_recreate`];
//! - [`best_fit`]: counts into rooms;
//! - [`slots_to_jobs`]: slots to jobs, near each other by
//!   [`topology`](crate::instance::topology);
//! - [`restart_pruning`]: undoes restarts within the gap;
//! - [`in_place`], [`gathering`], [`preferences`] and [`role_affinity`]: exchanges of places that are equal
//!   to P2.

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
