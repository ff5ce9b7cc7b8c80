//! Asks Slurm for the allocations that the log requests, and observes what becomes of them. Ordinary programs of
//! an ordinary user: `sbatch`, `squeue`, `scancel`.
//!
//! - [`commands`]: the programs, with bounded output and time. No shell reads what a tenant wrote.
//! - [`listing`]: the answer of `squeue`.
//! - [`script`]: the batch script, which starts an agent on each node.
//! - [`allocations`]: the input of the decider: submits, cancels and observes.
//!
//! An allocation is found again by the name of Slurm's job, which holds log, queue and number: a process that
//! dies between `sbatch` and the event submits nothing twice.

pub mod allocations;
pub mod commands;
pub mod listing;
pub mod script;

pub use allocations::{Allocations, Options};
pub use commands::{Slurm, SlurmError};
pub use script::{Agents, Keys};
