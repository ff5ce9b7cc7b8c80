//! Time travel over the log: reading and writing it as a file, verifying every decision on it,
//! auditing its facts, and running the same services over a log in memory: simulation.

pub mod archive;
pub mod audit;
mod beside;
pub mod engine;
pub mod history;
mod output;
pub mod random;
pub mod report;
pub mod scenario;
pub mod serving;
pub mod simulate;
pub mod torture;
pub mod verify;

pub use archive::{ArchiveError, LogReader, LogWriter};
pub use audit::Audit;
pub use output::{OutputError, OutputFile};
pub use verify::{Finding, Report, Verifier};
