//! The machine around every decider, without input and output.
//!
//! A service folds the log and decides on what it has folded. When it may do so, and what follows
//! from each answer of the broker, is the same for every service and is decided here, by a state
//! machine that reads no clock, no broker and no disk:
//!
//! ```text
//!  inputs                                             effects
//!  followed  a part of the log, in order    ┐      ┌  Append   events, under the fence
//!  answered  what became of an append       │      │  AskHead  how far does the log reach?
//!  head      how far the log reaches        │      │  Decide   a slow decision, on another thread
//!  made      a slow decision                ├ Shell┤  WakeAt   look again at that time
//!  lease     gained or lost                 │      │  Pause    look again after that long
//!  woken, resumed, observed, saved, stop,   │      │
//!  host_shows, recall (see `host`)          ┘      └  Save, Keep, End
//! ```
//!
//! 1. Every input only notes what has happened.
//! 2. [`Shell::advance`] takes the next step, if there is one; the clock is given to it.
//! 3. [`Shell::take_effects`] hands out what is to be done. Each effect is answered by one input.
//!
//! The invariant it protects: nothing is appended before all that the service itself has appended
//! is folded, and after any doubt or conflict, the whole log as it then was. That a stale copy
//! cannot append all the same is the broker's: the fence ([`Append::expected`]). Nothing is decided on a
//! fold that contradicts itself ([`Halt::Contradiction`]).
//!
//! It leaves to its driver: encoding, spans, the lease itself, timers, threads, files.

pub mod answers;
mod core;
mod followed;
mod host;
pub mod intake;
mod machine;
pub mod pace;
pub mod settle;
#[cfg(test)]
mod tests;

pub use core::{Halt, Made, Snapshot, UnknownVersion, state_hash};
pub use followed::Followed;
pub use host::{HostTime, Mark};
pub use machine::{
    Append, Draft, Effect, Failure, Folded, Observation, Outcome, Shell, Task, hurried,
};
