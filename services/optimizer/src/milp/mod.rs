//! Mixed-integer programming: P2 over types and groups of nodes, solved by HiGHS. Groups of equal nodes give
//! a relaxation, single nodes P2.
//!
//! - [`type_milp`]: rows and columns of the model, and conversion from and to candidates;
//! - [`highs`]: one deterministic run of the solver within limits.

pub(crate) mod highs;
pub(crate) mod type_milp;
