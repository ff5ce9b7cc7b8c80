//! The decisions of a node's agent, without clock, broker, disk or processes. The shipped agent drives them
//! with processes or Docker, the simulator with a model.
//!
//! - [`state`]: folds the log's requests to the node
//! - [`reconcile`]: compares them with the node's containers
//! - [`agent`]: the state machine that drives both
//! - [`lease_holder`]: the node's lease
//! - [`lifecycle`]: one container from its start to its exit
//! - [`report`], `exit.rs`: events about containers, and exits

pub mod agent;
mod exit;
pub mod lease_holder;
pub mod lifecycle;
pub mod reconcile;
pub mod report;
pub mod state;

pub use agent::{Adopted, Agent, Lease, Offer, Report, Stage};
pub use exit::{Exit, NotStarted};
pub use reconcile::Effect;
pub use state::Orders;
