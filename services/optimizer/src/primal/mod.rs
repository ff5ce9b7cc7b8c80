//! Primal heuristics: allocations, from nothing or from the prices of the relaxation, and what is done
//! to the one that is chosen.
//!
//! Found by
//! - [`min_restart_heuristic`]: the new jobs beside what runs, with the fewest restarts that make room;
//! - [`restart_local_search`]: which jobs are restarted, at given prices; then their containers and the
//!   new ones by [`packing`]: [`price_rounds`] between jobs and nodes, [`pattern_selection`] of each node,
//!   [`ruin_and_recreate`];
//! - [`best_fit`]: counts into rooms.
//!
//! Then [`slots_to_jobs`] names whose containers take which slots, and
//! - [`restart_pruning`] takes back restarts that win less than the proven gap;
//! - [`in_place`], [`gathering`], [`preferences`] and [`role_affinity`] exchange places that P2 does not
//!   tell apart, for what jobs are resized in place, cross nodes, have wishes or roles.

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
