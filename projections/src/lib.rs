//! Read models of the log: pure folds, and the queries over them.

pub mod shared;
