//! Chooses the waiting jobs that take part in a decision.
//!
//! 1. [`prefix`]: the longest prefix of the queue for which P2 is feasible, then the whole decision.
//! 2. [`backfill`]: jobs behind the blocked head that ends the prefix.
//! 3. [`urgent`], [`preempt`]: services, notebooks and preempting classes come first; bounds are loosened
//!    step by step until they fit.

pub(crate) mod backfill;
pub(crate) mod preempt;
pub(crate) mod prefix;
pub(crate) mod urgent;
