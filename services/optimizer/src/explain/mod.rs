//! Answers about a decision.
//!
//! - [`conflict`]: the constraints that keep a job from more containers;
//! - [`forced`]: the cost of forcing a count for a job.

pub mod conflict;
pub mod forced;
