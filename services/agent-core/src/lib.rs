//! What a node's agent decides, without input and output.
//!
//! ```text
//!  log ──────────────────► state ──┐ what the log asks of the node: a fold
//!                                  ├► reconcile ──► reports ──► what is to be done and said
//!  exits, answers ───────► Machine ┘ what runs there, and what was begun
//!  └────────────────────────── Agent ──────────────────────────┘
//!        ▲ held, fence
//!      Holder ◄── answers of the lease, time; when it is renewed, and when all has to end
//! ```
//!
//! The shipped agent drives it with plain processes or Docker, the simulator with a model of them.
//! It reads no clock, no broker and no disk. How a container is started, stopped and looked at is
//! its driver's.

pub mod agent;
mod exit;
pub mod holder;
pub mod reconcile;
pub mod report;
pub mod state;

pub use agent::{Adopted, Agent, Effect, Lease, Offer, Report, Stage};
pub use exit::{Exit, NotStarted};
pub use state::Orders;
