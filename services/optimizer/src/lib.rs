//! Decides how many containers each job has: DRF shares, then P2.

pub mod decimal;
pub mod drf;
pub mod problem;
pub mod solution;
