//! Decides the rank, port and devices of each container, and when lost nodes are members again.
//!
//! `decide` is the decider. `assign` checks an allocation against the nodes and keeps what stays, with
//! `elastic` and `gpus`; `ports`, `parts` and `quarantine` do the rest. The optimizer chooses the nodes, the
//! checkpointer starts.

mod assign;
mod decide;
mod elastic;
mod gpus;
mod parts;
mod ports;
mod quarantine;

pub use decide::Placer;
