//! Tools over the log. The crate runs the services' own folds and decisions, reads and writes files, and
//! never touches a broker.
//!
//! - [`log_file`], [`verify`], [`audit`]: log files; repeated decisions; checked facts.
//! - [`engine`], [`simulate`], [`torture`]: the cluster in memory; scenarios on it; random trials.
//! - [`scenario`], [`report`]: input documents and result pages.
//! - [`serving`]: the scaling rules on one simulated service.
//! - [`history`]: questions about an existing log.
//! - [`random`]: the random number generator.

pub mod audit;
pub mod engine;
pub mod history;
mod lagging;
pub mod log_file;
mod output;
mod parallel_readers;
pub mod random;
pub mod report;
pub mod scenario;
pub mod serving;
pub mod simulate;
mod threads;
pub mod torture;
pub mod verify;

pub use audit::Audit;
pub use log_file::{LogFileError, LogReader, LogWriter};
pub use output::{OutputError, OutputFile};
pub use threads::in_threads;
pub use verify::{Finding, Report, Verifier};
