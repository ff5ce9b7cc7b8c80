//! The decisions of a node's agent, without input or output: no clock, broker, disk or process.
//!
//! - [`state`]: a fold of the log: what it asks of the node
//! - [`reconcile`]: the difference between the log's wishes and the node's containers
//! - [`agent`]: the state machine that drives both and emits effects and reports
//! - [`holder`]: the node's lease: when to renew it and when to fence
//! - [`report`], `exit.rs`: events about containers, and their exits
//!
//! The shipped agent drives these with processes or Docker, the simulator with a model of them.

pub mod agent;
mod exit;
pub mod holder;
pub mod reconcile;
pub mod report;
pub mod state;

pub use agent::{Adopted, Agent, Effect, Lease, Offer, Report, Stage};
pub use exit::{Exit, NotStarted};
pub use state::Orders;
