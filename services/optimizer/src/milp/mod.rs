//! Mixed-integer programming: P2 over types and groups of nodes, solved by HiGHS.
//!
//! - [`node_classes`]: the groups of nodes. Groups of equal nodes give a relaxation, single nodes P2.
//! - [`type_milp`]: rows and columns of the model, and conversion from and to candidates.
//! - [`highs`]: one deterministic run of the solver within a deadline.

pub(crate) mod highs;
pub(crate) mod node_classes;
pub(crate) mod type_milp;
