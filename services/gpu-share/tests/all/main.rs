//! The token scheduler on a virtual clock, and its server with real sockets.

mod histories;
mod model;
mod passes;
mod shares;
