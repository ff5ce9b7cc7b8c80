//! Decides which submissions are valid and which queued job goes next.

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
