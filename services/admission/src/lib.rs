//! Admission: decides submissions and releases queued jobs. The crate is a pure decider and does no I/O.
//!
//! - `decide`, `state`, `folded`: the decider, its state, and the handled events.
//! - `intake`, `parse`: messages to events, documents to specifications.
//! - `gpu`, `python`, `roles`, `service`, `tasks`, `workdir`: checks of document parts.
//! - `limits`: the operator's bounds; `measured`: tenants' measurements; [`plan`]: plan tokens.
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
