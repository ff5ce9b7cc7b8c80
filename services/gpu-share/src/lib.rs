//! Fractions of a GPU: one container at a time holds a GPU's *token* and may launch work on it.
//!
//! | module | what it is |
//! |---|---|
//! | [`scheduler`] | who holds the token: pure, without clock, threads or sockets |
//! | [`page`] | the memory that a container's processes share with the scheduler |
//! | [`wire`] | what they say to each other: a hello, a wish, a grant, its return |
//! | [`server`] | sockets, descriptors and timers around the scheduler |
//!
//! The library that is loaded before a program (`preload/`) is the other end of page and wire.

pub mod page;
pub mod passes;
pub mod scheduler;
pub mod server;
pub mod wire;
