//! Library, scheduler's server and stand-in driver together: several processes on a modelled GPU, judged by
//! the GPU's own ledger.

mod calls;
mod common;
mod cost;
mod deaths;
mod histories;
mod lookups;
mod memory;
mod shares;
