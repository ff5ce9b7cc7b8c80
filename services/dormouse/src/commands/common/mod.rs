//! Code shared by commands.
//!
//! - `query` asks the query service; `agents` asks nodes; `history` reads logs, `archived` their
//!   trimmed beginnings.
//! - `key_identity` applies keys; `known`, `documents`, `workdir` and `requirements` check input.
//! - `operator` appends operators' events; `decided` waits for admission.
//! - `watched` and `screen` refresh lists.

pub mod agents;
mod archived;
pub mod decided;
pub mod documents;
pub mod history;
pub mod key_identity;
pub mod known;
pub mod operator;
mod query;
pub mod requirements;
mod screen;
pub mod watched;
pub mod workdir;

pub use query::{caught_up, next_event, query};
