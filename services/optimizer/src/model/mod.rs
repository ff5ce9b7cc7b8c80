//! P2 by index, below every search.
//!
//! - [`cluster`]: the nodes, and fair shares on them;
//! - [`columns`]: eligibility, exclusivity and other columns behind the resources;
//! - [`eligibility`]: the nodes that one decision leaves to a job;
//! - [`devices`]: fractions of GPUs;
//! - [`topology`]: racks and zones;
//! - [`room`]: arithmetic of rooms and demands;
//! - [`instance`]: the participating jobs, their types and bounds;
//! - [`candidate`]: an allocation of an instance;
//! - [`node_classes`]: groups of equal nodes;
//! - [`room_grid`]: the worth of every room at given prices.

pub(crate) mod candidate;
pub(crate) mod cluster;
pub(crate) mod columns;
pub(crate) mod devices;
pub(crate) mod eligibility;
pub(crate) mod instance;
pub(crate) mod node_classes;
pub(crate) mod room;
pub(crate) mod room_grid;
#[cfg(test)]
pub(crate) mod samples;
pub(crate) mod topology;
