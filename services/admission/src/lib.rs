//! Admission: decides about submissions and releases queued jobs. The crate is a pure decider and does no
//! I/O.
//!
//! - `decide`: the decider; `state`, `folded`: the state, and the events that the state handles.
//! - `intake`, `parse`: messages to events, documents to specifications.
//! - `gpu`, `python`, `roles`, `service`, `tasks`, `workdir`: checks of one part of a document each.
//! - `limits`: the operator's bounds; `measured`: measurements by tenants' proxies; [`plan`]: plan tokens.
//! - `release`: the order of releases.

mod decide;
mod folded;
mod gpu;
mod intake;
mod limits;
mod measured;
mod parse;
pub mod plan;
mod python;
mod release;
mod roles;
mod service;
mod state;
mod tasks;
mod workdir;

pub use decide::Admission;
pub use intake::{arrived, received, recorded, shed};
pub use parse::{Refusal, SIGNALS, decode, document, parse_job};
pub use state::AdmissionState;
