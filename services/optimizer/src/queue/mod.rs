//! Chooses the waiting jobs that take part in a decision.
//!
//! - [`participants`]: the jobs that take part, and their instances.
//! - [`dorm_driver`]: the longest feasible prefix of the queue, then the whole decision.
//! - [`backfill`]: jobs behind a blocked head.
//! - [`urgent`], [`preempt`]: services, notebooks and preempting classes come first.

pub(crate) mod backfill;
pub(crate) mod dorm_driver;
pub(crate) mod participants;
pub(crate) mod preempt;
pub(crate) mod urgent;
