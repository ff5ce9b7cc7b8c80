//! The library before a program, the scheduler's server and the stand-in driver together: several
//! processes on one modelled GPU, judged by the modelled GPU's own ledger.

mod calls;
mod common;
mod cost;
mod histories;
mod lives;
mod lookups;
mod memory;
mod shares;
