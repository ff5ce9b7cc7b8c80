//! Decides which job's containers take which slots, and which lost nodes are members again.

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
