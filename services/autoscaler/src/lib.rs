//! Decides how many replicas each service has, from what gateways measure of its clients.
//!
//! 1. [`state`]: the services, their targets, their replicas ([`replicas`]).
//! 2. [`history`]: what clients saw, second by second; [`times`]: how long a request takes.
//! 3. [`decide`]: one `service.scaled` where a target changes, by the service's rule ([`rules`]).
//! 4. [`notebooks`]: when one that nobody uses is warned, and ended.
//! 5. [`staffing`]: how many replicas keep an objective, by queueing theory.
//!
//! Everything is a function of the log: no clock, no randomness, and of floating-point arithmetic
//! only what IEEE 754 fixes to the last bit.

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
