//! Which waiting jobs take part in a decision.
//!
//! 1. [`prefix`]: the longest prefix of the queue for which P2 has a solution, then the whole decision.
//! 2. [`backfill`]: who may start behind the job that ends the prefix.
//! 3. [`urgent`], [`preempt`]: services, notebooks and classes that preempt come before that; the bounds
//!    are loosened step by step until there is room for them.

pub(crate) mod backfill;
pub(crate) mod preempt;
pub(crate) mod prefix;
pub(crate) mod urgent;
