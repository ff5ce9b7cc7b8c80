//! Decides the replicas of each service from gateways' measurements. The crate is a pure decider and does no
//! I/O.
//!
//! - [`decide`]: appends `service.scaled` when a target changes, by the service's rule ([`rules`]).
//! - [`state`], [`replicas`], `folded`: services, targets, replicas, and the handled events.
//! - [`history`], [`times`], `estimate`: client load by second, service times, rate forecasts.
//! - [`notebooks`]: warnings for unused notebooks, and their end.
//! - [`staffing`]: the replicas that keep an objective, by queueing theory.
//!
//! Decisions depend on the log alone: no clock, no randomness, only floating-point operations that IEEE 754
//! fixes to the last bit.

mod decide;
mod estimate;
mod folded;
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
