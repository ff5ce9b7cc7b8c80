//! Read models of the log: pure folds, and the queries over them.
//!
//! [`ReadModel`] folds the whole log into what people ask for: the jobs ([`jobs`]), the nodes
//! ([`nodes`]), what was when ([`timelines`], a tenant at a
//! time [`fairness`]), how services are ([`services`]), the cluster at a glance ([`cluster`]) and who
//! has keys ([`keys`]).
//! [`queries`] answers from it. [`status`] says what tenants are shown of the log. The deciders' own folds are in `dormouse-state`. Nothing here reads a
//! clock: times are the broker's, and `now` is the caller's.

pub mod cluster;
pub mod fairness;
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
