//! Answers about a decision.
//!
//! - [`waiting`]: why a job waits: the short resource or the bound.
//! - [`conflict`]: the constraints that keep a job from more containers.
//! - [`forced`]: the cost of forcing a count for a job.

pub mod conflict;
pub mod forced;
pub(crate) mod waiting;
