//! Read models of the log: pure folds, and the queries over them. Nothing here reads a clock: times are the
//! log's, and `now` is the caller's.
//!
//! - [`ReadModel`] (`read_model.rs`): the fold of everything below
//! - [`jobs`], [`nodes`], [`services`], [`notebooks`], [`keys`], [`cluster`]: the present state
//! - [`timelines`], [`fairness`], [`forecasts`], [`steps`]: the past
//! - [`queries`]: answers; [`status`]: tenants' view of the log
//!
//! The deciders' own folds are in `dormouse-state`.

pub mod cluster;
pub mod fairness;
pub mod forecasts;
pub mod jobs;
pub mod keys;
pub mod nodes;
pub mod notebooks;
#[cfg(test)]
mod property;
pub mod queries;
mod read_model;
pub mod services;
pub mod status;
pub mod steps;
pub mod timelines;

pub use read_model::ReadModel;
