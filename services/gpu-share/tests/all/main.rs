//! The token scheduler on a virtual clock, and its server with real sockets.

mod histories;
mod hostile;
mod model;
mod passes;
mod shares;
