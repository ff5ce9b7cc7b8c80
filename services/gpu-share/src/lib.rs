//! Fractions of a GPU: one container at a time holds a GPU's *token* and may launch work.
//!
//! | module | purpose |
//! |---|---|
//! | [`scheduler`] | the token's holder: pure, without clock, threads or sockets |
//! | [`page`] | memory shared by a container's processes and the scheduler |
//! | [`passes`] | launches through an open gate without its lock |
//! | [`wire`] | the messages |
//! | [`server`] | sockets, descriptors and timers around the scheduler |
//!
//! The preloaded library (`preload/`) is the other end of page and wire.

pub mod page;
pub mod passes;
pub mod scheduler;
pub mod server;
pub mod wire;
