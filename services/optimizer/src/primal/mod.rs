//! Candidates: restarts, counts and places.
//!
//! - [`best_fit`]: counts into rooms;
//! - [`min_restart_heuristic`]: new jobs next to running ones;
//! - [`restart_local_search`]: restarts at given prices;
//! - [`packing`]: containers of nodes for given restarts, by the next two;
//! - [`price_rounds`]: prices between jobs and nodes;
//! - [`pattern_selection`]: one pattern for each node;
//! - [`slots_to_jobs`]: containers of types and nodes to jobs;
//! - [`restart_pruning`]: undoes restarts within the gap;
//! - [`in_place`], [`gathering`], [`preferences`], [`role_affinity`]: exchanges of places that are equal to
//!   P2.

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
pub(crate) mod slots_to_jobs;
