//! Decides which job's containers take which slots, and when lost nodes are members again.
//!
//! `decide` is the decider. `assign` divides slots among jobs with `packing`, `distance`, `liking`, `elastic`
//! and `gpus`; `ports`, `parts` and `quarantine` do the rest. The optimizer decides counts, the checkpointer
//! starts.

mod assign;
mod decide;
mod distance;
mod elastic;
mod gpus;
mod liking;
mod packing;
mod parts;
mod ports;
mod quarantine;

pub use decide::Placer;
