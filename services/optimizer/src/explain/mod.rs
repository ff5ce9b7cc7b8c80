//! Answers about a decision.
//!
//! - [`waiting`]: why a job waits: which resource is short by how much, or which bound.
//! - [`conflict`]: which constraints stand against a job having more.
//! - [`forced`]: what it would take that a job has so many containers.

pub mod conflict;
pub mod forced;
pub(crate) mod waiting;
