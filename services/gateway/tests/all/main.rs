//! The tests of the gateway.

mod access;
mod balance;
mod common;
mod digest;
mod drain;
mod draining;
mod hostile;
mod log;
mod passing;
mod routes;
