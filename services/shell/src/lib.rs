//! The state machine of a service, without clock, broker or disk.
//!
//! 1. Inputs of [`Shell`] note events.
//! 2. [`Shell::advance`] takes the next step.
//! 3. [`Shell::take_effects`] returns [`Effect`]s; the driver answers each by one input, and owns encoding,
//!    spans, lease, timers, threads, files.
//!
//! Invariant: no append before all own appends, and after a doubt the whole log, are folded. The fence
//! ([`Append::expected`]) stops stale copies, [`Halt::Contradiction`] a contradictory fold.
//!
//! `machine`, `core`, `host`: the machine. [`append_resolver`]: appends without a fold. [`intake`], [`batch_limiter`]:
//! submissions. [`broker_errors`]: broker errors.

pub mod append_resolver;
pub mod batch_limiter;
pub mod broker_errors;
mod core;
mod host;
pub mod intake;
mod log_item;
mod machine;
#[cfg(test)]
mod tests;

pub use core::{Halt, Made, Snapshot, UnknownVersion, state_hash};
pub use host::{ClockAnchor, HostTime};
pub use log_item::LogItem;
pub use machine::{
    Append, Draft, Effect, Failure, Folded, Observation, Outcome, Shell, Task, hurried,
};
