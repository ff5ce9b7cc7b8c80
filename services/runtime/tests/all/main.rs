//! All integration tests of this crate in one binary: a module per file.

mod accounts;
mod common;
mod drills;
mod feed;
mod ingress;
mod keys;
mod lease;
mod limits;
mod log;
mod refusal;
mod room;
mod rotation;
mod service;
mod status;
mod trimmed;
mod turns;
mod who;
mod writers;
