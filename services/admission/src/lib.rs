//! Decides which submissions are valid and which queued job goes next.

mod decide;
mod gpu;
mod intake;
mod limits;
mod parse;
mod release;
mod service;
mod state;
mod tasks;

pub use decide::Admission;
pub use intake::received;
pub use parse::{Refusal, parse_job};
pub use state::AdmissionState;
