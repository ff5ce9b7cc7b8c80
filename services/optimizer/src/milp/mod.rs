//! Mixed-integer programming: P2 as a model of types and groups of nodes, solved by HiGHS.
//!
//! - [`node_classes`]: which nodes are one group. Equal nodes together are a relaxation, each node on
//!   its own is P2.
//! - [`type_milp`]: the model's rows and columns, and candidates from and to them.
//! - [`highs`]: one deterministic run of the solver within a deadline.

pub(crate) mod highs;
pub(crate) mod node_classes;
pub(crate) mod type_milp;
