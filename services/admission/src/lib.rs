//! Admission: decides submissions and releases queued jobs. The crate is a pure decider and does no I/O.
//!
//! - `decide`, `state`: the decider and its state; [`ended`]: names that stay taken.
//! - `intake`, `decode`, `parse`: messages to events, events to documents, documents to specifications.
//! - `gpu`, `python`, `roles`, `service`, `tasks`, `workdir`: checks of document parts.
//! - `checks`: checks that several parts share; `refusal`: the result of a failed check.
//! - `limits`: the operator's bounds; `measured`: tenants' measurements; [`plan`]: plan tokens.
//! - `release`: the order of releases; `calendar`: budgets and reservations as time passes.

mod calendar;
mod checks;
mod decide;
mod decode;
pub mod ended;
mod gpu;
mod intake;
mod limits;
mod measured;
mod parse;
pub mod plan;
mod python;
mod refusal;
mod release;
mod roles;
mod service;
mod state;
mod tasks;
mod workdir;

pub use checks::SIGNALS;
pub use decide::Admission;
pub use decode::{decode, document};
pub use intake::{arrived, rate_limited, received, recorded};
pub use parse::parse_job;
pub use refusal::Refusal;
pub use state::AdmissionState;
