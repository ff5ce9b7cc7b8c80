//! Decides the rank, port and devices of each container, and when lost nodes are members again.
//!
//! `decide` is the decider. `assign` checks an allocation against the nodes and keeps what stays, with
//! `wanted`, `free_capacity`, `elastic` and `gpus`; `ports`, `parts`, `quarantine` and `upgrade` do the rest. The optimizer chooses the nodes, the
//! checkpointer starts.

mod assign;
mod decide;
mod elastic;
mod free_capacity;
mod gpus;
mod parts;
mod ports;
mod quarantine;
mod upgrade;
mod wanted;

pub use decide::Placer;
