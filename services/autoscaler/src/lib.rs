//! Decides the replicas of each service from gateways' measurements. The crate is a pure decider and does no
//! I/O.
//!
//! - [`decide`], [`rules`]: `service.scaled` when a target changes.
//! - [`state`], [`replicas`]: services, replicas.
//! - [`history`], [`times`], `estimate`: client load, service times, forecasts.
//! - [`notebooks`]: the end of unused notebooks.
//! - [`staffing`]: queueing theory.
//!
//! Decisions depend on the log alone: no clock, no randomness, only floating-point operations fixed by IEEE
//! 754.

mod decide;
mod estimate;
mod history;
mod notebooks;
mod replicas;
mod rules;
pub mod staffing;
mod state;
mod times;

pub use decide::Autoscaler;
pub use history::{History, Second};
pub use notebooks::{Unused, Used};
pub use replicas::{Replica, ReplicaPhase, Replicas};
pub use state::{AutoscalerState, Service};
pub use times::ServiceTimes;
